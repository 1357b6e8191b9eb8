"""Batch norm with the ReLU after it, by `cython_kernels/norm.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes

native = _compiled.load("norm")

CHUNKS = 64  # pieces of the rows, for threads
ROWS = 64  # of a piece, at least: one block of sums
TEAM_WORK = 1 << 15  # numbers that are worth waking a team for


class NormKernels(BaseKernels):
    """Batch norm, of which nothing but its input and the moments of that is kept."""

    def batch_norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        if not _fits(x, weight, bias):
            return super().batch_norm(x, weight, bias, eps, relu)
        out, mean, var = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        given = (x, None, out, weight, bias, mean, var, None, None)
        native.forward(*self._norm_how(x), eps, *given, *_shape(x), int(relu))
        return out, mean, var

    def batch_norm_backward(
        self,
        x: Tensor,
        grad_out: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        var: Tensor,
        eps: float,
        relu: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if not _fits(x, weight, bias, grad_out, mean, var):
            return super().batch_norm_backward(x, grad_out, weight, bias, mean, var, eps, relu)
        grads = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        given = (x, grad_out, grads[0], weight, bias, mean, var, *grads[1:])
        native.backward(*self._norm_how(x), eps, *given, *_shape(x), int(relu))
        return grads

    def _norm_how(self, x: Tensor) -> tuple[bool, int, int]:
        return x.dtype == torch.float64, self.isa, self.threads if x.numel() >= TEAM_WORK else 1


def _fits(x: Tensor, *others: Tensor) -> bool:
    return (
        computes(x, *others)
        and x.numel() > 0
        and all(each.dtype == x.dtype and each.is_contiguous() for each in (x, *others))
    )


def _shape(x: Tensor) -> tuple[Tensor, int, int, int]:
    """Room for the chunks, which depend on nothing but the rows, and how many there are."""
    rows, width = x.shape
    chunks = max(1, min(CHUNKS, rows // ROWS))
    return torch.empty(chunks, 5, width, dtype=torch.float64), rows, width, chunks
