"""TypedDataset: one graph of several types of nodes and edges, the nodes of one type to be classified."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gnnbench.datasets._kinds import Classified, NodeDataset, OneGraph, all_for_training

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import HeteroData

    from gnnbench.graph import CSRBuilder, Graph

STAND_IN = 64  # width of the features of all types as one
Relation = tuple[str, str, str]  # type of sources, name, type of destinations


class HasEdges(Protocol):
    """The edges of one relation, in memory or of a sampled batch."""

    @property
    def edge_index(self) -> Tensor:
        """[2, E] int64, each row in the ids of its own type."""


class Bipartite(NamedTuple):
    """The edges of one relation.

    Attributes:
        edge_index: [2, E] int64, each row in the ids of its own type.
        num_cols, num_rows: how many nodes the types of sources and of destinations have.
    """

    edge_index: Tensor
    num_cols: int
    num_rows: int

    def graph(self, device: torch.device, layout: CSRBuilder | None = None) -> Graph:
        """[num_rows x num_cols] in rows on `device`, sorted there by `layout`."""
        from gnnbench.graph import Graph

        return Graph.from_edge_index(self.edge_index.to(device), self.num_rows, self.num_cols, layout=layout)


def joined(nodes: Mapping[str, int], relations: Mapping[Relation, HasEdges]) -> Bipartite:
    """The edges of all relations, one after another, in one numbering of all nodes, type after type."""
    import torch

    start = dict(zip(nodes, accumulate(nodes.values(), initial=0), strict=False))
    ends = [
        edges.edge_index + torch.tensor([[start[source]], [start[destination]]])
        for (source, _, destination), edges in relations.items()
    ]
    total = sum(nodes.values())
    return Bipartite(torch.cat(ends, 1), total, total)


def edge_types(relations: Mapping[Relation, HasEdges]) -> Tensor:
    """[E] int64, the number of the relation of each edge of `joined`."""
    import torch

    sizes = torch.tensor([edges.edge_index.size(1) for edges in relations.values()])
    return torch.arange(len(sizes)).repeat_interleave(sizes)


@dataclass
class TypedDataset(Classified, OneGraph):
    """Nodes and edges by type, and targets of one type of nodes.

    Attributes:
        data: PyG's graph; of each type of nodes `num_nodes`, and `x` [n, F] float32 where it has features; of each
            relation `edge_index` [2, E] int64.
        target: the type whose nodes are classified.
        y: [n] int64 class of these, -1 where unlabelled.
        train_mask, val_mask, test_mask: [n] bool, disjoint, only labelled nodes.
        num_classes: how many classes.
        embedding: width of the vectors that are trained for types without features.
    """

    data: HeteroData
    target: str
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    num_classes: int
    embedding: int = 0

    @property
    def nodes(self) -> dict[str, int]:
        """How many nodes there are of each type."""
        return {kind: self.data[kind].num_nodes for kind in self.data.node_types}

    @property
    def num_nodes(self) -> int:
        return sum(self.nodes.values())

    @property
    def widths(self) -> dict[str, int]:
        """Width of the features of each type, or of the vectors that are trained in their place."""
        return {kind: x.size(1) if x.dim() == 2 else self.embedding for kind, x in self.x.items()}

    @property
    def embedding_bytes(self) -> int:
        """Memory of the vectors that are trained, in float32; their gradients and the optimizer take more."""
        return sum(4 * self.embedding * len(x) for x in self.x.values() if x.dim() == 1)

    @cached_property
    def x(self) -> dict[str, Tensor]:  # type: ignore[override]
        """[n, F] features of each type, or [n] int64, the ids of nodes, where vectors are trained instead."""
        import torch

        return {
            kind: self.data[kind].x if "x" in self.data[kind] else torch.arange(nodes)
            for kind, nodes in self.nodes.items()
        }

    @property
    def relations(self) -> dict[Relation, Bipartite]:
        """The edges by relation."""
        nodes = self.nodes
        return {
            relation: Bipartite(self.data[relation].edge_index, nodes[relation[0]], nodes[relation[2]])
            for relation in self.data.edge_types
        }

    @cached_property
    def edge_index(self) -> Tensor:  # type: ignore[override]
        """[2, E] int64 of all relations, as `joined` numbers nodes."""
        return joined(self.nodes, self.relations).edge_index

    def as_nodes(self) -> NodeDataset:
        """All types as one, of one class and for training, with seeded features."""
        return all_for_training(self.label, self.edge_index, (self.num_nodes, STAND_IN))
