"""Differentiable ops over edges: softmax over each destination's edges, and sampled dense-dense products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops import _custom
from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm_grad_x, spmm_linear


def edge_softmax(kernels: Kernels, graph: Graph, score: Tensor) -> Tensor:
    """Normalise score [E, H] over the edges of each destination: alpha [E, H], differentiable in score."""
    alpha: Tensor = _edge_softmax(score, graph, kernels)
    return alpha


def sddmm(kernels: Kernels, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    """Score edges: out[ij] = <a[i], b[j]> with a [N, H, C], b [M, H, C] -> [E, H], or [N, F], [M, F] -> [E]."""
    (b,) = graph.sources(b)
    score: Tensor = _sddmm(a, b, graph, kernels)
    return score


@_custom.op(
    "edge_softmax(Tensor score, str graph, str kernels) -> Tensor",
    fake=lambda score, graph, kernels: _custom.like(score),
)
def _edge_softmax(score: Tensor, graph: Graph, kernels: Kernels) -> Tensor:
    graph.check_unchanged()
    reasons = kernels.unsupported("edge_softmax", graph, score)
    if score.dim() != 2 or score.size(0) != graph.num_edges:
        reasons.append(f"score has shape {list(score.shape)}, expected [{graph.num_edges}, heads]")
    if reasons:
        raise UnsupportedOp("edge_softmax", reasons)
    return kernels.edge_softmax(graph, score.contiguous())


@_custom.gradient(
    "edge_softmax_backward(Tensor alpha, Tensor grad_alpha, str graph, str kernels) -> Tensor",
    fake=lambda alpha, grad_alpha, graph, kernels: _custom.like(alpha),
)
def _edge_softmax_backward(alpha: Tensor, grad_alpha: Tensor, graph: Graph, kernels: Kernels) -> Tensor:
    return kernels.edge_softmax_backward(graph, alpha, grad_alpha)


@_custom.differentiates(_edge_softmax)
class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, score: Tensor, *how: Any) -> Tensor:
        ctx.how = how
        alpha: Tensor = _custom.below_autograd(ctx, _edge_softmax, score, *how)
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, grad_alpha: Tensor) -> tuple[Tensor | None, ...]:
        return _edge_softmax_backward(*ctx.saved_tensors, grad_alpha, *ctx.how), None, None


@_custom.op(
    "sddmm(Tensor a, Tensor b, str graph, str kernels) -> Tensor",
    fake=lambda a, b, graph, kernels: _custom.like(a, graph.num_edges, *a.shape[1:-1]),
)
def _sddmm(a: Tensor, b: Tensor, graph: Graph, kernels: Kernels) -> Tensor:
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
    return kernels.sddmm(graph, a.contiguous(), b.contiguous())


@_custom.differentiates(_sddmm)
class _Sddmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, *how: Any) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(a, b)
        score: Tensor = _custom.below_autograd(ctx, _sddmm, a, b, *how)
        return score

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        grad_a = spmm_linear(b, grad, *ctx.how, "sum") if ctx.needs_input_grad[0] else None
        grad_b = spmm_grad_x(a, grad, *ctx.how, "sum") if ctx.needs_input_grad[1] else None
        return grad_a, grad_b, None, None


WORKLOADS = {
    "sddmm": Workload(
        inputs={"a": "NHC", "b": "MHC"},
        out="EH",
        call=sddmm,
        gathers={"forward": 1, "backward": 2},
        kernel=lambda kernels, graph, a, b: kernels.sddmm(graph, a, b),
    ),
    "edge_softmax": Workload(inputs={"score": "EH"}, out="EH", call=edge_softmax),
}
