"""Allow what PyTorch leaves open, others being as right: how it rounds, and which of equal messages wins."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch_geometric.utils
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ULPS, BITS = 32, 4  # standard deviation of a random error; the fewest bits that are rounded away
ARITHMETIC = re.compile(
    "(add|b|baddb)?mm|mv|dot|mul|div|add|r?sub|neg|sum|mean|var|exp|log|pow|r?sqrt|reciprocal|square|lerp"
    "|addc(mul|div)|(sigmoid|tanh|silu|elu)(_backward)?|_?native_(batch|layer)_norm.*|norm|linalg_vector_norm"
    "|_weight_norm_interface.*|(scatter|index)_add|embedding_dense_backward"
)


class Rounding(TorchDispatchMode):
    """Every result of arithmetic within it is off by some units in the last place, as `number` has it.

    Errors are random by even numbers. By odd ones the last bits are rounded away, so that what is equal but for
    rounding becomes equal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(number)
        self.bits = BITS + number // 2 if number % 2 else 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        if ARITHMETIC.fullmatch(func.overloadpacket.__name__.rstrip("_")):
            for each in out if isinstance(out, tuple) else (out,):
                if isinstance(each, Tensor) and each.is_floating_point():
                    self._round(each)
        return out

    def _round(self, x: Tensor) -> None:
        if self.bits:
            large = x * (2**self.bits + 1)
            x.copy_(large - (large - x))
        else:
            error = torch.randn(x.shape, generator=self.generator, dtype=torch.float64)
            x.mul_(1 + ULPS * torch.finfo(x.dtype).eps * error)


def first_of_equals(
    src: Tensor, index: Tensor, dim: int = 0, dim_size: int | None = None, reduce: str = "sum"
) -> Tensor:
    """PyG's `scatter`, with the gradient of the first of equal messages, as kernels have it; PyG shares it out."""
    out = torch_geometric.utils.scatter(src, index, dim, dim_size, reduce)
    if reduce not in ("min", "max") or not len(src):
        return out
    with torch.no_grad():
        edge = torch.arange(len(src)).unsqueeze(1).expand_as(src)
        wins = (src == out[index]) | (src != src)
        best = torch.full(out.shape, len(src)).index_reduce(0, index, edge.where(wins, len(src)), "amin")
    return src.gather(0, best.clamp(max=len(src) - 1)).where(best < len(src), 0.0)
