"""Engine: kernels, the Graphs they have met, and the policy that decides whether a new one is worth building."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.graph.cache import MAX_GRAPH_BYTES, Adjacency, GraphCache, is_sparse
from gnnbench.messages.norms import KnownNorms
from gnnbench.ops.kernels import Kernels
from gnnbench.patch.call import Declined
from gnnbench.patch.features import KnownFeatures
from gnnbench.patch.policy import Policy

CAPTURED = "a CUDA graph is being captured, with an adjacency that has no Graph yet or has to be looked at"


def captured(x: Tensor) -> bool:
    """Return whether a call on x is being recorded, so that building a Graph cannot be waited for."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


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

    def __reduce__(self) -> tuple[Any, ...]:
        return Engine, self._made_of

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        return self

    def clear(self) -> None:
        """Forget every Graph, what calls without one would have saved, and all features and norms."""
        self.policy.clear()
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
