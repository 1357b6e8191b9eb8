"""Scores of edges and their softmax, by `cython_kernels/edge.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import csr
from gnnbench.backends.isplib.choices import ChoosingKernels
from gnnbench.graph import Graph

native = _compiled.load("edge")


class EdgeKernels(ChoosingKernels):
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
        sizes = {**csr(graph), "heads": heads, "width": width, "ahead": choice["prefetch"]}
        native.sddmm(self.isa, choice["threads"], a=a, b=b, out=out, **sizes)
        return out

    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        score = score.contiguous()
        alpha = torch.empty_like(score)
        sizes = {"rowptr": graph.rowptr, "rows": graph.num_rows, "heads": score.size(1)}
        native.softmax(self.isa, self.threads, score=score, out=alpha, **sizes)
        return alpha

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        alpha, grad_alpha = alpha.contiguous(), grad_alpha.contiguous()
        grad_score = torch.empty_like(alpha)
        sizes = {"rowptr": graph.rowptr, "rows": graph.num_rows, "heads": alpha.size(1)}
        native.softmax_backward(self.isa, self.threads, score=alpha, grad=grad_alpha, out=grad_score, **sizes)
        return grad_score
