"""Batches of links on sampled neighbourhoods of their ends, the same ones on every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module

from gnnbench.backends import isplib
from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Sample
from gnnbench.datasets import LinksDataset
from gnnbench.training import layerwise
from gnnbench.training.batching._links import DrawnPairs, Links
from gnnbench.training.batching._neighbors import exact, sampled, sampled_adjacency

if TYPE_CHECKING:
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

    def outputs(self, model: Module) -> Tensor:
        """The vectors of all nodes, exact or each of a sampled neighbourhood, which is always the same."""
        if self.config.evaluation != "sampled":
            return exact(self, model, super().outputs, self._layers)
        of_seeds = []
        for key, seeds in enumerate(torch.arange(self.dataset.num_nodes).split(self.config.size)):
            sample = sampled(self.neighbors, seeds, self.config, key, None, self.trims)
            of_seeds.append(model(*self._of_nodes(sample))[: len(seeds)])
        return torch.cat(of_seeds)

    def _layers(self, model: Module) -> layerwise.Layerwise:
        return layerwise.Layerwise(model, self.dataset, self.backend, self.adj)

    def _drawn(self, chosen: Tensor, key: int, places: Tensor | None = None) -> DrawnPairs:
        pairs, part = self._pairs(chosen, key), None
        seeds, ends = pairs.nodes.unique(return_inverse=True)
        pairs = pairs._replace(nodes=ends)
        if places is not None:
            pairs = self._own(pairs, places)
            part, ends = pairs.nodes.unique(return_inverse=True)
            pairs = pairs._replace(nodes=ends)
        sample = sampled(self.neighbors, seeds, self.config, key, part, self.trims)
        if self.config.drop_target_links:
            sample = self._without(sample, self.links[:, chosen])
        return DrawnPairs(pairs, sample)

    def _inputs(self, drawn: DrawnPairs, chosen: Tensor) -> tuple[Any, Any, int]:
        assert drawn.sample is not None
        return *self._of_nodes(drawn.sample), drawn.sample.row.numel()

    def _of_nodes(self, sample: Sample) -> tuple[Tensor, Any]:
        x = isplib.rows(self.dataset.x, sample.node).to(self.backend.device)
        return x, sampled_adjacency(self.backend, self.layout, sample, self.trims)

    def _without(self, sample: Sample, links: Tensor) -> Sample:
        """Return the sample without edges that are links [2, P], in either direction."""
        keys, ends = self.dataset.keys, sample.node[sample.edges.edge_index]
        kept = ~torch.isin(keys(ends), keys(torch.cat([links, links.flip(0)], 1)))
        counts = [int(of_hop.sum()) for of_hop in kept.split(sample.num_edges)]
        edges = {name: getattr(sample, name)[kept] for name in ("row", "col", "edge")}
        return sample._replace(**edges, num_edges=counts)
