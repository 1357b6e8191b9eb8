"""Graphs as PyG's InMemoryDataset keeps them, one after the other, taken over without a loop over graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnbench.datasets._graphs import Target
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Union:
    """Many graphs without split and metric; see `GraphsDataset` for the shapes.

    Attributes:
        x: [N, F] float32, [N, K] int64, or [N, 0] where nodes have no features.
        targets: as PyG holds them, one row a graph or one a node; -1 for each graph where there are none.
    """

    graph_ptr: Tensor
    edge_ptr: Tensor
    edge_index: Tensor
    x: Tensor
    targets: Tensor
    edge_attr: Tensor | None

    @property
    def widths(self) -> tuple[int, int]:
        """Features of a node, and of an edge."""
        return self.x.size(1), 0 if self.edge_attr is None else self.edge_attr.size(1)

    def task(self) -> tuple[Tensor, Target]:
        """Targets as a GraphsDataset has them: [G] int64 classes of whole numbers, else [G, T] float32 values."""
        y = self.targets
        if not y.is_floating_point() and y.numel() == len(y):
            return y.flatten().long(), "class"
        return (y.unsqueeze(1) if y.dim() == 1 else y).float(), "value"

    def graphs(self) -> dict[str, Any]:
        """The fields that a GraphsDataset takes over as they are."""
        return {key: value for key, value in vars(self).items() if key != "targets"}


def of(name: str, dataset: Any, *, with_positions: bool = False) -> Union:
    """The graphs of a `torch_geometric.data.InMemoryDataset`, in its order and with its order of edges.

    Args:
        with_positions: whether positions of nodes follow their features.

    Raises:
        DatasetError: graphs without edges or without a number of nodes.
    """
    import torch

    data, slices = dataset._data, dataset.slices or {}  # none where there is a single graph
    if data.edge_index is None:
        raise DatasetError(f"{name}: its graphs have no edge_index; gnnbench trains on graphs of one type")

    def ptr(key: str) -> Tensor:
        rows = data[key].size(1 if key == "edge_index" else 0)
        return slices[key].long() if key in slices else torch.tensor([0, rows])

    if data.x is not None:
        graph_ptr = ptr("x")
    else:
        sizes = getattr(data._store, "_num_nodes", [data.num_nodes])
        graph_ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.as_tensor(sizes).cumsum(0)])
    edge_ptr = ptr("edge_index")
    last = edge_ptr[-1:].expand(graph_ptr.numel() - edge_ptr.numel())  # TUDataset forgets edgeless ones at the end
    x = torch.empty(int(graph_ptr[-1]), 0) if data.x is None else _table(data.x)
    if with_positions and data.pos is not None:
        x = torch.cat([x, _table(data.pos)], 1)
    return Union(
        graph_ptr,
        torch.cat([edge_ptr, last]),
        data.edge_index.int(),
        x,
        torch.full((graph_ptr.numel() - 1,), -1) if data.y is None else data.y,
        None if data.edge_attr is None else _table(data.edge_attr),
    )


def joined(name: str, unions: Mapping[str, Union]) -> tuple[Union, dict[str, Tensor]]:
    """All parts after each other, and the ids of the graphs of each.

    Raises:
        DatasetError: parts with other features than the first, of nodes or of edges.
    """
    import torch

    graphs = [union.graph_ptr.numel() - 1 for union in unions.values()]
    parts = dict(zip(unions, torch.arange(sum(graphs)).split(graphs), strict=True))
    first, *others = unions.values()
    for union, ids in zip(others, list(parts.values())[1:], strict=True):
        if (own := union.widths) != (expected := first.widths):
            raise DatasetError(
                f"{name}: graph {int(ids[0])} has {own[0]} features of nodes and {own[1]} of edges, but graph 0 "
                f"has {expected[0]} and {expected[1]}; all graphs need equally many"
            )

    def chained(key: str) -> Tensor:
        ptrs = [getattr(union, key) for union in unions.values()]
        sizes = torch.cat([ptr.diff() for ptr in ptrs])
        return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])

    def stacked(key: str, dim: int = 0) -> Tensor:
        return torch.cat([getattr(union, key) for union in unions.values()], dim)

    union = Union(
        chained("graph_ptr"),
        chained("edge_ptr"),
        stacked("edge_index", 1),
        stacked("x"),
        stacked("targets"),
        None if first.edge_attr is None else stacked("edge_attr"),
    )
    return union, parts


def _table(values: Tensor) -> Tensor:
    """[rows, columns], float32 or int64."""
    table = values.unsqueeze(1) if values.dim() == 1 else values
    return table.float() if table.is_floating_point() else table.long()
