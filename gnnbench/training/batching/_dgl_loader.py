"""The batches of `neighbors` by DGL's own sampler and loader, in the thread that trains or by processes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import dgl
import torch
from dgl import dataloading
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from gnnbench.backends.base import Backend
from gnnbench.backends.dgl import Adjacency
from gnnbench.datasets import NodeDataset
from gnnbench.errors import ConfigError
from gnnbench.models import Layer


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


class Neighbors:
    """Neighbourhoods of seeds in the order given, drawn by DGL's `NeighborSampler`, the edges of each layer anew.

    Raises:
        ConfigError: the model does not compute on the nodes of each layer alone.
    """

    def __init__(self, config: Any, dataset: NodeDataset, backend: Backend, trims: bool) -> None:
        if not trims:
            raise ConfigError(
                "backend.loader=dgl draws the edges of each layer anew; give batch.trim=true and a model that "
                "takes sources and destinations apart, such as sage, or leave the loader out"
            )
        graph = Adjacency(dataset.edge_index, dataset.num_nodes, dataset.num_nodes).graph(loops=False)
        graph.ndata.update(x=dataset.x, y=dataset.y)
        self._seeds = Seeds(dataset.train_mask.nonzero().flatten(), config.size)
        sampler = dataloading.NeighborSampler(
            [*config.fanouts][::-1], replace=config.replace, prefetch_node_feats=["x"], prefetch_labels=["y"]
        )
        workers = backend.config.loader_workers
        # A generator of its own, or the loader takes a number from torch's, and dropout draws other masks.
        self._loader = dataloading.DataLoader(
            graph,
            self._seeds,
            sampler,
            generator=torch.Generator(),
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def __call__(self, order: Tensor, seed: int) -> Iterator[tuple[Any, Any, Tensor, int]]:
        self._seeds.order.copy_(order)
        dgl.seed(seed % 2**31)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Dataloader CPU affinity")  # cores are the run's to bind
            batches = iter(self._loader)
        for _, _, blocks in batches:
            adj = [Layer(Adjacency.of(block), block.num_dst_nodes()) for block in blocks]
            edges = sum(block.num_edges() for block in blocks)
            yield blocks[0].srcdata["x"], adj, blocks[-1].dstdata["y"], edges
