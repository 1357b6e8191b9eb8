"""A step is some links and negatives, scored on a sampled neighbourhood of their ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gnnbench.config import Count, Positive
from gnnbench.training.batching import neighbors
from gnnbench.training.batching._batch import Setup
from gnnbench.training.batching.links import LinksConfig

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import Run
    from gnnbench.datasets import LinksDataset


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


def prepare(config: Run, model: Module, backend: Backend, dataset: LinksDataset, cache: Path | None) -> Setup:
    """Raises ConfigError where fanouts do not fit the model, BackendUnavailable without compiled kernels."""
    from gnnbench import models
    from gnnbench.training.batching._link_neighbors import LinkNeighborhoods

    neighbors.check_fanouts(config)
    neighbors.check_sampler(config)
    trims = models.is_bipartite(config.model)
    bindings = neighbors.bound(config, model, backend)
    batching = LinkNeighborhoods(config.batch, dataset, backend, trims)
    return Setup(batching, bindings, warnings=neighbors.estimated(config.batch))
