"""NodeDataset: one graph to train on, as every source yields it; MappedDataset: one that stays in its files."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gnnbench.datasets import _metrics

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from gnnbench.graph import CSRBuilder, Graph

PARTS = ("train", "val", "test")
MASKS = ("train_mask", "val_mask", "test_mask")
FACTS = ("name", "made_up", "notes", "num_classes", "metric")  # of a whole dataset, which files keep


class Sized:
    """A dataset with nodes and edges."""

    x: Tensor
    edge_index: Tensor

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)


@dataclass
class Named(Sized):
    """A dataset of any kind.

    Attributes:
        name: what tables call it; a synthetic graph says so.
        metric: name of what it is scored by; empty: the plain one of its targets.
        made_up: what of this dataset is not real: any of "graph" or "graphs", "features", "labels", "split" and
            "negatives".
        notes: sentences that the user should see once.
    """

    name: str
    _: KW_ONLY
    metric: str = ""
    made_up: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def make_up(self, what: str) -> None:
        """Add to what is not real."""
        self.made_up += [] if what in self.made_up else [what]

    @property
    def label(self) -> str:
        """The name as every table shows it, with what is made up; those of synthetic graphs say so themselves."""
        if not self.made_up or {"graph", "graphs"} & {*self.made_up}:
            return self.name
        return f"{self.name} ({', '.join(self.made_up)} synthetic)"


@dataclass
class OneGraph(Named):
    """A dataset whose edges are those of one graph."""

    def graph(self, device: torch.device, layout: CSRBuilder | None = None) -> Graph:
        """The edges in rows on `device`, sorted there by `layout`; raises as `Graph.from_edge_index`."""
        from gnnbench.graph import Graph

        return Graph.from_edge_index(self.edge_index.to(device), self.num_nodes, layout=layout)

    def keys(self, pairs: Tensor) -> Tensor:
        """A number [P] for each pair of nodes [2, P]; a self-loop's is a multiple of `num_nodes` + 1."""
        return pairs[0] * self.num_nodes + pairs[1]


class Classified:
    """Nodes that have targets and a split."""

    y: Tensor
    num_classes: int
    metric: str

    def __post_init__(self) -> None:
        self.metric = self.metric or ("micro-F1" if self.multilabel else "accuracy")

    @property
    def multilabel(self) -> bool:
        return self.y.dim() == 2

    @cached_property
    def score(self) -> _metrics.Score:
        """(logits [M, num_classes], y [M] or [M, T]) -> float, higher is better."""
        return _metrics.score_of(self.metric, self.num_classes)


@dataclass
class NodeDataset(Classified, OneGraph):
    """One graph with node features, targets and a split.

    Attributes:
        edge_index: [2, E] int64, source and destination.
        x: [N, F] float32.
        y: [N] int64 class, -1 where unlabelled; or [N, T] float32 of zeros and ones (multi-label).
        train_mask, val_mask, test_mask: [N] bool, disjoint, only labelled nodes.
        num_classes: classes, or T.
        node_id: [N] int64, each node's id in the source, where `dataset.reorder` gave them other ones.
    """

    edge_index: Tensor
    x: Tensor
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    num_classes: int
    node_id: Tensor | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Attributes of the whole dataset that files keep."""
        return {name: getattr(self, name) for name in FACTS}

    def changed(self, **values: Any) -> NodeDataset:
        """Copy in memory, with other values of some attributes."""
        names = {each.name for each in fields(NodeDataset)} - values.keys()
        return NodeDataset(**{name: getattr(self, name) for name in names}, **values)

    def renumbered(self, order: Tensor) -> NodeDataset:
        """The nodes in another order: node i is then what node `order[i]` [N] was, and `node_id` maps it back."""
        node_id = order if self.node_id is None else self.node_id[order]
        of_nodes = {name: getattr(self, name)[order] for name in ("x", "y", *MASKS)}
        return self.changed(edge_index=order.argsort()[self.edge_index], node_id=node_id, **of_nodes)


def all_for_training(name: str, edge_index: Tensor, x: Tensor | tuple[int, int]) -> NodeDataset:
    """A graph with all nodes of one class and for training, for what needs a graph and features alone.

    Args:
        x: [N, F] features, or the shape of seeded ones.
    """
    import torch

    if isinstance(x, tuple):
        x = torch.randn(x, generator=torch.Generator().manual_seed(0))
    every = torch.ones(len(x), dtype=torch.bool)
    return NodeDataset(name, edge_index, x, (~every).long(), every, ~every, ~every, num_classes=1)


class MappedDataset(NodeDataset):
    """A graph whose arrays are read-only memory maps: what nobody touches is never read.

    Args:
        rowptr: [N + 1] int64, where the in-edges of each node begin.
        col: [E] int32, their sources, ascending for each node.
        others: the attributes of `NodeDataset` but `edge_index`.
    """

    def __init__(self, rowptr: Tensor, col: Tensor, **others: Any) -> None:
        self.rowptr, self.col = rowptr, col
        vars(self).update(others, node_id=None)

    @property
    def num_edges(self) -> int:
        return self.col.numel()

    @cached_property
    def edge_index(self) -> Tensor:  # type: ignore[override]
        """[2, E] int64, by destination; in memory, and only where it is asked for."""
        import torch

        from gnnbench.graph import rows_of

        return torch.stack([self.col.long(), rows_of(self.rowptr, self.num_edges)])

    def graph(self, device: torch.device, layout: CSRBuilder | None = None) -> Graph:
        """The rows as they are, which were checked when the dataset was opened."""
        from gnnbench.graph import Graph

        return Graph(self.rowptr.to(device), self.col.to(device), self.num_nodes, None, layout)
