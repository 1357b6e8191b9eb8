"""A hidden layer of few inputs and its one output, as networks over edges are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.ops._custom import is_transformed
from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import Kernels


def perceptron(kernels: Kernels, x: Tensor, weights: Tensor) -> Tensor:
    """out[i] = relu(x[i] W + b) times a vector: nothing of the hidden layer is in memory.

    Not a torch custom op, which costs more to call: under `torch.compile` and autocast it is torch's ops.

    Args:
        x: [N, K], floating point.
        weights: [K + 2, D], of its type: the rows of W, then b, then that vector.

    Returns:
        [N], differentiable in both.
    """
    if is_transformed(x, weights):
        return Kernels().perceptron(x, weights)
    out: Tensor = _Perceptron.apply(x, weights, kernels)
    return out


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, kernels: Kernels) -> Tensor:
        ctx.kernels = kernels
        ctx.save_for_backward(x, weights)
        return kernels.perceptron(x.contiguous(), weights.contiguous())

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        kernels = Kernels() if torch.is_grad_enabled() else ctx.kernels  # which autograd follows
        given = (each.contiguous() for each in (grad_out, *ctx.saved_tensors))
        return *kernels.perceptron_backward(*given), None


WORKLOADS = {
    "perceptron": Workload(
        inputs={"x": "RI", "weights": "WD"},
        out="R",
        call=lambda kernels, _, **inputs: perceptron(kernels, **inputs),
        sizes={"R": "rows", "D": "hidden"},
        fixed={"I": 3, "W": 5},
        shapes=("8192x64",),  # of more, some number is so close to zero that rounding decides on its gradient
        peers={"torch": Kernels().perceptron},
    )
}
