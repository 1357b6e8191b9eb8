"""NodeDataset: one graph to train on, as every source yields it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class NodeDataset:
    """One graph with node features, targets and a split.

    Attributes:
        name: what tables call it; a synthetic graph says so.
        edge_index: [2, E] int64, source and destination.
        x: [N, F] float32.
        y: [N] int64 class, -1 where unlabelled; or [N, T] float32 of zeros and ones (multi-label).
        train_mask, val_mask, test_mask: [N] bool, disjoint, only labelled nodes.
        num_classes: classes, or T.
        metric: name of what `score` returns.
        score: (logits [M, num_classes], y [M] or [M, T]) -> float, higher is better.
        made_up: what of this dataset is not real: any of "graph", "features", "labels", "split".
        notes: sentences that the user should see once.
        node_id: [N] int64, each node's id in the source, where `dataset.reorder` gave them other ones.
    """

    name: str
    edge_index: Tensor
    x: Tensor
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    num_classes: int
    metric: str
    score: Callable[[Tensor, Tensor], float]
    made_up: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    node_id: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def multilabel(self) -> bool:
        return self.y.dim() == 2

    @property
    def label(self) -> str:
        """The name as every table shows it, with what is made up; that of a synthetic graph says so itself."""
        if not self.made_up or "graph" in self.made_up:
            return self.name
        return f"{self.name} ({', '.join(self.made_up)} synthetic)"
