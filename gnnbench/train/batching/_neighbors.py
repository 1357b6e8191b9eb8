"""Batches of sampled neighbourhoods, the same ones on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from gnnbench.backends import isplib
from gnnbench.backends.base import Backend
from gnnbench.datasets import NodeDataset
from gnnbench.graph import Graph
from gnnbench.train.batching import _loss
from gnnbench.train.batching._ahead import SAMPLES, Loader
from gnnbench.train.batching._batch import Batch
from gnnbench.train.batching.full import Full

if TYPE_CHECKING:
    from gnnbench.train.batching.neighbors import Config


class Neighborhoods(Loader):
    """Batches of training nodes, each once per epoch, with edges drawn anew.

    What is drawn depends on seed, epoch and the batch's number alone, so that it is the same on every backend, and
    in a run that is resumed. Evaluation is exact, on the whole graph.
    """

    def __init__(self, config: Config, dataset: NodeDataset, backend: Backend) -> None:
        super().__init__(config, dataset.train_mask.nonzero().flatten())
        self.backend, self.layout = backend, backend.layout()
        self.dataset = dataset
        self.target = "class" if dataset.y.dim() == 1 else "labels"
        rows = Graph.from_edge_index(dataset.edge_index, dataset.num_nodes, layout=isplib.IsplibKernels())
        self.neighbors = isplib.Neighbors(rows.rowptr, rows.col)
        self.x, self.y = dataset.x, dataset.y
        self.edges = 0

    def epoch(self, seed: int, number: int) -> Iterator[Batch]:
        self.edges = 0
        return self.ahead(self._batches(self.order(seed, number), seed, number), self.config.prefetch)

    def metrics(self, model: Module) -> dict[str, float | None]:
        return self._whole.metrics(model)

    def samples(self) -> list[Batch]:
        return [*self._batches(self.shuffled(0, 0)[: SAMPLES * self.config.size], 0, 0)]

    @cached_property
    def _whole(self) -> Full:
        device, layout = self.backend.device, self.layout
        adj = self.backend.adjacency(self.dataset.edge_index.to(device), self.dataset.num_nodes, layout)
        return Full(self.dataset, adj, device)

    def _batches(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        for step, seeds in enumerate(order.split(self.config.size)):
            state = np.random.SeedSequence((seed, number, step)).generate_state(1, np.uint64)
            yield self._batch(seeds, int(state.view(np.int64)[0]))

    def _batch(self, seeds: Tensor, key: int) -> Batch:
        sample = self.neighbors.sample(seeds, self.config.fanouts, key, self.config.replace)
        self.edges = (self.edges or 0) + sample.row.numel()
        device = self.backend.device
        edge_index = torch.stack([sample.row, sample.col]).to(device)
        adj = self.backend.adjacency(edge_index, sample.node.numel(), self.layout)
        loss = _loss.function(self.target, self.y.index_select(0, seeds).to(device))
        x = self.x.index_select(0, sample.node).to(device)
        return Batch(x, adj, lambda outputs: loss(outputs[: seeds.numel()]), seeds.numel())
