"""Batches of links on sampled neighbourhoods of their ends, the same ones on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.profiler import record_function

from gnnbench.backends import isplib
from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Sample
from gnnbench.datasets import LinksDataset
from gnnbench.training import layerwise
from gnnbench.training.batching._batch import Batch
from gnnbench.training.batching._links import Links
from gnnbench.training.batching._neighbors import exact, sampled_adjacency, share_of

if TYPE_CHECKING:
    from gnnbench.training.batching._shares import Shares
    from gnnbench.training.batching.link_neighbors import Config


class LinkNeighborhoods(Links):
    """Batches of training links, whose ends and those of their negatives are the seeds of a sample.

    Args:
        trims: whether each layer computes only the nodes that later ones gather from.
    """

    def __init__(self, config: Config, dataset: LinksDataset, backend: Backend, trims: bool) -> None:
        super().__init__(config, dataset, backend, backend.adjacency(dataset, backend.layout()))
        self.trims, self.layerwise = trims, config.evaluation == "layerwise"
        self.neighbors = isplib.Neighbors(self.graph.rowptr, self.graph.col)

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        self.edges = 0
        return super().training(order, seed, number)

    def outputs(self, model: Module) -> Tensor:
        """The vectors of all nodes, exact or each of a sampled neighbourhood, which is always the same."""
        if self.config.evaluation != "sampled":
            return exact(self, model, super().outputs, self._layers)
        of_seeds = []
        for key, seeds in enumerate(torch.arange(self.dataset.num_nodes).split(self.config.size)):
            sample = self.neighbors.sample(seeds, self.config.fanouts, key, self.config.replace)
            of_seeds.append(model(*self._inputs(sample))[: len(seeds)])
        return torch.cat(of_seeds)

    def _layers(self, model: Module) -> layerwise.Layerwise:
        return layerwise.Layerwise(model, self.dataset, self.backend, self.adj)

    def _inputs(self, sample: Sample) -> tuple[Tensor, Any]:
        x = self.dataset.x.index_select(0, sample.node).to(self.backend.device)
        return x, sampled_adjacency(self.backend, self.layout, sample, self.trims)

    def _batch(self, chosen: Tensor, key: int, shares: Shares | None) -> Batch:
        pairs = self._pairs(chosen, key)
        seeds, ends = pairs.nodes.unique(return_inverse=True)
        with record_function("gnnbench::sample"):  # for the profiler, as this is no op of PyTorch
            sample = self.neighbors.sample(seeds, self.config.fanouts, key, self.config.replace)
        if self.config.drop_target_links:
            sample = self._without(sample, self.links[:, chosen])
        self.edges = (self.edges or 0) + sample.row.numel()
        if shares is None:
            return self._of(*self._inputs(sample), pairs._replace(nodes=ends), len(chosen))
        own, mine = self._own(pairs._replace(nodes=ends), len(chosen), shares)
        places, ends = own.nodes.unique(return_inverse=True)
        sample = share_of(sample, places, self.config, self.trims)
        shares.edges += sample.row.numel()
        batch = self._of(*self._inputs(sample), own._replace(nodes=ends), mine)
        return shares.weighted(batch, mine, len(chosen), len(chosen))

    def _without(self, sample: Sample, links: Tensor) -> Sample:
        """Return the sample without edges that are links [2, P], in either direction."""
        keys, ends = self.dataset.keys, sample.node[sample.edges.edge_index]
        kept = ~torch.isin(keys(ends), keys(torch.cat([links, links.flip(0)], 1)))
        counts = [int(of_hop.sum()) for of_hop in kept.split(sample.num_edges)]
        edges = {name: getattr(sample, name)[kept] for name in ("row", "col", "edge")}
        return sample._replace(**edges, num_edges=counts)
