"""The batches of `neighbors` by DGL's own sampler and loader, in the thread that trains or by processes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from gnnbench.backends.base import Backend
from gnnbench.backends.dgl import Adjacency
from gnnbench.datasets import NodeDataset
from gnnbench.errors import ConfigError
from gnnbench.models import Layer
from gnnbench.training.batching._batch import Batch
from gnnbench.training.batching._neighbors import Neighborhoods

if TYPE_CHECKING:
    from gnnbench.training.batching.neighbors import Config


class Seeds(IterableDataset[Tensor]):
    """Seeds in batches, in an order that is written anew for each epoch, where processes see it too."""

    device = torch.device("cpu")

    def __init__(self, nodes: Tensor, size: int) -> None:
        self.order, self.size = nodes.clone().share_memory_(), size

    def __len__(self) -> int:
        return math.ceil(len(self.order) / self.size)

    def __iter__(self) -> Iterator[Tensor]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(self.order.split(self.size)[first::step])


class DglNeighborhoods(Neighborhoods):
    """Batches of `Neighborhoods`, the same seeds in order, whose neighbours DGL's `NeighborSampler` draws.

    It draws the edges of each layer anew. Epochs are DGL's; what backends are compared on has to be equal, and so
    is ours, as evaluation is.

    Raises:
        ConfigError: the model does not compute on the nodes of each layer alone.
    """

    def __init__(self, config: Config, dataset: NodeDataset, backend: Backend, trims: bool) -> None:
        if not trims:
            raise ConfigError(
                "backend.loader=dgl draws the edges of each layer anew; give batch.trim=true and a model that "
                "takes sources and destinations apart, such as sage, or leave the loader out"
            )
        super().__init__(config.model_copy(update={"prefetch": 0}), dataset, backend, trims)
        from dgl import dataloading

        self.graph = Adjacency(dataset.edge_index, dataset.num_nodes, dataset.num_nodes).graph(loops=False)
        self.graph.ndata.update(x=dataset.x, y=dataset.y)
        self._seeds = Seeds(self.nodes["train"], config.size)
        sampler = dataloading.NeighborSampler(
            [*config.fanouts][::-1], replace=config.replace, prefetch_node_feats=["x"], prefetch_labels=["y"]
        )
        workers = backend.config.loader_workers
        # A generator of its own, or the loader takes a number from torch's, and dropout draws other masks.
        self._loader = dataloading.DataLoader(
            self.graph,
            self._seeds,
            sampler,
            generator=torch.Generator(),
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        import dgl

        self.edges = 0
        self._seeds.order.copy_(order)
        dgl.seed((seed * 1_000_003 + number) % 2**31)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Dataloader CPU affinity")  # cores are the run's to bind
            batches = iter(self._loader)
        for _, _, blocks in batches:
            self.edges += sum(block.num_edges() for block in blocks)
            adj = [Layer(Adjacency.of(block), block.num_dst_nodes()) for block in blocks]
            yield self._of(blocks[0].srcdata["x"], adj, blocks[-1].dstdata["y"])
