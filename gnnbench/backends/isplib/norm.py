"""Batch norm with the ReLU after it, by `cython_kernels/norm.pyx`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.workspace import in_huge_pages

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
        given = {"x": x, "weight": weight, "bias": bias, "mean": mean, "var": var, "out": out}
        native.forward(*self._norm_team(x), **given, **_sizes(x), eps=eps, relu=relu)
        return out, mean, var

    def normalise(
        self, x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, eps: float, relu: bool
    ) -> Tensor:
        if not _fits(x, mean, var, weight, bias):
            return super().normalise(x, mean, var, weight, bias, eps, relu)
        out = in_huge_pages(torch.empty_like(x))
        given = {"x": x, "weight": weight, "bias": bias, "mean": mean, "var": var, "out": out}
        native.normalise(*self._norm_team(x), **given, **_sizes(x), eps=eps, relu=relu)
        return out

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
        given = {"x": x, "weight": weight, "bias": bias, "mean": mean, "var": var, "grad_out": grad_out}
        out = dict(zip(("out", "grad_weight", "grad_bias"), grads, strict=True))
        native.backward(*self._norm_team(x), **given, **out, **_sizes(x), eps=eps, relu=relu)
        return grads

    def _norm_team(self, x: Tensor) -> tuple[int, int]:
        return self.isa, self.threads if x.numel() >= TEAM_WORK else 1


def _fits(x: Tensor, *others: Tensor) -> bool:
    """Return whether x are rows, and all others rows as many or one, of the same type and as long."""
    return (
        computes(x, *others)
        and x.dim() == 2
        and x.numel() > 0
        and all(each.shape in (x.shape, x.shape[1:]) for each in others)
        and all(each.dtype == x.dtype and each.is_contiguous() for each in (x, *others))
    )


def _sizes(x: Tensor) -> dict[str, Any]:
    """Rows, and room for their chunks, which depend on nothing but how many there are."""
    rows, width = x.shape
    chunks = max(1, min(CHUNKS, rows // ROWS))
    partial = torch.empty(chunks, 5, width, dtype=torch.float64)
    return {"rows": rows, "width": width, "chunks": chunks, "partial": partial}
