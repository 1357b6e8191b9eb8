"""A few small graphs of every shape, to train on in batches."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.datasets import GraphsDataset


def graphs_dataset(per_node: bool = False, graphs: int = 22, **changes: Any) -> GraphsDataset:
    """Graphs of 1 to 12 nodes, with self-loops, duplicate edges, symmetric ones and some without edges."""
    generator = torch.Generator().manual_seed(7)
    nodes = torch.randint(1, 13, (graphs,), generator=generator)
    parts = []
    for graph, count in enumerate(nodes.tolist()):
        edges = torch.randint(count, (2, 0 if graph % 7 == 3 else 3 * count), generator=generator)
        parts.append(torch.cat([edges, edges.flip(0)], dim=1) if graph % 2 else edges)
    total = int(nodes.sum())
    y = torch.randint(3, (total if per_node else graphs,), generator=generator)
    fields: dict[str, Any] = {
        "name": "zoo",
        "graph_ptr": _ptr(nodes),
        "edge_ptr": _ptr(torch.tensor([part.size(1) for part in parts])),
        "edge_index": torch.cat(parts, dim=1).int(),
        "x": torch.randn(total, 5, generator=generator),
        "y": y,
        "splits": dict(zip(("train", "val", "test"), torch.arange(graphs).split([graphs - 8, 4, 4]), strict=True)),
        "target": "class",
        "num_outputs": 3,
        "per_node": per_node,
    }
    return GraphsDataset(**{**fields, **changes})


def _ptr(sizes: Tensor) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), sizes.long().cumsum(0)])
