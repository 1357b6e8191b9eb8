"""Scores of edges and their softmax, by `cython_kernels/edge.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib.edge_choices import EdgeChoices
from gnnbench.graph import Graph

native = _compiled.load("edge")


class EdgeKernels(EdgeChoices):
    """Sampled dense-dense products and edge softmax."""

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        reasons = super().unsupported(op, graph, *tensors)
        for tensor in tensors:
            if tensor is not None and op == "edge_softmax" and tensor.size(-1) > native.MAX_HEADS:
                reasons.append(f"{tensor.size(-1)} heads; isplib normalises at most {native.MAX_HEADS}")
        return reasons

    def sddmm(self, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        heads, width = (1, a.size(1)) if a.dim() == 2 else a.shape[1:]
        choice = self.chosen("sddmm", graph, heads * width, a.dtype, heads)
        # Nothing is written where there are no channels to sum over.
        new = torch.empty if width else torch.zeros
        out = new(graph.num_edges, *a.shape[1:-1], dtype=a.dtype)
        how, sizes = (a.dtype == torch.float64, self.isa, choice["threads"]), (graph.num_rows, heads, width)
        native.sddmm(*how, graph.rowptr, graph.col, a, b, out, *sizes, choice["prefetch"])
        return out

    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        score = score.contiguous()
        alpha = torch.empty_like(score)
        how, sizes = (score.dtype == torch.float64, self.isa, self.threads), (graph.num_rows, score.size(1))
        native.softmax(*how, graph.rowptr, score, None, alpha, *sizes)
        return alpha

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        alpha, grad_alpha = alpha.contiguous(), grad_alpha.contiguous()
        grad_score = torch.empty_like(alpha)
        how, sizes = (alpha.dtype == torch.float64, self.isa, self.threads), (graph.num_rows, alpha.size(1))
        native.softmax_backward(*how, graph.rowptr, alpha, grad_alpha, grad_score, *sizes)
        return grad_score
