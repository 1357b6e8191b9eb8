"""Batch norm with the ReLU after it, of which only the input and its moments are kept for backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import Kernels


def batch_norm(
    kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise the columns of x over the batch (Ioffe & Szegedy 2015, algorithm 1).

    Not a torch custom op, which costs more to call: under `torch.compile` and autocast, layers are left to torch.

    Args:
        x: [N, F], floating point, N at least 1.
        weight: [F], of the type of x.
        bias: [F], likewise.
        eps: is added to the variance.
        relu: whether to set what is negative then to zero.

    Returns:
        out [N, F], differentiable in x, weight and bias; mean [F] and variance [F] of x, over N and not N - 1.
    """
    out, mean, var = _BatchNorm.apply(x, weight, bias, eps, relu, kernels)
    return out, mean, var


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool, kernels: Kernels
    ) -> tuple[Tensor, Tensor, Tensor]:
        out, mean, var = kernels.batch_norm(x.contiguous(), weight, bias, eps, relu)
        ctx.how = (eps, relu, kernels)
        ctx.save_for_backward(x, weight, bias, mean, var)
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, var = ctx.saved_tensors
        eps, relu, kernels = ctx.how
        kernels = Kernels() if torch.is_grad_enabled() else kernels  # which autograd follows
        moments = mean, var, eps, relu
        gradients = kernels.batch_norm_backward(x.contiguous(), grad_out.contiguous(), weight, bias, *moments)
        return *gradients, None, None, None


EPS = 1e-5
WORKLOADS = {
    "batch_norm": Workload(
        inputs={"x": "RF", "weight": "F", "bias": "F"},
        out="RF",
        call=lambda kernels, _, x, weight, bias: batch_norm(kernels, x, weight, bias, EPS)[0],
        sizes={"R": "rows", "F": "features"},
        peers={
            "torch": lambda x, weight, bias: torch.nn.functional.batch_norm(
                x, None, None, weight, bias, training=True, eps=EPS
            )
        },
    )
}
