"""Differentiable aggregation, written once for all kernels (backward = the same kernel on the transpose)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops import _custom
from gnnbench.ops._custom import like
from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import EXTREMA, REDUCTIONS, Kernels


def spmm(kernels: Kernels, graph: Graph, x: Tensor, value: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Aggregate the sources of every destination: out[i] = reduce of value[ij] * x[j] over edges (i, j).

    Args:
        kernels: the kernels that compute it.
        graph: N destinations, M sources, E edges.
        x: [M, F], or [M, H, C] for sum and mean; floating point.
        value: [E], or [E, H] with x [M, H, C]; None for ones. Same type as x.
        reduce: "sum", "mean", "min" or "max"; a destination without edges gives zero.

    Returns:
        [N, F] or [N, H, C], differentiable in x and value.

    Raises:
        UnsupportedOp: shapes or types do not fit, or the kernels decline.
    """
    (x,) = graph.sources(x)
    known = None if _custom.is_watched() else kernels.spmm_again(graph, reduce, (x, value, None, None, None))
    if known is not None:
        return known
    arguments = x, value, graph, kernels, reduce
    return spmm_max(*arguments)[0] if reduce in EXTREMA else spmm_linear(*arguments)


def spmm_scaled(
    kernels: Kernels, graph: Graph, x: Tensor, of_source: Tensor, scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Scale both ends of every edge: out[i] = scale[i] * sum of of_source[j] * x[j] over edges (i, j) + bias.

    Args:
        x: [M, F], as for `spmm`.
        of_source: [M, 1].
        scale: [N, 1].
        bias: [F], or what torch expands to it.

    Returns:
        [N, F], differentiable in all; in one pass over memory where only x and bias learn.
    """
    (x,) = graph.sources(x)
    inputs = x, None, of_source, scale, bias
    known = None if _custom.is_watched() else kernels.spmm_again(graph, "sum", inputs)
    if known is not None:
        return known
    fit = of_source.dtype == scale.dtype == x.dtype and not (of_source.requires_grad or scale.requires_grad)
    if not fit or not (bias is None or (bias.dtype == x.dtype and bias.shape == x.shape[1:])):
        out = spmm_linear(x * of_source, None, graph, kernels, "sum")
        return out * scale if bias is None else torch.addcmul(bias, out, scale)
    return _spmm_scaled(x, of_source, scale, bias, graph, kernels)


def check(kernels: Kernels, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> None:
    """Raise UnsupportedOp, with all reasons, where `spmm` cannot run on these arguments.

    Tensors of the shapes, types and devices of an earlier call on the graph are not looked at again.
    """
    graph.check_unchanged()
    weights = None if value is None else (value.shape, value.dtype, value.device)
    form = "spmm", type(kernels), reduce, x.shape, x.dtype, x.device, weights
    if form in graph.cache:
        return
    if reasons := _misfits(graph, x, value, reduce) or kernels.unsupported("spmm", graph, x, value):
        raise UnsupportedOp(f"spmm with reduce={reduce!r}", reasons)
    graph.cache[form] = True


def _misfits(graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> list[str]:
    shape, dtype, device = x.shape, x.dtype, x.device
    reasons = []
    if reduce not in REDUCTIONS:
        reasons.append(f"reduce must be one of {', '.join(REDUCTIONS)}")
    if len(shape) not in (2, 3) or (len(shape) == 3 and reduce in EXTREMA):
        reasons.append(f"x has shape {list(shape)}")
    elif shape[0] != graph.num_cols:
        reasons.append(f"x has {shape[0]} rows, but the graph has {graph.num_cols} sources")
    if not dtype.is_floating_point:
        reasons.append(f"x has type {dtype}")
    if device != graph.device:
        reasons.append(f"x is on {device}, the graph on {graph.device}")
    if value is not None:
        expected = ((graph.num_edges,), (graph.num_edges, *shape[1:2]))[: len(shape) - 1]
        if value.shape not in expected:
            reasons.append(f"value has shape {list(value.shape)}, expected {list(expected[-1])}")
        if value.dtype != dtype or value.device != device:
            reasons.append(f"value is {value.dtype} on {value.device}, x is {dtype} on {device}")
    return reasons


@_custom.op(
    lambda x, graph, **_: like(x, graph.num_rows, *x.shape[1:]),
    "spmm(Tensor x, Tensor? value, str graph, str kernels, str reduce) -> Tensor",
)
def spmm_linear(x: Tensor, value: Tensor | None, graph: Graph, kernels: Kernels, reduce: str) -> Tensor:
    check(kernels, graph, x, value, reduce)
    return kernels.spmm(graph, x, value, reduce)


@_custom.gradient(lambda grad_out, graph, **_: like(grad_out, graph.num_cols, *grad_out.shape[1:]))
def spmm_grad_x(grad_out: Tensor, value: Tensor | None, graph: Graph, kernels: Kernels, reduce: str) -> Tensor:
    """Run the kernel on the transpose; `reduce` is that of the forward."""
    transposed_value = None if value is None else value[graph.perm]
    return kernels.spmm(graph.transpose, _shares(graph, grad_out, reduce), transposed_value, "sum")


@_custom.gradient(lambda value, **_: like(value))
def _spmm_grad_value(
    grad_out: Tensor, x: Tensor, value: Tensor, graph: Graph, kernels: Kernels, reduce: str
) -> Tensor:
    grad_out = _shares(graph, grad_out, reduce)
    if value.dim() == 1:
        grad_out, x = grad_out.flatten(1), x.flatten(1)
    return kernels.sddmm(graph, grad_out, x)


@_custom.differentiates(spmm_linear)
class _Spmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor | None, *how: Any) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, value)
        return _custom.below_autograd(ctx, spmm_linear, x, value, *how)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        x, value = ctx.saved_tensors
        grad_x = spmm_grad_x(grad_out, value, *ctx.how) if ctx.needs_input_grad[0] else None
        grad_value = _spmm_grad_value(grad_out, x, value, *ctx.how) if ctx.needs_input_grad[1] else None
        return grad_x, grad_value, None, None, None


@_custom.op(lambda x, graph, **_: like(x, graph.num_rows, x.size(1)))
def _spmm_scaled(
    x: Tensor, of_source: Tensor, scale: Tensor, bias: Tensor | None, graph: Graph, kernels: Kernels
) -> Tensor:
    check(kernels, graph, x, None, "sum")
    return kernels.spmm_scaled(graph, x, of_source, scale, bias)


@_custom.gradient(lambda grad_out, graph, **_: like(grad_out, graph.num_cols, grad_out.size(1)))
def _spmm_scaled_grad_x(
    grad_out: Tensor, of_source: Tensor, scale: Tensor, graph: Graph, kernels: Kernels
) -> Tensor:
    return kernels.spmm_scaled(graph.transpose, grad_out, scale, of_source, None)


@_custom.differentiates(_spmm_scaled)
class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, of_source: Tensor, scale: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
        ctx.how = how
        ctx.save_for_backward(of_source, scale)
        return _custom.below_autograd(ctx, _spmm_scaled, x, of_source, scale, bias, *how)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        needs_x, _, _, needs_bias, *_ = ctx.needs_input_grad
        grad_x = _spmm_scaled_grad_x(grad_out, *ctx.saved_tensors, *ctx.how) if needs_x else None
        return grad_x, None, None, grad_out.sum(0) if needs_bias else None, None, None


def _extrema(x: Tensor, graph: Graph, **_: Any) -> tuple[Tensor, Tensor]:
    out = like(x, graph.num_rows, *x.shape[1:])
    return out, out.new_empty(out.shape, dtype=torch.int32)


@_custom.op(_extrema)
def spmm_max(
    x: Tensor, value: Tensor | None, graph: Graph, kernels: Kernels, reduce: str
) -> tuple[Tensor, Tensor]:
    check(kernels, graph, x, value, reduce)
    return kernels.spmm_max(graph, x, value, reduce)


@_custom.gradient(lambda grad_out, graph, **_: like(grad_out, graph.num_cols, grad_out.size(1)))
def _spmm_max_grad_x(
    grad_out: Tensor, arg_out: Tensor, value: Tensor | None, graph: Graph, kernels: Kernels
) -> Tensor:
    return kernels.spmm_max_backward(graph, arg_out, grad_out, value)


@_custom.gradient(lambda value, **_: like(value))
def _spmm_max_grad_value(grad_out: Tensor, arg_out: Tensor, x: Tensor, value: Tensor, graph: Graph) -> Tensor:
    grad_value = torch.zeros_like(value)
    if value.numel():
        edge = arg_out.clamp(min=0).long()
        share = grad_out * x.gather(0, graph.col.long()[edge])
        grad_value.index_add_(0, edge.flatten(), share.masked_fill(arg_out < 0, 0.0).flatten())
    return grad_value


@_custom.differentiates(spmm_max)
class _Extremum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor | None, *how: Any) -> tuple[Tensor, Tensor]:
        ctx.how = how[:2]
        out, arg_out = _custom.below_autograd(ctx, spmm_max, x, value, *how)
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, value, arg_out)
        ctx.mark_non_differentiable(arg_out)
        return out, arg_out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        x, value, arg_out = ctx.saved_tensors
        given, (needs_x, needs_value, *_) = (grad_out, arg_out), ctx.needs_input_grad
        grad_x = _spmm_max_grad_x(*given, value, *ctx.how) if needs_x else None
        grad_value = _spmm_max_grad_value(*given, x, value, ctx.how[0]) if needs_value else None
        return grad_x, grad_value, None, None, None


def _shares(graph: Graph, grad_out: Tensor, reduce: str) -> Tensor:
    """The part of `grad_out` that each edge of a row gets."""
    if reduce != "mean":
        return grad_out
    degree = graph.degree.clamp(min=1).to(grad_out.dtype)
    return grad_out / degree.view(-1, *[1] * (grad_out.dim() - 1))


def _workload(reduce: str, gathers_back: int, kernel: Callable[..., Any], names_edges: bool = False) -> Workload:
    def call(kernels: Kernels, graph: Graph, x: Tensor, value: Tensor | None = None) -> Tensor:
        return spmm(kernels, graph, x, value, reduce)

    return Workload(
        inputs={"x": "MC", "value": "E"},
        out="NC",
        call=call,
        weights=("value",),
        gathers={"forward": 1, "backward": gathers_back},
        saved=("value",),
        names_edges=names_edges,
        kernel=kernel,
    )


WORKLOADS = {
    "spmm": _workload("sum", 1, lambda kernels, graph, x: kernels.spmm(graph, x, None, "sum")),
    "spmm_max": _workload("max", 0, lambda kernels, graph, x: kernels.spmm_max(graph, x, None, "max"), True),
}
