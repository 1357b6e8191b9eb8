"""GraphsDataset: many graphs to train on, as every source of them yields it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gnnbench.config import Count, DatasetConfig
from gnnbench.datasets import _metrics
from gnnbench.datasets._nodes import Named, NodeDataset, all_for_training
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    from torch import Tensor

Target = Literal["class", "labels", "value"]


class GraphsConfig(DatasetConfig):
    """Options that every source of many graphs understands; each source's own `Config` adds its keys."""

    degree_features: Count = Field(
        64, description="columns of one-hot degrees where nodes have no features; 0: random_features instead"
    )


@dataclass
class GraphsDataset(Named):
    """Graphs with features, targets and a split, one after the other.

    Graph g has the nodes `graph_ptr[g]:graph_ptr[g + 1]` and the edges `edge_ptr[g]:edge_ptr[g + 1]`. Targets are
    of whole graphs, or of nodes where `per_node` is true; `y` then has N rows, and a part all nodes of its graphs.

    Attributes:
        graph_ptr: [G + 1] int64.
        edge_ptr: [G + 1] int64.
        edge_index: [2, E] int32, source and destination, numbered from 0 in each graph, in the source's order.
        x: [N, F] float32; or [N, K] int64 categories, where `encoder` names what embeds them.
        y: [G] int64 class; [G, T] float32 of zeros, ones and NaN where a label is missing; or [G, T] float32
            values; as `target` says.
        parts: "train", "val" and "test" -> ids of graphs [M] int64, disjoint; the latter two may be empty.
        target: "class", "labels" (T yes-or-no questions) or "value" (regression).
        num_outputs: classes, or T.
        per_node: whether targets are of nodes.
        edge_attr: [E, D] float32 or int64 categories; None without.
        encoder: "ogb" where OGB's AtomEncoder and BondEncoder embed categories; empty otherwise.
    """

    graph_ptr: Tensor
    edge_ptr: Tensor
    edge_index: Tensor
    x: Tensor
    y: Tensor
    parts: dict[str, Tensor]
    target: Target
    num_outputs: int
    per_node: bool = False
    edge_attr: Tensor | None = None
    encoder: str = ""

    def __post_init__(self) -> None:
        plain = {"class": "accuracy", "labels": "rocauc", "value": "negative MAE"}
        self.metric = self.metric or plain[self.target]

    @cached_property
    def score(self) -> _metrics.Score:
        """(outputs [M, num_outputs], y [M] or [M, T]) -> float, higher is better; NaN where it is not defined."""
        return _metrics.score_of(self.metric, self.num_outputs)

    @property
    def num_graphs(self) -> int:
        return self.graph_ptr.numel() - 1

    def starts(self) -> Tensor:
        """[E] int64, for each edge the first node of its graph."""
        return self.graph_ptr[:-1].repeat_interleave(self.edge_ptr.diff())

    def first(self, graphs: int) -> NodeDataset:
        """The first `graphs` graphs as one; all its nodes are of class 0 and for training.

        Categories are replaced by seeded features.

        Raises:
            DatasetError: there are fewer.
        """
        if graphs > self.num_graphs:
            raise DatasetError(
                f"{self.name} holds {self.num_graphs:,} graphs, fewer than the {graphs:,} asked for"
            )
        nodes, edges = int(self.graph_ptr[graphs]), int(self.edge_ptr[graphs])
        x = self.x[:nodes] if self.x.is_floating_point() else (nodes, self.x.size(1))
        name, edge_index = f"{self.label}, {graphs:,} graphs", self.edge_index[:, :edges] + self.starts()[:edges]
        return all_for_training(name, edge_index, x).changed(num_classes=self.num_outputs, metric=self.metric)
