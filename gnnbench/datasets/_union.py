"""Graphs as PyG's InMemoryDataset keeps them, one after the other, taken over without a loop over graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gnnbench.datasets._kinds import GraphsDataset, Target
from gnnbench.errors import DatasetError
from gnnbench.graph.layout import ptr_of


def of(
    name: str, dataset: Any, target: Target | None = None, *, with_positions: bool = False, **facts: Any
) -> GraphsDataset:
    """The graphs of a `torch_geometric.data.InMemoryDataset`, in its order and with its order of edges.

    Args:
        dataset: or the datasets of all parts of a split by their names, which are joined.
        target: what their `y` holds; None for classes where that is a whole number for each graph, or for each
            node, else values. Without `y` all graphs are of class -1.
        with_positions: whether positions of nodes follow their features.
        facts: attributes of the result, in place of what the graphs say.

    Raises:
        DatasetError: graphs without edges or without a number of nodes; parts with other features than the first,
            of nodes or of edges.
    """
    given = dataset if isinstance(dataset, Mapping) else {"": dataset}
    unions = [_arrays(f"{name} {part}".rstrip(), each, with_positions) for part, each in given.items()]
    counts = [len(union["nodes"]) for union in unions]
    ids = torch.arange(sum(counts)).split(counts)
    expected, *widths = ([union[key].size(1) for key in ("x", "edge_attr")] for union in unions)
    for own, graphs in zip(widths, ids[1:], strict=True):
        if own != expected:
            raise DatasetError(
                f"{name}: graph {int(graphs[0])} has {own[0]} features of nodes and {own[1]} of edges, but graph "
                f"0 has {expected[0]} and {expected[1]}; all graphs need equally many"
            )
    joined = unions[0]
    if len(unions) > 1:
        joined = {key: torch.cat([union[key] for union in unions], int(key == "edge_index")) for key in joined}
    y = joined["y"]
    if target is None:
        target = "value" if y.is_floating_point() or y.numel() != len(y) else "class"
    y = y.flatten().long() if target == "class" else (y.unsqueeze(1) if y.dim() == 1 else y).float()
    found: dict[str, Any] = {
        "parts": dict(zip(given, ids, strict=True)) if dataset is given else {},
        "num_outputs": y.size(1) if target != "class" else int(y.max()) + 1 if y.numel() else 0,
        "per_node": len(y) == len(joined["x"]) != sum(counts),
        "edge_attr": joined["edge_attr"] if expected[1] else None,
    }
    return GraphsDataset(
        name,
        ptr_of(joined["nodes"]),
        ptr_of(joined["edges"]),
        joined["edge_index"],
        joined["x"],
        y,
        target=target,
        **found | facts,
    )


def _arrays(name: str, dataset: Any, with_positions: bool) -> dict[str, Tensor]:
    """`edge_index`, `x`, `y` and `edge_attr` of all graphs, and how many `nodes` and `edges` each has."""
    data, slices = dataset._data, dataset.slices or {}  # none where there is a single graph
    if data.edge_index is None:
        raise DatasetError(f"{name}: its graphs have no edge_index; gnnbench trains on graphs of one type")

    def sizes(key: str) -> Tensor:
        rows = data[key].size(1 if key == "edge_index" else 0)
        return slices[key].long().diff() if key in slices else torch.tensor([rows])

    if data.x is not None:
        nodes, x = sizes("x"), _table(data.x)
    else:
        nodes = torch.as_tensor(getattr(data._store, "_num_nodes", [data.num_nodes]))
        x = torch.empty(int(nodes.sum()), 0)
    edges = sizes("edge_index")
    edgeless = edges.new_zeros(len(nodes) - len(edges))  # those at the end, which TUDataset forgets
    return {
        "nodes": nodes,
        "edges": torch.cat([edges, edgeless]),
        "edge_index": data.edge_index.int(),
        "x": torch.cat([x, _table(data.pos)], 1) if with_positions and data.pos is not None else x,
        "y": torch.full((len(nodes),), -1) if data.y is None else data.y,
        "edge_attr": torch.empty(int(edges.sum()), 0) if data.edge_attr is None else _table(data.edge_attr),
    }


def _table(values: Tensor) -> Tensor:
    """[rows, columns], float32 or int64."""
    table = values.unsqueeze(1) if values.dim() == 1 else values
    return table.float() if table.is_floating_point() else table.long()
