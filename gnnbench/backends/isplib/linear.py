"""Linear layers, by `cython_kernels/linear.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.choices import L2_BYTES
from gnnbench.backends.isplib.workspace import in_huge_pages

native = _compiled.load("linear")

LEAST, LEAST_WEIGHT = 16, 512  # inputs, outputs; and numbers of a weight, below which torch is as fast
LEAST_WORK = 1 << 22  # multiplications that pay for packing the weight
CHUNKS, CHUNK_ROWS = 64, 512  # at most so many pieces of the rows, for threads, of at least so many rows


class LinearKernels(BaseKernels):
    """Products of many rows with a matrix that stays in the cache; libraries for all shapes are slower at it."""

    def pays(self, op: str, *tensors: Tensor) -> bool:
        return _fits(*tensors) if op == "linear" else super().pays(op, *tensors)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not _fits(x, weight):
            return super().linear(x, weight, bias)
        out = in_huge_pages(x.new_empty(len(x), len(weight)))
        panels = self._panels(x, *weight.shape)
        native.forward(*self._cores(x), x, weight, bias, None, out, panels, None, None, None, *_sizes(x, weight))
        return out

    def linear_backward(
        self, grad_out: Tensor, x: Tensor, weight: Tensor, needs_x: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        if not _fits(x, weight):
            return super().linear_backward(grad_out, x, weight, needs_x)
        grad_x = in_huge_pages(torch.empty_like(x)) if needs_x else None
        grad_weight, grad_bias = torch.empty_like(weight), x.new_empty(len(weight))
        panels, sizes = self._panels(x, weight.size(1), weight.size(0)), _sizes(x, weight)
        partial = x.new_empty(sizes[-1] * len(weight) * (panels.size(0) * panels.size(2) + 1))
        tensors = x, weight, None, grad_out, grad_x, panels, partial, grad_weight, grad_bias
        native.backward(*self._cores(x), *tensors, *sizes)
        return grad_x, grad_weight, grad_bias

    def _panels(self, x: Tensor, columns: int, depth: int) -> Tensor:
        width = native.panel(x.dtype == torch.float64, self.isa)
        return x.new_empty(-(-columns // width), depth + 1, width)

    def _cores(self, x: Tensor) -> tuple[bool, int, int]:
        return x.dtype == torch.float64, self.isa, self.threads


def _fits(x: Tensor, weight: Tensor) -> bool:
    """Whether there is enough to do, with a weight that stays in the cache."""
    return (
        computes(x)
        and min(weight.shape) >= LEAST
        and weight.numel() >= LEAST_WEIGHT
        and len(x) * weight.numel() >= LEAST_WORK
        and 2 * weight.nbytes <= L2_BYTES
    )


def _sizes(x: Tensor, weight: Tensor) -> tuple[int, int, int, int]:
    """Rows, inputs, outputs, and chunks of rows, which depend on nothing but the rows."""
    return len(x), weight.size(1), weight.size(0), max(1, min(CHUNKS, len(x) // CHUNK_ROWS))
