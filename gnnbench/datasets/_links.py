"""LinksDataset: links to tell from pairs of nodes that are none, as every source of them yields it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gnnbench.datasets import _metrics
from gnnbench.datasets._nodes import NodeDataset, OneGraph, all_for_training

if TYPE_CHECKING:
    from torch import Tensor

EVALUATED = ("val", "test")


@dataclass
class LinksDataset(OneGraph):
    """A graph that messages run over, links by part, and pairs that are none.

    Attributes:
        edge_index: [2, E] int64, source and destination of the edges that messages run over: none to be predicted.
        x: [N, F] float32; or [N] int64, the ids of nodes, where vectors are trained in place of features.
        positives: "train", "val" and "test" -> links [2, P] int64; the latter two may be empty.
        negatives: "val" and "test" -> pairs [2, Q] int64, one list for all links; or, where `ranked`, destinations
            [P, K] int64 for the source of each; without keys until drawn.
        ranked: whether each link has negatives of its own.
        relations: part -> type [P] int64 of each link; None for one type.
        num_relations: types of links.
        embedding: width of the vectors that are trained, 0 for features.
        own_split: whether the split is the benchmark's, and is taken as it is.
    """

    edge_index: Tensor
    x: Tensor
    positives: dict[str, Tensor]
    negatives: dict[str, Tensor] = field(default_factory=dict)
    ranked: bool = False
    relations: dict[str, Tensor] | None = None
    num_relations: int = 1
    embedding: int = 0
    own_split: bool = False

    @cached_property
    def score(self) -> _metrics.Score:
        """(scores of links [P], of negatives [Q] or [P, K]) -> float, higher is better."""
        return _metrics.link_score_of(self.metric)

    @property
    def num_features(self) -> int:
        """Width of features, or of the vectors that are trained in their place."""
        return self.embedding or self.x.size(1)

    @property
    def embedding_bytes(self) -> int:
        """Memory of the vectors that are trained, in float32; their gradients and the optimizer take more."""
        return 4 * self.num_nodes * self.embedding

    def renumbered(self, order: Tensor) -> LinksDataset:
        """The nodes in another order: node i is then what node `order[i]` [N] was."""
        position = order.argsort()
        parts: dict[str, Any] = {
            name: {part: position[nodes] for part, nodes in getattr(self, name).items()}
            for name in ("positives", "negatives")
        }
        x = self.x if self.embedding else self.x[order]
        return replace(self, edge_index=position[self.edge_index], x=x, **parts)

    def as_nodes(self) -> NodeDataset:
        """The graph of messages with all nodes of one class and for training; ids become seeded features."""
        x = (self.num_nodes, self.embedding) if self.embedding else self.x
        return all_for_training(self.label, self.edge_index, x)
