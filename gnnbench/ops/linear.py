"""Linear layers, whose gradients are taken together."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.ops._custom import is_learned, is_transformed
from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import Kernels


def linear(kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear`: x [N, F] times weight [D, F] transposed, plus bias [D].

    By `kernels` where they are faster than torch. Not a torch custom op, which costs more to call: under
    `torch.compile` and autocast, layers are left to torch.

    Returns:
        [N, D], differentiable in all three.

    Raises:
        RuntimeError: what torch says of shapes, types or devices that do not fit.
    """
    if not pays(kernels, x, weight, bias):
        return F.linear(x, weight, bias)
    if not is_learned([x, weight] if bias is None else [x, weight, bias]):
        return _computed(kernels, x, weight, bias)
    out: Tensor = _Linear.apply(x, weight, bias, kernels)
    return out


def _computed(kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return kernels.linear(x.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous())


def pays(kernels: Kernels, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Return whether `linear` is by `kernels`, which are faster at it then than torch."""
    watched = not isinstance(x, Tensor) or torch.compiler.is_compiling()
    if watched or not kernels.pays("linear", x, weight) or is_transformed(x, weight, bias):
        return False
    return bias is None or (bias.shape == weight.shape[:1] and bias.dtype == weight.dtype)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, kernels: Kernels) -> Tensor:
        ctx.kernels, ctx.has_bias = kernels, bias is not None
        ctx.save_for_backward(x, weight)
        return _computed(kernels, x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        kernels = Kernels() if torch.is_grad_enabled() else ctx.kernels  # which autograd follows
        x, weight = ctx.saved_tensors
        given = grad_out.contiguous(), x.contiguous(), weight.contiguous()
        grad_x, grad_weight, grad_bias = kernels.linear_backward(*given, ctx.needs_input_grad[0])
        return grad_x, grad_weight, grad_bias if ctx.has_bias else None, None


WORKLOADS = {
    "linear": Workload(
        inputs={"x": "RI", "weight": "OI", "bias": "O"},
        out="RO",
        call=lambda kernels, _, **inputs: linear(kernels, **inputs),
        sizes={"R": "rows", "I": "inputs", "O": "outputs"},
        products={"forward": 2, "backward": 4},
        saved=("x", "weight"),
        peers={"torch": lambda x, weight, bias: F.linear(x, weight, bias)},
    )
}
