"""Batches of the training graphs, put together by our own collation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module
from torch.profiler import record_function

from gnnbench.backends.base import Backend
from gnnbench.datasets import GraphsDataset
from gnnbench.graph.union import Union
from gnnbench.training.batching._ahead import SAMPLES, Loader
from gnnbench.training.batching._batch import Batch, count_targets, loss_function, scored

if TYPE_CHECKING:
    from gnnbench.training.batching._shares import Shares
    from gnnbench.training.batching.graphs import Config


class Graphs(Loader):
    """Batches of the training graphs, each graph once per epoch.

    The order of an epoch depends on seed and number alone, so that it is the same on every backend, and in a run
    that is resumed.
    """

    def __init__(
        self, config: Config, dataset: GraphsDataset, union: Union, backend: Backend, edge_attr: Tensor | None
    ) -> None:
        super().__init__(config, dataset.parts["train"])
        self.dataset = dataset
        self.union = union
        self.backend = backend
        self.x, self.y = (tensor.to(backend.device) for tensor in (dataset.x, dataset.y))
        self.edge_attr = None if edge_attr is None else edge_attr.to(backend.device)

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        return self._batches(order) if self.shares is None else self._shared(order, self.shares)

    def outputs(self, model: Module) -> Tensor:
        outputs = [batch.outputs(model).cpu() for batch in self._batches(torch.arange(self.dataset.num_graphs))]
        return torch.cat(outputs)

    def scores(self, model: Module, outputs: Tensor) -> dict[str, float | None]:
        outputs = outputs.to(self.y.device)
        return {
            split: scored(self.dataset.score, self._of(graphs, outputs).cpu(), self._of(graphs, self.y).cpu())
            for split, graphs in self.dataset.parts.items()
        }

    def samples(self) -> list[Batch]:
        return [self._batch(graphs) for graphs in self.shuffled(0, 0).split(self.config.size)[:SAMPLES]]

    def _batches(self, order: Tensor) -> Iterator[Batch]:
        return (self._batch(graphs) for graphs in order.split(self.config.size))

    def _shared(self, order: Tensor, shares: Shares) -> Iterator[Batch]:
        target = self.dataset.target
        for graphs in order.split(self.config.size):
            mine = graphs[shares.of(len(graphs))]
            shares.edges += int(self.dataset.edge_ptr.diff()[mine].sum())
            batch, targets = self._batch(mine), count_targets(target, self._of(graphs, self.y))
            yield shares.weighted(batch, batch.targets, targets, len(graphs))

    def _batch(self, graphs: Tensor) -> Batch:
        y, target = self._of(graphs, self.y), self.dataset.target
        pooled = not self.dataset.per_node
        with record_function("gnnbench::collate"):  # for the profiler, as this is no op of PyTorch
            x, adj, *more = self.backend.collate(self.union, graphs, self.x, self.edge_attr, pooled=pooled)
        return Batch(x, adj, loss_function(target, y, self.smoothing), count_targets(target, y), *more)

    def _of(self, graphs: Tensor, rows: Tensor) -> Tensor:
        """The targets or outputs of some graphs, of those of all."""
        return self.union.gather(graphs, rows) if self.dataset.per_node else rows[graphs]
