"""The batches of `graphs` by PyG's own loader, in the thread that trains, as in its examples, or by processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from gnnbench.backends.base import Backend
from gnnbench.datasets import GraphsDataset
from gnnbench.graph.union import Union
from gnnbench.training.batching import _loss
from gnnbench.training.batching._batch import Batch
from gnnbench.training.batching._graphs import Graphs

if TYPE_CHECKING:
    from gnnbench.training.batching.graphs import Config


class Turns:
    """Let a loader go through `next`, so that it and its processes last from epoch to epoch."""

    def __init__(self) -> None:
        self.next: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self.next)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.next)


class PygLoader(Graphs):
    """Batches of `Graphs`, the same graphs in the same order, collated by `torch_geometric.loader.DataLoader`."""

    def __init__(
        self, config: Config, dataset: GraphsDataset, union: Union, backend: Backend, edge_attr: Tensor | None
    ) -> None:
        super().__init__(config.model_copy(update={"prefetch": 0}), dataset, union, backend, edge_attr)
        nodes, edges = dataset.graph_ptr.diff().tolist(), dataset.edge_ptr.diff().tolist()
        columns = {
            "x": dataset.x.split(nodes),
            "edge_index": dataset.edge_index.long().split(edges, dim=1),
            "y": dataset.y.split(nodes if dataset.per_node else 1),
        }
        if edge_attr is not None:
            columns["edge_attr"] = edge_attr.split(edges)
        graphs = [Data(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
        self._turns = Turns()
        workers = backend.config.loader_workers
        # A generator of its own, or the loader takes a number from torch's, and dropout draws other masks.
        self._loader = DataLoader(
            graphs,
            batch_sampler=self._turns,
            generator=torch.Generator(),
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def _batches(self, order: Tensor) -> Iterator[Batch]:
        device, target = self.backend.device, self.dataset.target
        self._turns.next = [graphs.tolist() for graphs in order.split(self.config.size)]
        for data in self._loader:
            data = data.to(device)
            segments = None if self.dataset.per_node else (data.batch, data.num_graphs)
            loss, targets = _loss.function(target, data.y, self.smoothing), _loss.count(target, data.y)
            yield Batch(data.x, data.edge_index, loss, targets, segments, data.edge_attr)
