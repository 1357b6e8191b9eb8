"""Engine: kernels, the Graphs they have met, and whether a new one is worth building."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from gnnbench.adjacency import Adjacency, GraphCache
from gnnbench.dropin.call import Declined
from gnnbench.dropin.cost import Patience, Price
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels

MAX_GRAPH_BYTES = 2 << 30


class Engine:
    """Kernels and the Graphs they have met; copies of a model share it.

    Args:
        kernels: who runs convs and functions, at most one for each type of device.
        missing: why there is none for a type of device.
    """

    def __init__(self, kernels: Sequence[Kernels], missing: Mapping[str, str] | None = None) -> None:
        self._made_of = kernels, missing
        self.missing = missing or {}
        self.by_device = {each.device_type: (each, GraphCache(each, MAX_GRAPH_BYTES)) for each in kernels}
        self.patience = Patience()

    def __reduce__(self) -> tuple[Any, ...]:
        return Engine, self._made_of

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        return self

    def clear(self) -> None:
        """Forget every Graph."""
        for _, graphs in self.by_device.values():
            graphs.clear()

    def on(self, x: Tensor) -> tuple[Kernels, GraphCache]:
        """Who runs a call on x, or Declined where there is nobody."""
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
        price: Callable[[], Price],
        *,
        reverse: bool = False,
    ) -> tuple[Kernels, Graph]:
        """Who runs a call on x, and its Graph, if that is there or worth its price.

        Raises:
            Declined: there are no kernels for that device, or the Graph is not worth building yet.
            GraphError: as `GraphCache.graph`.
        """
        kernels, graphs = self.on(x)
        graph = graphs.find(adjacency, num_rows, num_cols, reverse=reverse)
        if graph is None:
            if not self.patience.worth(adjacency, price()):
                raise Declined("its graph is new, and to sort it costs more than this call would save")
            graph = graphs.graph(adjacency, num_rows, num_cols, reverse=reverse)
        return kernels, graph
