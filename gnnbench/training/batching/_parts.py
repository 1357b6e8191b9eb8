"""The batch of `parts`: the nodes of this process, with losses, gradients and metrics over those of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from gnnbench.graph.part import Part
from gnnbench.partition.part import PartData
from gnnbench.training.batching._batch import Batch, scored
from gnnbench.training.batching._shares import add_gradients
from gnnbench.training.batching.full import Full


class Parts(Full):
    """One part of a graph.

    Attributes:
        targets: training nodes of all processes.
        sent_bytes, received_bytes: features and their gradients in the latest epoch.
    """

    sent_bytes = received_bytes = 0

    def __init__(self, data: PartData, graph: Part, x: Tensor) -> None:
        super().__init__(data, graph, graph.device, x)
        assert data.node_id is not None
        self.graph, self.metric, self.node_id = graph, data.metric, data.node_id.to(graph.device)
        count = torch.tensor([len(self.nodes["train"])], device=graph.device)
        self.targets = int(graph.exchange.summed(count))

    @property
    def part(self) -> dict[str, int]:
        traffic = {"sent_bytes": self.sent_bytes, "received_bytes": self.received_bytes}
        sizes = {
            "nodes": self.graph.num_rows,
            "halo_nodes": self.graph.exchange.halo,
            "edges": self.graph.num_edges,
        }
        return sizes | traffic

    def epoch(self, seed: int, number: int) -> Iterator[Batch]:
        exchange = self.graph.exchange
        exchange.sent_bytes = exchange.received_bytes = 0
        yield self.batch
        self.sent_bytes, self.received_bytes = exchange.sent_bytes, exchange.received_bytes

    def watch(self, phase: Callable[[str], AbstractContextManager[None]]) -> None:
        self.graph.exchange.phase = phase

    def loss(self, logits: Tensor) -> Tensor:
        """The share of these nodes in the mean over training nodes of all processes."""
        if self.y.dim() == 1:
            total = F.cross_entropy(logits, self.train_y, reduction="sum", label_smoothing=self.smoothing)
            return total / self.targets
        chosen, y = (tensor.index_select(0, self.nodes["train"]) for tensor in (logits, self.y))
        return F.binary_cross_entropy_with_logits(chosen, y, reduction="sum") / (self.targets * y.size(1))

    def added(self, model: Module, loss: Tensor) -> Tensor:
        return add_gradients(model, loss, self.graph.exchange)

    def whole(self, x: Tensor) -> Tensor:
        rows, node_id = self.graph.exchange.gathered(x), self.graph.exchange.gathered(self.node_id)
        return torch.empty_like(rows).index_copy_(0, node_id, rows)

    def scores(self, model: Module, outputs: Tensor) -> dict[str, float | None]:
        """Compute metrics from counts where they are ratios; else all outputs of the split are gathered."""
        return {part: self._score(outputs[nodes], self.y[nodes]) for part, nodes in self.nodes.items()}

    def _score(self, logits: Tensor, y: Tensor) -> float | None:
        exchange = self.graph.exchange
        if (counts := COUNTS.get(self.metric)) is None:
            return scored(self.score, exchange.gathered(logits), exchange.gathered(y))
        hits, total = exchange.summed(torch.stack(counts(logits, y)).double()).tolist()
        return hits / total if total else None


def _hits(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    right = logits.argmax(-1) == y
    return right.sum(), torch.full_like(y, 1).sum()


def _yes(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    yes, truth = logits > 0, y > 0
    return 2 * (yes & truth).sum(), yes.sum() + truth.sum()


# Metrics of `gnnbench.datasets` as a numerator and a denominator, each a sum over nodes.
COUNTS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {"accuracy": _hits, "micro-F1": _yes}
