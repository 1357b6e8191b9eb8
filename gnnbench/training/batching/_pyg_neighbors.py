"""The batches of `neighbors` by PyG's own loader, in the thread that trains, as in its examples, or others."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.sampler import NeighborSampler

from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Sample
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable
from gnnbench.training.batching._batch import Batch
from gnnbench.training.batching._neighbors import Neighborhoods
from gnnbench.training.batching._pyg_loader import Turns

if TYPE_CHECKING:
    from gnnbench.training.batching.neighbors import Config


class PygNeighborhoods(Neighborhoods):
    """Batches of `Neighborhoods`, the same seeds in order, whose neighbours PyG's `NeighborLoader` draws.

    Epochs are PyG's; what backends are compared on has to be equal, and so is ours, as evaluation is.

    Raises:
        BackendUnavailable: PyG's sampler is not installed, or one of ours stands in for it.
    """

    def __init__(self, config: Config, dataset: NodeDataset, backend: Backend, trims: bool) -> None:
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
        super().__init__(config, dataset, backend, trims)
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

    def epoch(self, seed: int, number: int) -> Iterator[Batch]:
        self.edges = 0
        return self.ahead(self._loaded(self.order(seed, number), seed, number), 0)

    def _loaded(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
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
            yield self._of(data.x.to(self.backend.device), sample, data.y[: data.batch_size])
