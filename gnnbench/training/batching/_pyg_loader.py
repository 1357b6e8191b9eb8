"""The batches of `graphs` and of `neighbors` by PyG's own loaders, in the thread that trains or by processes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

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
from gnnbench.training.batching.neighbors import sampled_adjacency


class Collate:
    """Graphs of every batch, the order given, collated by `torch_geometric.loader.DataLoader`."""

    def __init__(self, dataset: GraphsDataset, edge_attr: Tensor | None, backend: Backend) -> None:
        self.device, self.per_node = backend.device, dataset.per_node
        self._turns: list[list[int]] = []  # the next epoch, so that the loader and its processes last
        nodes, edges = dataset.graph_ptr.diff().tolist(), dataset.edge_ptr.diff().tolist()
        columns = {
            "x": dataset.x.split(nodes),
            "edge_index": dataset.edge_index.long().split(edges, dim=1),
            "y": dataset.y.split(nodes if dataset.per_node else 1),
        }
        if edge_attr is not None:
            columns["edge_attr"] = edge_attr.split(edges)
        graphs = [Data(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
        workers = backend.config.loader_workers
        # A generator of its own, or the loader takes a number from torch's, and dropout draws other masks.
        self._loader = DataLoader(
            graphs,
            batch_sampler=self._turns,
            generator=torch.Generator(),
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def __call__(self, batches: Sequence[list[int]]) -> Iterator[tuple[Any, ...]]:
        self._turns[:] = batches
        for data in self._loader:
            data = data.to(self.device)
            segments = None if self.per_node else (data.batch, data.num_graphs)
            yield data.x, data.edge_index, data.y, segments, data.edge_attr


class Neighbors:
    """Neighbourhoods that `NeighborLoader` draws, for seeds in the order given; epochs are PyG's.

    Raises:
        BackendUnavailable: PyG's sampler is not installed, or one of ours stands in for it.
    """

    def __init__(self, config: Any, dataset: NodeDataset, backend: Backend, trims: bool) -> None:
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
        self.backend, self.trims, self._layout = backend, trims, backend.layout()
        self._turns: list[int] = []  # the next epoch, as above
        data = Data(x=dataset.x, y=dataset.y, edge_index=dataset.edge_index)
        workers = backend.config.loader_workers
        self._loader = NeighborLoader(
            data,
            config.fanouts,
            batch_size=config.size,
            neighbor_sampler=NeighborSampler(data, [*config.fanouts], replace=config.replace),
            sampler=self._turns,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        # Of a loader that garbage collection finds, processes are not told to end, and are waited for.
        weakref.finalize(self, setattr, self._loader, "_iterator", None)

    def __call__(self, order: Tensor, seed: int) -> Iterator[tuple[Any, Any, Tensor, int]]:
        self._turns[:] = order.tolist()
        state = torch.Generator().manual_seed(seed % 2**63).get_state()
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
            numbers = [data.batch_size, *data.num_sampled_nodes[1:]], data.num_sampled_edges
            row, col = data.edge_index
            sample = Sample(data.n_id, row, col, data.e_id, *numbers)
            adj = sampled_adjacency(self.backend, self._layout, sample, self.trims)
            yield data.x, adj, data.y[: data.batch_size], data.edge_index.size(1)
