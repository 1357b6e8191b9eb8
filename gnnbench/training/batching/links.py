"""A step is some links and negatives, scored on an encoding of the whole graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gnnbench.config import BatchConfig, Count, Positive
from gnnbench.training.batching import full
from gnnbench.training.batching._batch import Setup

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import Run
    from gnnbench.datasets import LinksDataset


class LinksConfig(BatchConfig):
    """The keys of every kind of batches of links."""

    links = True
    data_parallel = True

    size: Positive = Field(65536, description="training links in a batch; the last one of an epoch may have fewer")
    negatives: Positive = Field(1, description="pairs that are no links, drawn for each link")
    sampling: Literal["uniform", "corrupt"] = Field(
        "uniform", description="of negatives: both ends; or another destination for the source of each link"
    )
    exclude_edges: bool = Field(True, description="leave edges of the graph, and loops, out of negatives")
    drop_target_links: bool = Field(False, description="take the links of a batch out of its graph of messages")
    shuffle: bool = Field(True, description="draw another order in every epoch")


class Config(LinksConfig):
    """How links are put into batches."""

    kind: str = "links"
    prefetch: Count = Field(0, description="batches that a thread makes ahead; 0: none, and no thread")

    @property
    def repeats(self) -> bool:
        return not self.drop_target_links


def prepare(config: Run, model: Module, backend: Backend, dataset: LinksDataset, cache: Path | None) -> Setup:
    """Raises UnsupportedOp where the backend cannot run this model."""
    from gnnbench.training.batching._links import Links

    if config.batch.drop_target_links:
        bindings = backend.bind(model)
        return Setup(Links(config.batch, dataset, backend, backend.adjacency(dataset, backend.layout())), bindings)
    prepared = backend.prepare(model, dataset)
    batching = Links(config.batch, dataset, backend, prepared.adj, prepared.x)
    return Setup(batching, prepared.bindings, *full.tuned(prepared, model, backend, cache))
