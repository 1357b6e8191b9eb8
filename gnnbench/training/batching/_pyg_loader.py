"""The batches of `graphs` and of `neighbors` by PyG's own loaders, in the thread that trains or by processes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader, NeighborLoader
from torch_geometric.sampler import NeighborSampler

from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Sample
from gnnbench.datasets import GraphsDataset, NodeDataset
from gnnbench.errors import BackendUnavailable
from gnnbench.graph.union import Union
from gnnbench.training.batching._batch import Batch, count_targets, loss_function
from gnnbench.training.batching._graphs import Graphs
from gnnbench.training.batching._neighbors import Neighborhoods, sampled_adjacency

if TYPE_CHECKING:
    from gnnbench.training.batching.graphs import Config
    from gnnbench.training.batching.neighbors import Config as NeighborsConfig


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
            loss, targets = loss_function(target, data.y, self.smoothing), count_targets(target, data.y)
            yield Batch(data.x, data.edge_index, loss, targets, segments, data.edge_attr)


class PygNeighborhoods(Neighborhoods):
    """Batches of `Neighborhoods`, the same seeds in order, whose neighbours PyG's `NeighborLoader` draws.

    Epochs are PyG's; what backends are compared on has to be equal, and so is ours, as evaluation is.

    Raises:
        BackendUnavailable: PyG's sampler is not installed, or one of ours stands in for it.
    """

    def __init__(self, config: NeighborsConfig, dataset: NodeDataset, backend: Backend, trims: bool) -> None:
        if not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE):
            raise BackendUnavailable(
                "backend.loader=pyg on sampled neighbourhoods needs pyg-lib or torch-sparse, and neither is "
                "installed; see PyG's page on installing them"
            )
        if hasattr(NeighborSampler._sample, "__wrapped__"):
            raise BackendUnavailable(
                "backend.loader=pyg is PyG's own sampler, and gnnbench.patch_pyg() has put ours in its place; "
                "call gnnbench.unpatch_pyg() first"
            )
        super().__init__(config.model_copy(update={"prefetch": 0}), dataset, backend, trims)
        self.data = Data(x=dataset.x, y=dataset.y, edge_index=dataset.edge_index)
        self._turns = Turns()
        workers = backend.config.loader_workers
        self._loader = NeighborLoader(
            self.data,
            config.fanouts,
            batch_size=config.size,
            neighbor_sampler=NeighborSampler(self.data, [*config.fanouts], replace=config.replace),
            sampler=self._turns,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        # Of a loader that garbage collection finds, processes are not told to end, and are waited for.
        weakref.finalize(self, setattr, self._loader, "_iterator", None)

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        self.edges = 0
        self._turns.next = order.tolist()
        state = torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63).get_state()
        batches = None
        while True:
            # With random numbers of its own, or the loader takes some of dropout's.
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                batches = iter(self._loader) if batches is None else batches
                data = next(batches, None)
                state = torch.get_rng_state()
            if data is None:
                return
            self.edges = (self.edges or 0) + data.edge_index.size(1)
            numbers = [data.batch_size, *data.num_sampled_nodes[1:]], data.num_sampled_edges
            row, col = data.edge_index
            sample = Sample(data.n_id, row, col, data.e_id, *numbers)
            adj = sampled_adjacency(self.backend, self.layout, sample, self.trims)
            yield self._of(data.x.to(self.backend.device), adj, data.y[: data.batch_size])
