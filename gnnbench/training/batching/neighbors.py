"""A step is a sampled neighbourhood of some training nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from gnnbench.config import BatchConfig, Count, Positive
from gnnbench.errors import BackendUnavailable, ConfigError, UnsupportedOp
from gnnbench.training.batching._batch import Setup

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import Run
    from gnnbench.datasets import NodeDataset
    from gnnbench.results.schema import Binding

Fanout = Annotated[int, Field(ge=-1)]
EVALUATION = (
    "exact, on the whole graph or, where that does not fit too, a layer at a time in blocks of nodes; or an "
    "estimate on neighbourhoods that are drawn as in training"
)
ESTIMATED = "metrics are estimates: evaluation is on sampled neighbourhoods, not on the whole graph"


class Config(BatchConfig):
    """Which neighbourhoods are drawn (Hamilton, Ying & Leskovec 2017)."""

    draws_neighbors = True
    data_parallel = True

    kind: str = "neighbors"
    size: Positive = Field(1024, description="training nodes in a batch; the last one of an epoch may have fewer")
    fanouts: tuple[Fanout, ...] = Field(
        (10, 10), min_length=1, description="in-edges drawn of each node, for each layer from the last; -1: all"
    )
    replace: bool = Field(False, description="whether an edge may be drawn more than once")
    shuffle: bool = Field(True, description="draw another order in every epoch")
    trim: bool = Field(
        True,
        description="compute in each layer only the nodes that later ones gather from, in all models but gcn and "
        "agnn, whose convs do not take sources and destinations apart",
    )
    prefetch: Count = Field(1, description="batches that a thread makes ahead; 0: none, and no thread")
    evaluation: Literal["full", "layerwise", "sampled"] = Field("full", description=EVALUATION)


def prepare(config: Run, model: Module, backend: Backend, dataset: NodeDataset, cache: Path | None) -> Setup:
    """Raises ConfigError where batches do not fit graph or model, BackendUnavailable without compiled kernels."""
    from gnnbench import models
    from gnnbench.training.batching._neighbors import Neighborhoods

    check_fanouts(config)
    nodes = int(dataset.train_mask.sum())
    if not 0 < config.batch.size <= nodes:
        raise ConfigError(
            f"batch.size is {config.batch.size}, but {dataset.name} has {nodes} training nodes; "
            "give at most as many"
        )
    check_sampler(config)
    batches = Neighborhoods
    if config.backend.loader == "pyg":
        from gnnbench.training.batching._pyg_loader import PygNeighborhoods as batches
    trims = config.batch.trim and models.is_bipartite(config.model)
    bindings = bound(config, model, backend)
    return Setup(batches(config.batch, dataset, backend, trims), bindings, warnings=estimated(config.batch))


def bound(config: Run, model: Module, backend: Backend) -> list[Binding]:
    """How the convs of a model are bound; raises UnsupportedOp where it cannot be evaluated as it is asked to."""
    from gnnbench.training import layerwise

    bindings = backend.bind(model)
    if config.batch.evaluation == "layerwise" and (reasons := layerwise.unsupported(model, backend)):
        raise UnsupportedOp(f"batch.evaluation=layerwise on backend {backend.name!r}", reasons)
    return bindings


def estimated(config: Any) -> list[str]:
    """Say of metrics what is to be known of them."""
    return [ESTIMATED] * (config.evaluation == "sampled")


def check_fanouts(config: Run) -> None:
    """Raises ConfigError unless there is a fanout for each layer of the model."""
    fanouts = list(config.batch.fanouts)
    if len(fanouts) != config.model.layers:
        raise ConfigError(
            f"batch.fanouts is {fanouts}, but the model has {config.model.layers} layers; give one number for each"
        )


def check_sampler(config: Run) -> None:
    """Raises BackendUnavailable without compiled kernels."""
    from gnnbench.backends import isplib

    if reasons := isplib.Backend.unavailable():
        raise BackendUnavailable(
            f"batch.kind={config.batch.kind} needs the sampler of backend isplib: {'; '.join(reasons)}"
        )
