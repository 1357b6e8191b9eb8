"""Engine: kernels, the Graphs and features they have met, and the policy that decides what is worth a Graph."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gnnbench.graph import Graph
from gnnbench.graph.cache import MAX_GRAPH_BYTES, Adjacency, GraphCache, Stamp, is_sparse, stamp
from gnnbench.messages.norms import KnownNorms
from gnnbench.ops.features import Features, dropout, mostly_zero
from gnnbench.ops.kernels import Kernels
from gnnbench.patch.call import Declined
from gnnbench.patch.looks import Looks
from gnnbench.patch.policy import Policy

CAPTURED = "a CUDA graph is being captured, with an adjacency that has no Graph yet or has to be looked at"

_lock = threading.Lock()  # of memory that is written again


def captured(x: Tensor) -> bool:
    """Return whether a call on x is being recorded, so that building a Graph cannot be waited for."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _uses(memory: Tensor) -> int:
    return torch._C._storage_Use_Count(memory.untyped_storage()._cdata)


_FREE = _uses(torch.empty(0))  # references where nothing else holds it, which versions of torch count differently


class KnownFeatures:
    """The features that an engine has met; looked at once they come again unchanged, and forgotten with them.

    Where most of them are zero, what follows is computed without the zeros.
    """

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


class Engine:
    """Kernels and the Graphs they have met; copies of a model share it.

    Args:
        kernels: they run convs and functions; at most one for each type of device.
        policy: refuses calls that PyG runs as fast.
        missing: why there is none for a type of device.
        strict: nothing is left to PyG, whatever the policy; what has to be raises UnsupportedOp.
    """

    def __init__(
        self,
        kernels: Sequence[Kernels],
        policy: Policy,
        missing: Mapping[str, str] | None = None,
        strict: bool = False,
    ) -> None:
        self._made_of = kernels, policy, missing, strict
        self.policy = replace(policy, min_gathered=0) if strict else replace(policy)  # which has seen no calls
        self.strict = strict
        self.missing = missing or {}
        self.by_device = {kernel.device_type: (kernel, GraphCache(kernel, MAX_GRAPH_BYTES)) for kernel in kernels}
        self.features = KnownFeatures()
        self.norms = KnownNorms()
        self.looks = Looks()

    def __reduce__(self) -> tuple[Any, ...]:
        return Engine, self._made_of

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        return self

    def clear(self) -> None:
        """Forget every Graph, what calls without one would have saved, and all features, norms and convs."""
        self.policy.clear()
        self.looks.clear()
        self.features.clear()
        self.norms.clear()
        for _, graphs in self.by_device.values():
            graphs.clear()

    def on(self, x: Tensor) -> tuple[Kernels, GraphCache]:
        """The kernels for the device of x and their Graphs; raises Declined where there are none."""
        device = x.device.type
        if device not in self.by_device:
            raise Declined(self.missing.get(device, f"no kernels run on {device}"))
        return self.by_device[device]

    def graph(
        self,
        x: Tensor,
        adjacency: Adjacency,
        num_rows: int,
        num_cols: int,
        *,
        reverse: bool = False,
        known: Graph | None = None,
    ) -> tuple[Kernels, Graph]:
        """The kernels that run a call on x, and its Graph, unless it is `known`.

        Raises:
            Declined: there are no kernels for that device, or no Graph and no way to build one now.
            GraphError: as `GraphCache.graph`.
        """
        kernels, graphs = self.on(x)
        if known is not None:
            return kernels, known
        if captured(x):
            graph = None if is_sparse(adjacency) else graphs.find(adjacency, num_rows, num_cols, reverse=reverse)
            if graph is None:
                raise Declined(CAPTURED)
            return kernels, graph
        return kernels, graphs.graph(adjacency, num_rows, num_cols, reverse=reverse)
