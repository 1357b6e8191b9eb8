"""The batches of `graphs` by PyG's own loader, as its examples make them: in the thread that trains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from gnnbench.backends.base import Backend
from gnnbench.datasets import GraphsDataset
from gnnbench.graph.union import Union
from gnnbench.train.batching import _loss
from gnnbench.train.batching._batch import Batch
from gnnbench.train.batching._graphs import Graphs

if TYPE_CHECKING:
    from gnnbench.train.batching.graphs import Config


class PygLoader(Graphs):
    """The same graphs in the same order, collated by `torch_geometric.loader.DataLoader`."""

    def __init__(self, config: Config, dataset: GraphsDataset, union: Union, backend: Backend) -> None:
        super().__init__(config.model_copy(update={"prefetch": 0}), dataset, union, backend)
        nodes, edges = dataset.graph_ptr.diff().tolist(), dataset.edge_ptr.diff().tolist()
        columns = (
            dataset.x.split(nodes),
            dataset.edge_index.long().split(edges, dim=1),
            dataset.y.split(nodes if dataset.per_node else 1),
        )
        self._data = [Data(x=x, edge_index=edge_index, y=y) for x, edge_index, y in zip(*columns, strict=True)]

    def _batches(self, order: Tensor) -> Iterator[Batch]:
        device, target = self.backend.device, self.dataset.target
        batches = [graphs.tolist() for graphs in order.split(self.config.size)]
        for data in DataLoader(self._data, batch_sampler=batches):
            data = data.to(device)
            segments = None if self.dataset.per_node else (data.batch, data.num_graphs)
            yield Batch(
                data.x, data.edge_index, _loss.function(target, data.y), _loss.count(target, data.y), segments
            )
