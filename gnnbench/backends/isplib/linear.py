"""Linear layers, by `cython_kernels/linear.pyx`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels, computes
from gnnbench.backends.isplib.choices import L2_BYTES
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.ops._workload import Direction

native = _compiled.load("linear")

LEAST, LEAST_WEIGHT = 16, 512  # inputs, outputs; and numbers of a weight, below which torch is as fast
LEAST_ROWS, LEAST_WORK = 128, 1 << 22  # rows, and multiplications, that pay for packing the weight
CHUNKS, CHUNK_ROWS = 64, 512  # at most so many pieces of the rows, for threads, of at least so many rows
PARTIAL_BYTES = 16 << 20  # of all their gradients of the weight, each of which is memory to be faulted in
FEW_CHUNKS, FEW_ROWS = 16, 128  # or, where they are fewer, so many of so many rows
LEAST_TILES = {"forward": 64, "backward": 96}  # inputs and outputs, below which vectors multiply as fast as tiles
MOST_WEIGHT, MANY_ROWS = 4, 512  # second-level caches of a weight; rows that pay for packing more than half of one


class LinearKernels(BaseKernels):
    """Products of many rows with a matrix that stays cached; libraries for all shapes are slower at it."""

    def pays(self, op: str, *tensors: Tensor) -> bool:
        return fits(*tensors) if op == "linear" else super().pays(op, *tensors)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not computes(x, weight):
            return super().linear(x, weight, bias)
        out = in_huge_pages(x.new_empty(len(x), len(weight)))
        self._forward(x, weight, bias, out)
        return out

    def product(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        if not fits(x, weight):
            return super().product(x, weight, out)
        self._forward(x, weight, None, out)

    def linear_backward(
        self, grad_out: Tensor, x: Tensor, weight: Tensor, needs_x: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        if not computes(grad_out, x, weight):
            return super().linear_backward(grad_out, x, weight, needs_x)
        grad_x = in_huge_pages(torch.empty_like(x)) if needs_x else None
        grad_weight, grad_bias = torch.empty_like(weight), x.new_empty(len(weight))
        tensors = {"grad_out": grad_out, "grad_x": grad_x, "grad_weight": grad_weight, "grad_bias": grad_bias}
        fields = {**layer(x, weight), **tensors, "chunks": _chunks(x, weight)}
        native.backward(level(self, "backward", weight), self.threads, **fields)
        return grad_x, grad_weight, grad_bias

    def add_weight_grad(self, grad_out: Tensor, x: Tensor, grad_weight: Tensor) -> None:
        if not fits(x, grad_weight):
            return super().add_weight_grad(grad_out, x, grad_weight)
        # The weight itself is read for the gradient of x alone.
        _, more, _ = self.linear_backward(grad_out, x, grad_weight, needs_x=False)
        grad_weight += more

    def _forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
        fields = {**layer(x, weight), "bias": bias, "out": out}
        native.forward(level(self, "forward", weight), self.threads, **fields)


def level(kernels: BaseKernels, direction: Direction, *weights: Tensor) -> int:
    """Return the instruction set that multiplies by `weights`: tiles take floats, where splitting them pays."""
    least = LEAST_TILES[direction]
    tiles = all(each.dtype == torch.float32 and min(each.shape) >= least for each in weights)
    return kernels.level if tiles else kernels.isa


def layer(x: Tensor, weight: Tensor) -> dict[str, Any]:
    """The fields of a layer that each direction has."""
    return {"x": x, "weight": weight, "rows": len(x), "ins": weight.size(1), "outs": weight.size(0)}


def _chunks(x: Tensor, weight: Tensor) -> int:
    """Return how many pieces of the rows have gradients of their own, whatever the threads."""
    rows = len(x)
    many = min(CHUNKS, PARTIAL_BYTES // max(weight.nbytes, 1), rows // CHUNK_ROWS)
    return max(1, many, min(FEW_CHUNKS, rows // FEW_ROWS))


def fits(x: Tensor, weight: Tensor) -> bool:
    """Return whether torch could do this product, it is large enough, and its weight is not too large."""
    return (
        x.dim() == weight.dim() == 2  # sizes first, as small products take no longer than the other checks
        and x.numel() * weight.size(0) >= LEAST_WORK
        and len(x) >= LEAST_ROWS
        and weight.numel() >= LEAST_WEIGHT
        and min(weight.shape) >= LEAST
        and x.size(1) == weight.size(1)
        and x.dtype == weight.dtype
        and computes(x, weight)
        and 2 * weight.nbytes <= (2 * MOST_WEIGHT if len(x) >= MANY_ROWS else 1) * L2_BYTES
    )
