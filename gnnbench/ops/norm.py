"""Batch norm with the ReLU after it, of which only the input and its moments are kept for backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.graph import handles
from gnnbench.ops import _custom
from gnnbench.ops.kernels import Kernels


def batch_norm(
    kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise the columns of x over the batch (Ioffe & Szegedy 2015, algorithm 1).

    Args:
        x: [N, F], floating point, N at least 1.
        weight: [F], of the type of x.
        bias: [F], likewise.
        eps: is added to the variance.
        relu: whether to set what is negative then to zero.

    Returns:
        out [N, F], differentiable in x, weight and bias; mean [F] and variance [F] of x, over N and not N - 1.
    """
    out, mean, var = _norm(x, weight, bias, eps, relu, kernels.handle)
    return out, mean, var


@_custom.op(
    "batch_norm(Tensor x, Tensor weight, Tensor bias, float eps, bool relu, str kernels) -> "
    "(Tensor, Tensor, Tensor)",
    fake=lambda x, weight, bias, eps, relu, kernels: tuple(map(_custom.like, (x, weight, bias))),
)
def _norm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool, kernels: str
) -> tuple[Tensor, Tensor, Tensor]:
    out, mean, var = handles.find(kernels).batch_norm(x.contiguous(), weight, bias, eps, relu)
    return out, mean, var


@_custom.gradient(
    "batch_norm_backward(Tensor grad_out, Tensor x, Tensor weight, Tensor bias, Tensor mean, Tensor var, "
    "float eps, bool relu, str kernels) -> (Tensor, Tensor, Tensor)",
    fake=lambda grad_out, x, weight, bias, *_: tuple(map(_custom.like, (x, weight, bias))),
)
def _backward(
    grad_out: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    eps: float,
    relu: bool,
    kernels: str,
) -> tuple[Tensor, Tensor, Tensor]:
    given = x.contiguous(), grad_out.contiguous(), weight, bias, mean, var
    grad_x, grad_weight, grad_bias = handles.find(kernels).batch_norm_backward(*given, eps, relu)
    return grad_x, grad_weight, grad_bias


@_custom.differentiates(_norm)
class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool, kernels: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        _custom.keep_alive(ctx, kernels)
        ctx.how = (eps, relu, kernels)
        out, mean, var = _custom.below_autograd(_norm, x, weight, bias, *ctx.how)
        ctx.save_for_backward(x, weight, bias, mean, var)
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        return *_backward(grad_out, *ctx.saved_tensors, *ctx.how), None, None, None
