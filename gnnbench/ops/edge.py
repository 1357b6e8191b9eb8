"""Differentiable ops over edges: softmax by destination, scores, FusedMM, and reductions of segments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops import _custom
from gnnbench.ops._custom import followed, like
from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import EDGE_FNS, EXTREMA, Kernels
from gnnbench.ops.spmm import spmm_grad_x, spmm_linear


def edge_softmax(kernels: Kernels, graph: Graph, score: Tensor) -> Tensor:
    """Normalise score [E, H] over the edges of each destination: alpha [E, H], differentiable in score."""
    return _edge_softmax(score, graph, kernels)


def sddmm(kernels: Kernels, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    """Score edges: out[ij] = <a[i], b[j]> with a [N, H, C], b [M, H, C] -> [E, H], or [N, F], [M, F] -> [E]."""
    (b,) = graph.sources(b)
    return _sddmm(a, b, graph, kernels)


def fusedmm(kernels: Kernels, graph: Graph, x: Tensor, y: Tensor, edge_fn: str = "identity") -> Tensor:
    """out[i] = sum over edges (i, j) of f(<x[i], y[j]>) * y[j], of which nothing is kept per edge.

    Rahman, Sujon and Azad, "FusedMM: A Unified SDDMM-SpMM Kernel for Graph Embedding and Graph Neural
    Networks", IPDPS 2021.

    Args:
        kernels: the kernels that compute it.
        graph: N destinations, M sources.
        x: [N, F] or [N, H, C]; each head has a score of its own.
        y: [M, F] or [M, H, C], of the same type.
        edge_fn: f, one of "identity", "sigmoid", "exp", "leaky_relu" (of slope 0.2) and "tanh".

    Returns:
        The shape of x, differentiable in x and y; a destination without edges gives zero.

    Raises:
        UnsupportedOp: shapes, types or f do not fit, or the kernels decline.
    """
    (y,) = graph.sources(y)
    return _fusedmm(x, y, graph, kernels, edge_fn)


def segment(kernels: Kernels, rowptr: Tensor, x: Tensor, reduce: str = "sum") -> Tensor:
    """Reduce x[rowptr[i]:rowptr[i + 1]] for every row i; a row without edges gives zero.

    Args:
        kernels: the kernels that compute it.
        rowptr: [N + 1] int64, from 0 to E.
        x: [E, ...].
        reduce: "sum", "mean", "min" or "max"; an extremum passes its gradient on to all that equal it, in equal
            parts, as `torch.scatter_reduce` does.

    Returns:
        [N, ...], differentiable in x.
    """
    flat = x.reshape(len(x), x.shape[1:].numel())
    return _Segment.apply(flat, rowptr, kernels, reduce).view(len(rowptr) - 1, *x.shape[1:])


@_custom.op(lambda score, **_: like(score))
def _edge_softmax(score: Tensor, graph: Graph, kernels: Kernels) -> Tensor:
    graph.check_unchanged()
    reasons = kernels.unsupported("edge_softmax", graph, score)
    if score.dim() != 2 or score.size(0) != graph.num_edges:
        reasons.append(f"score has shape {list(score.shape)}, expected [{graph.num_edges}, heads]")
    if reasons:
        raise UnsupportedOp("edge_softmax", reasons)
    return kernels.edge_softmax(graph, score.contiguous())


@_custom.gradient(lambda alpha, **_: like(alpha))
def _edge_softmax_backward(alpha: Tensor, grad_alpha: Tensor, graph: Graph, kernels: Kernels) -> Tensor:
    return kernels.edge_softmax_backward(graph, alpha, grad_alpha)


@_custom.differentiates(_edge_softmax)
class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, score: Tensor, *how: Any) -> Tensor:
        ctx.how = how
        alpha = _custom.below_autograd(ctx, _edge_softmax, score, *how)
        ctx.save_for_backward(alpha)
        return alpha

    @staticmethod
    def backward(ctx: Any, grad_alpha: Tensor) -> tuple[Tensor | None, ...]:
        return _edge_softmax_backward(*ctx.saved_tensors, grad_alpha, *ctx.how), None, None


def _misfits(graph: Graph, mine: Tensor, theirs: Tensor, names: tuple[str, str]) -> list[str]:
    """Reasons why two tensors cannot be of the destinations and the sources of a graph."""
    name, other = names
    if mine.dim() not in (2, 3) or mine.shape[1:] != theirs.shape[1:] or mine.dtype != theirs.dtype:
        return [f"{name} is {mine.dtype} {list(mine.shape)}, {other} is {theirs.dtype} {list(theirs.shape)}"]
    if (mine.size(0), theirs.size(0)) == (graph.num_rows, graph.num_cols):
        return []
    size = f"the graph is {graph.num_rows} x {graph.num_cols}"
    return [f"{name} has {len(mine)} rows and {other} {len(theirs)}, {size}"]


@_custom.op(lambda a, graph, **_: like(a, graph.num_edges, *a.shape[1:-1]))
def _sddmm(a: Tensor, b: Tensor, graph: Graph, kernels: Kernels) -> Tensor:
    graph.check_unchanged()
    if reasons := kernels.unsupported("sddmm", graph, a, b) + _misfits(graph, a, b, ("a", "b")):
        raise UnsupportedOp("sddmm", reasons)
    return kernels.sddmm(graph, a.contiguous(), b.contiguous())


@_custom.differentiates(_sddmm)
class _Sddmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, *how: Any) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(a, b)
        return _custom.below_autograd(ctx, _sddmm, a, b, *how)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        grad_a = spmm_linear(b, grad, *ctx.how, "sum") if ctx.needs_input_grad[0] else None
        grad_b = spmm_grad_x(a, grad, *ctx.how, "sum") if ctx.needs_input_grad[1] else None
        return grad_a, grad_b, None, None


@_custom.op(lambda x, **_: like(x))
def _fusedmm(x: Tensor, y: Tensor, graph: Graph, kernels: Kernels, edge_fn: str) -> Tensor:
    graph.check_unchanged()
    reasons = kernels.unsupported("fusedmm", graph, x, y) + _misfits(graph, x, y, ("x", "y"))
    if edge_fn not in EDGE_FNS:
        reasons.append(f"edge_fn is {edge_fn!r}, but must be one of {', '.join(EDGE_FNS)}")
    if not x.is_floating_point():
        reasons.append(f"x has type {x.dtype}, expected floating point")
    if reasons:
        raise UnsupportedOp("fusedmm", reasons)
    return kernels.fusedmm(graph, x, y, edge_fn)


@_custom.gradient(lambda x, **_: like(x))
def _fusedmm_grad_x(
    x: Tensor, y: Tensor, grad_out: Tensor, graph: Graph, kernels: Kernels, edge_fn: str
) -> Tensor:
    return kernels.fusedmm_grad_x(graph, x, y, edge_fn, grad_out)


@_custom.gradient(lambda y, **_: like(y))
def _fusedmm_grad_y(
    x: Tensor, y: Tensor, grad_out: Tensor, graph: Graph, kernels: Kernels, edge_fn: str
) -> Tensor:
    return kernels.fusedmm_grad_y(graph, x, y, edge_fn, grad_out)


@_custom.differentiates(_fusedmm)
class _FusedMM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, *how: Any) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(x, y)
        return _custom.below_autograd(ctx, _fusedmm, x, y, *how)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        given = *ctx.saved_tensors, grad_out, *ctx.how
        grad_x = _fusedmm_grad_x(*given) if ctx.needs_input_grad[0] else None
        grad_y = _fusedmm_grad_y(*given) if ctx.needs_input_grad[1] else None
        return grad_x, grad_y, None, None, None


class _Segment(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rowptr: Tensor, kernels: Kernels, reduce: str) -> Tensor:
        x = x.contiguous()
        out = kernels.segment(rowptr, x, reduce)
        ctx.how = rowptr, kernels, reduce
        ctx.save_for_backward(*((x, out) if reduce in EXTREMA else ()))
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        rowptr, kernels, reduce = ctx.how
        grad_x = followed(kernels).segment_backward(rowptr, grad_out.contiguous(), reduce, *ctx.saved_tensors)
        return grad_x, None, None, None


WORKLOADS = {
    "sddmm": Workload(
        inputs={"a": "NHC", "b": "MHC"},
        out="EH",
        call=sddmm,
        gathers={"forward": 1, "backward": 2},
        kernel=lambda kernels, graph, a, b: kernels.sddmm(graph, a, b),
    ),
    "edge_softmax": Workload(inputs={"score": "EH"}, out="EH", call=edge_softmax),
    "fusedmm": Workload(
        inputs={"x": "NHC", "y": "MHC"},
        out="NHC",
        call=fusedmm,
        gathers={"forward": 1, "backward": 3},
        scaled=True,
    ),
}
