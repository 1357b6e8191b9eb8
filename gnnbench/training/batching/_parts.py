"""The batch of `parts`: the nodes of this process, with losses, gradients, norms and metrics over those of all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Module

from gnnbench.graph.part import Part, Sums
from gnnbench.partition.part import PartData
from gnnbench.training.batching._batch import Batch, scored
from gnnbench.training.batching._shares import Shares, add_gradients
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


def bind_norms(model: Module, sums: Sums, nodes: int | None = None) -> None:
    """Let the batch norms of `model` normalise by the moments of the rows of all processes.

    Args:
        sums: `Shares` where rows of this process may have a weight.
        nodes: how many rows all have; None where that differs from call to call.
    """
    for _, layer in model.named_modules():
        if type(layer) is BatchNorm1d:
            layer.forward = partial(_forward, layer, sums, nodes)  # type: ignore[method-assign]


def _forward(norm: Any, sums: Sums, nodes: float | None, x: Tensor) -> Tensor:
    if not norm.training and norm.running_mean is not None:
        out: Tensor = BatchNorm1d.forward(norm, x)
        return out
    weight = sums.weight if isinstance(sums, Shares) else 1.0
    if nodes is None:
        nodes = sums.summed(torch.tensor([len(x) * weight], dtype=torch.float64, device=x.device)).item()
    if nodes == 1:
        raise ValueError("batch norm needs the moments of more than one node, but all processes have one")
    x = x if norm.weight is None else x.to(norm.weight.dtype)  # of the parameters, under autocast too
    mean = _Sum.apply(x.sum(0) * weight, sums) / nodes
    centred = x - mean
    variance = _Sum.apply(centred.square().sum(0) * weight, sums) / nodes
    if norm.training and norm.running_mean is not None:
        with torch.no_grad():
            norm.num_batches_tracked += 1
            share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
            norm.running_mean.lerp_(mean, share)
            norm.running_var.lerp_(variance * (nodes / (nodes - 1)), share)
    out = centred * (variance + norm.eps).rsqrt()
    return out if norm.weight is None else torch.addcmul(norm.bias, out, norm.weight)


class _Sum(torch.autograd.Function):
    """The sum over all processes; each depends on what every one of them put in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sums: Sums) -> Tensor:
        ctx.sums = sums
        return sums.summed(x.clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.sums.summed(grad.clone()), None
