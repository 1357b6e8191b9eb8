"""Gated recurrent units (Cho et al. 2014), of whose products no more is kept than gates and news."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.ops._custom import is_transformed
from gnnbench.ops._workload import Workload
from gnnbench.ops.kernels import Kernels


def gru(
    kernels: Kernels,
    x: Tensor,
    state: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None = None,
    bias_hh: Tensor | None = None,
) -> Tensor:
    """Return the next state, as `torch.nn.GRUCell` does.

    Not a torch custom op, which costs more to call: under `torch.compile` and autocast it is torch's ops.

    Args:
        x: [N, K], what is read.
        state: [N, F].
        weight_ih: [3 F, K], of the reset gate, the update gate and the news.
        weight_hh: [3 F, F].
        bias_ih, bias_hh: [3 F]; all of one floating-point type.

    Returns:
        [N, F], differentiable in all of them.
    """
    given = x, state, weight_ih, weight_hh, bias_ih, bias_hh
    if is_transformed(*given):
        return Kernels().gru(x, state, (weight_ih, weight_hh), (bias_ih, bias_hh), keep=False)[0]
    out: Tensor = _Gru.apply(*given, kernels)
    return out


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, kernels = given
        x, state, *rest = (each if each is None else each.contiguous() for each in tensors)
        out, kept = kernels.gru(x, state, rest[:2], rest[2:], any(ctx.needs_input_grad))
        ctx.kernels = kernels
        ctx.save_for_backward(kept, x, state, *rest)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        kernels, (kept, x, state, *rest) = ctx.kernels, ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives follow how all of it was computed
            kernels = Kernels()
            _, kept = kernels.gru(x, state, rest[:2], rest[2:], keep=True)
        given = grad_out.contiguous(), kept, x, state, rest[:2]
        of_rows, of_weights, of_biases = kernels.gru_backward(*given)
        of_biases = (
            grad if needed else None for grad, needed in zip(of_biases, ctx.needs_input_grad[4:6], strict=True)
        )
        return *of_rows, *of_weights, *of_biases, None


WORKLOADS = {
    "gru": Workload(
        inputs={"x": "RF", "state": "RF", "weight_ih": "GF", "weight_hh": "GF", "bias_ih": "G", "bias_hh": "G"},
        out="RF",
        call=lambda kernels, _, **inputs: gru(kernels, **inputs),
        sizes={"R": "rows", "F": "features", "G": "gates"},
        shapes=("13752x64x192",),
        peers={"torch": lambda **inputs: torch.gru_cell(*inputs.values())},
    )
}
