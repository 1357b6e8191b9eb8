"""Reductions over the edges of each row, which lie one after the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.ops.kernels import EXTREMA, Kernels


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
    out: Tensor = _Segment.apply(flat, rowptr, kernels, reduce)
    return out.view(len(rowptr) - 1, *x.shape[1:])


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
        kernels = Kernels() if torch.is_grad_enabled() else kernels  # which autograd follows
        return (
            kernels.segment_backward(rowptr, grad_out.contiguous(), reduce, *ctx.saved_tensors),
            None,
            None,
            None,
        )
