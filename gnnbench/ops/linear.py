"""Linear layers, whose gradients are taken together."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.graph import handles
from gnnbench.ops import _custom
from gnnbench.ops.kernels import Kernels


def linear(kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`: x [N, F] times weight [D, F] transposed, plus bias [D].

    Returns:
        [N, D], differentiable in all three, which are of one floating-point type.
    """
    out: Tensor = _linear(x, weight, bias, kernels.handle)
    return out


@_custom.op(
    "linear(Tensor x, Tensor weight, Tensor? bias, str kernels) -> Tensor",
    fake=lambda x, weight, bias, kernels: _custom.like(x, x.size(0), weight.size(0)),
)
def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, kernels: str) -> Tensor:
    out: Tensor = handles.find(kernels).linear(x.contiguous(), weight.contiguous(), bias)
    return out


@_custom.gradient(
    "linear_backward(Tensor grad_out, Tensor x, Tensor weight, bool needs_x, str kernels) -> "
    "(Tensor, Tensor, Tensor)",
    fake=lambda grad_out, x, weight, needs_x, kernels: (
        _custom.like(x) if needs_x else x.new_empty(0),
        _custom.like(weight),
        _custom.like(weight, weight.size(0)),
    ),
)
def _backward(
    grad_out: Tensor, x: Tensor, weight: Tensor, needs_x: bool, kernels: str
) -> tuple[Tensor, Tensor, Tensor]:
    given = grad_out.contiguous(), x.contiguous(), weight.contiguous()
    grad_x, grad_weight, grad_bias = handles.find(kernels).linear_backward(*given, needs_x)
    return x.new_empty(0) if grad_x is None else grad_x, grad_weight, grad_bias


@_custom.differentiates(_linear)
class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, kernels: str) -> Tensor:
        _custom.keep_alive(ctx, kernels)
        ctx.kernels, ctx.has_bias = kernels, bias is not None
        ctx.save_for_backward(x, weight)
        out: Tensor = _custom.below_autograd(_linear, x, weight, bias, kernels)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        needs_x = ctx.needs_input_grad[0]
        grad_x, grad_weight, grad_bias = _backward(grad_out, *ctx.saved_tensors, needs_x, ctx.kernels)
        return grad_x if needs_x else None, grad_weight, grad_bias if ctx.has_bias else None, None
