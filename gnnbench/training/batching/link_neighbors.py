"""A step is some links and negatives, scored on a sampled neighbourhood of their ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Module

from gnnbench import models
from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Sample
from gnnbench.config import Count, Positive, Run
from gnnbench.datasets import LinksDataset
from gnnbench.training import layerwise
from gnnbench.training.batching import neighbors
from gnnbench.training.batching._batch import Setup
from gnnbench.training.batching.links import DrawnPairs, Links, LinksConfig


class Config(LinksConfig):
    """Which neighbourhoods of links are drawn."""

    draws_neighbors = True

    kind: str = "link_neighbors"
    size: Positive = Field(1024, description="training links in a batch; the last one of an epoch may have fewer")
    fanouts: neighbors.Fanouts = Field(
        (10, 10), description="in-edges drawn of each node, for each layer from the last; -1: all"
    )
    replace: bool = Field(False, description="whether an edge may be drawn more than once")
    evaluation: Literal["full", "layerwise", "sampled"] = Field("full", description=neighbors.EVALUATION)
    prefetch: Count = Field(1, description="batches that a thread makes ahead; 0: none, and no thread")


class LinkNeighborhoods(Links):
    """Batches of training links, whose ends and those of their negatives are the seeds of a sample."""

    def __init__(self, config: Config, dataset: LinksDataset, backend: Backend, trims: bool) -> None:
        super().__init__(config, dataset, backend, backend.adjacency(dataset, backend.layout()))
        self.layerwise = config.evaluation == "layerwise"
        self.sampler = neighbors.Sampler(config, dataset, backend, self.graph, trims)

    def outputs(self, model: Module) -> Tensor:
        """The vectors of all nodes, exact or each of a sampled neighbourhood, which is always the same."""
        if self.config.evaluation != "sampled":
            return neighbors.exact(self, model, super().outputs)
        of_seeds = []
        for key, seeds in enumerate(torch.arange(self.dataset.num_nodes).split(self.config.size)):
            inputs = self.sampler.inputs(self.sampler.draw(seeds, key))
            of_seeds.append(model(*inputs)[: len(seeds)])
        return torch.cat(of_seeds)

    def by_layers(self, model: Module) -> Tensor:
        return layerwise.Layerwise(model, self.dataset, self.backend, self.adj)()

    def _drawn(self, chosen: Tensor, key: int, places: Tensor | None = None) -> DrawnPairs:
        pairs, own = self._pairs(chosen, key), None
        seeds, ends = pairs.nodes.unique(return_inverse=True)
        pairs = pairs._replace(nodes=ends)
        if places is not None:
            pairs = self._own(pairs, places)
            own, ends = pairs.nodes.unique(return_inverse=True)
            pairs = pairs._replace(nodes=ends)
        sample = self.sampler.draw(seeds, key, own)
        if self.config.drop_target_links:
            sample = self._without(sample, self.links[:, chosen])
        return DrawnPairs(pairs, sample)

    def _inputs(self, drawn: DrawnPairs, chosen: Tensor) -> tuple[Any, Any, int]:
        assert drawn.sample is not None
        x, adj = self.sampler.inputs(drawn.sample)
        return x, adj, drawn.sample.row.numel()

    def _without(self, sample: Sample, links: Tensor) -> Sample:
        """Return the sample without edges that are links [2, P], in either direction."""
        keys, ends = self.dataset.keys, sample.node[sample.edges.edge_index]
        kept = ~torch.isin(keys(ends), keys(torch.cat([links, links.flip(0)], 1)))
        counts = [int(of_hop.sum()) for of_hop in kept.split(sample.num_edges)]
        edges = {name: getattr(sample, name)[kept] for name in ("row", "col", "edge")}
        return sample._replace(**edges, num_edges=counts)


def prepare(config: Run, model: Module, backend: Backend, dataset: LinksDataset, cache: Path | None) -> Setup:
    """Raises as `neighbors.bound`."""
    bindings, warnings = neighbors.bound(config, model, backend)
    batching = LinkNeighborhoods(config.batch, dataset, backend, models.is_bipartite(config.model))
    return Setup(batching, bindings, warnings=warnings)
