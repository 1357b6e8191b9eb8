"""Differentiable aggregation, written once for all kernels (backward = the same kernel on the transpose)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import EXTREMA, REDUCTIONS, Kernels


def spmm(kernels: Kernels, graph: Graph, x: Tensor, value: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Aggregate the sources of every destination: out[i] = reduce of value[ij] * x[j] over edges (i, j).

    Args:
        kernels: who computes it.
        graph: N destinations, M sources, E edges.
        x: [M, F], or [M, H, C] for sum and mean; floating point.
        value: [E], or [E, H] with x [M, H, C]; None for ones. Same type as x.
        reduce: "sum", "mean", "min" or "max"; a destination without edges gives zero.

    Returns:
        [N, F] or [N, H, C], differentiable in x and value.

    Raises:
        UnsupportedOp: shapes or types do not fit, or the kernels decline.
    """
    if reasons := _misfits(graph, x, value, reduce) or kernels.unsupported("spmm", graph, x, value):
        raise UnsupportedOp(f"spmm with reduce={reduce!r}", reasons)
    out: Tensor = (_Extremum if reduce in EXTREMA else _Linear).apply(kernels, graph, x, value, reduce)
    return out


def _misfits(graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> list[str]:
    graph.check_unchanged()
    reasons = []
    if reduce not in REDUCTIONS:
        reasons.append(f"reduce must be one of {', '.join(REDUCTIONS)}")
    if x.dim() not in (2, 3) or (x.dim() == 3 and reduce in EXTREMA):
        reasons.append(f"x has shape {list(x.shape)}")
    elif x.size(0) != graph.num_cols:
        reasons.append(f"x has {x.size(0)} rows, but the graph has {graph.num_cols} sources")
    if not x.is_floating_point():
        reasons.append(f"x has type {x.dtype}")
    if x.device != graph.device:
        reasons.append(f"x is on {x.device}, the graph on {graph.device}")
    if value is not None:
        expected = [[graph.num_edges], [graph.num_edges, *x.shape[1:2]]][: x.dim() - 1]
        if list(value.shape) not in expected:
            reasons.append(f"value has shape {list(value.shape)}, expected {expected[-1]}")
        if value.dtype != x.dtype or value.device != x.device:
            reasons.append(f"value is {value.dtype} on {value.device}, x is {x.dtype} on {x.device}")
    return reasons


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        ctx.kernels, ctx.graph, ctx.reduce = kernels, graph, reduce
        ctx.save_for_backward(x if value is not None else None, value)
        return kernels.spmm(graph, x, value, reduce)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        kernels, graph = ctx.kernels, ctx.graph
        x, value = ctx.saved_tensors
        if ctx.reduce == "mean":
            degree = graph.degree.clamp(min=1).to(grad_out.dtype)
            grad_out = grad_out / degree.view(-1, *[1] * (grad_out.dim() - 1))
        grad_x = grad_value = None
        if ctx.needs_input_grad[2]:
            transposed_value = None if value is None else value[graph.perm]
            grad_x = kernels.spmm(graph.transpose, grad_out, transposed_value, "sum")
        if ctx.needs_input_grad[3]:
            per_head = value.dim() == 2 or x.dim() == 2
            grad_value = kernels.sddmm(
                graph, *((grad_out, x) if per_head else (grad_out.flatten(1), x.flatten(1)))
            )
        return None, None, grad_x, grad_value, None


class _Extremum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        out, arg_out = kernels.spmm_extremum(graph, x, value, reduce)
        ctx.kernels, ctx.graph = kernels, graph
        ctx.save_for_backward(x if value is not None else None, value, arg_out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        x, value, arg_out = ctx.saved_tensors
        grad_x = grad_value = None
        if ctx.needs_input_grad[2]:
            grad_x = ctx.kernels.spmm_extremum_backward(ctx.graph, arg_out, grad_out, value)
        if ctx.needs_input_grad[3]:
            edge = arg_out.clamp(min=0).long()
            share = grad_out * x.gather(0, ctx.graph.col.long()[edge]) if value.numel() else grad_out
            share = share.masked_fill(arg_out < 0, 0.0).flatten()
            grad_value = torch.zeros_like(value)
            if value.numel():
                grad_value.index_add_(0, edge.flatten(), share)
        return None, None, grad_x, grad_value, None
