"""Features that a program hands to convs again and again, without their zeros where most of them are zero."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gnnbench.graph.stamp import Stamp, stamp
from gnnbench.ops.features import Features, mostly_zero
from gnnbench.ops.kernels import Kernels

MIN_NUMBERS = 1 << 18  # numbers, whose product with weights takes hardly longer than a look at some of them


def many(x: Any) -> bool:
    """Return whether x is constant features, and so many that zeros among them may matter."""
    plain = isinstance(x, Tensor) and not x.requires_grad and x.is_cpu and not torch.compiler.is_compiling()
    return plain and x.numel() >= MIN_NUMBERS


class KnownFeatures:
    """The features that an engine has met; looked at once they come again unchanged, and forgotten with them."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all features."""
        self._met: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def without_zeros(self, kernels: Kernels, x: Tensor) -> Tensor | Features:
        """`Features` in place of x [N, F] where that is worth it; otherwise x itself."""
        if "spmm" not in kernels.accelerated or (state := stamp(x)) is None:
            return x
        known: tuple[Stamp, Features | None, bool] | None = self._met.get(x)
        if known is None or known[0] != state:
            self._met[x] = state, None, False
            return x
        _, features, looked_at = known
        if not looked_at:
            with torch.inference_mode(False), torch.no_grad():
                features = Features.of(kernels, x) if mostly_zero(x) else None
            self._met[x] = state, features, True
        return x if features is None else features
