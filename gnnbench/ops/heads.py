"""Scores of the heads of nodes, which attention adds up at every edge."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.ops.kernels import Kernels


def head_scores(kernels: Kernels, x: Tensor, att: Tensor) -> Tensor:
    """out[k, n, h] = <x[n, h], att[k, h]>, for all k in one pass over x.

    Not a torch custom op, which costs more to call.

    Args:
        x: [N, H, C], floating point.
        att: [K, H, C], of the type of x.

    Returns:
        [K, N, H], differentiable in both.
    """
    out: Tensor = _HeadScores.apply(x, att, kernels)
    return out


class _HeadScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, att: Tensor, kernels: Kernels) -> Tensor:
        ctx.kernels = kernels
        ctx.save_for_backward(x, att)
        return kernels.head_scores(x.contiguous(), att.contiguous())

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        kernels = Kernels() if torch.is_grad_enabled() else ctx.kernels  # which autograd follows
        given = (each.contiguous() for each in (grad_out, *ctx.saved_tensors))
        return *kernels.head_scores_backward(*given), None
