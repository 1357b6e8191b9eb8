"""Features that a program hands to convs again and again, without their zeros where most of them are zero."""

from __future__ import annotations

import threading

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gnnbench.graph.cache import Stamp, stamp
from gnnbench.ops.features import Features, dropout, mostly_zero
from gnnbench.ops.kernels import Kernels

_lock = threading.Lock()


def _uses(memory: Tensor) -> int:
    return torch._C._storage_Use_Count(memory.untyped_storage()._cdata)


_FREE = _uses(torch.empty(0))  # references where nothing else holds it, which versions of torch count differently


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

    def dropped(self, kernels: Kernels, x: Tensor, p: float) -> Tensor:
        """Dropout of x [N, F]; of what is not zero where that is worth it, and convs then find the result here."""
        features = self.without_zeros(kernels, x)
        if not isinstance(features, Features):
            return dropout(kernels, x, p)
        left = dropout(kernels, features, p)
        with _lock:
            kept = features.graph.cache
            scattered = kept.get(_Scattered) or kept.setdefault(_Scattered, _Scattered(features))
            out = scattered.filled(left.value)
        self._met[out] = stamp(out), left, True
        return out


class _Scattered:
    """A matrix of numbers that are mostly zero, in memory that is written where these are not.

    The memory serves again once nothing else holds it, if no one has written to it.
    """

    def __init__(self, features: Features) -> None:
        row, col = features.graph.row.long(), features.graph.col.long()
        self.place = row * features.size(1) + col
        self.shape = features.shape
        self.memory = features.value.new_empty(0)
        self.version = -1

    def filled(self, value: Tensor) -> Tensor:
        """The matrix of these numbers, in the order of their places."""
        if _uses(self.memory) > _FREE or self.memory._version != self.version:
            self.memory = value.new_zeros(self.shape)
        self.memory.view(-1).scatter_(0, self.place, value)
        self.version = self.memory._version
        return self.memory.detach()  # whose edits count in the version of this one
