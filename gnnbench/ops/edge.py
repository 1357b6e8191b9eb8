"""Differentiable ops over edges: softmax over each destination's edges, and sampled dense-dense products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels


def edge_softmax(kernels: Kernels, graph: Graph, score: Tensor) -> Tensor:
    """Normalise score [E, H] over the edges of each destination: alpha [E, H], differentiable in score."""
    graph.check_unchanged()
    reasons = kernels.unsupported("edge_softmax", graph, score)
    if score.dim() != 2 or score.size(0) != graph.num_edges:
        reasons.append(f"score has shape {list(score.shape)}, expected [{graph.num_edges}, heads]")
    if reasons:
        raise UnsupportedOp("edge_softmax", reasons)
    alpha: Tensor = _EdgeSoftmax.apply(kernels, graph, score)
    return alpha


def sddmm(kernels: Kernels, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    """Score edges: out[ij] = <a[i], b[j]> with a [N, H, C], b [M, H, C] -> [E, H], or [N, F], [M, F] -> [E]."""
    graph.check_unchanged()
    reasons = kernels.unsupported("sddmm", graph, a, b)
    if a.dim() not in (2, 3) or a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
        reasons.append(f"a is {a.dtype} {list(a.shape)}, b is {b.dtype} {list(b.shape)}")
    elif (a.size(0), b.size(0)) != (graph.num_rows, graph.num_cols):
        reasons.append(
            f"a has {a.size(0)} rows and b {b.size(0)}, the graph is {graph.num_rows} x {graph.num_cols}"
        )
    if reasons:
        raise UnsupportedOp("sddmm", reasons)
    score: Tensor = _Sddmm.apply(kernels, graph, a, b)
    return score


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, graph: Graph, score: Tensor) -> Tensor:
        alpha = kernels.edge_softmax(graph, score)
        ctx.kernels, ctx.graph = kernels, graph
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_alpha: Tensor) -> tuple[Tensor | None, ...]:
        (alpha,) = ctx.saved_tensors
        return None, None, ctx.kernels.edge_softmax_backward(ctx.graph, alpha, grad_alpha)


class _Sddmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
        ctx.kernels, ctx.graph = kernels, graph
        ctx.save_for_backward(a, b)
        return kernels.sddmm(graph, a, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kernels, graph = ctx.kernels, ctx.graph
        a, b = ctx.saved_tensors
        grad_a = kernels.spmm(graph, b, grad, "sum") if ctx.needs_input_grad[2] else None
        grad_b = kernels.spmm(graph.transpose, a, grad[graph.perm], "sum") if ctx.needs_input_grad[3] else None
        return None, None, grad_a, grad_b
