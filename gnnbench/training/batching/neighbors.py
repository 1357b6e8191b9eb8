"""A step is a sampled neighbourhood of some training nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, TypeAdapter, field_validator

from gnnbench.config import BatchConfig, Count, Positive
from gnnbench.errors import BackendUnavailable, ConfigError, UnsupportedOp
from gnnbench.training.batching._batch import Setup

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import Run
    from gnnbench.datasets import NodeDataset, TypedDataset
    from gnnbench.results.schema import Binding
    from gnnbench.training.batching._batch import Batching

Fanout = Annotated[int, Field(ge=-1)]
Fanouts = Annotated[tuple[Fanout, ...], Field(min_length=1)]
FOR_ALL, BY_RELATION = TypeAdapter(Fanouts), TypeAdapter(dict[str, Fanouts])
EVALUATION = (
    "exact, on the whole graph or, where that does not fit too, a layer at a time in blocks of nodes; or an "
    "estimate on neighbourhoods that are drawn as in training"
)
ESTIMATED = "metrics are estimates: evaluation is on sampled neighbourhoods, not on the whole graph"


class Config(BatchConfig):
    """Which neighbourhoods are drawn (Hamilton, Ying & Leskovec 2017)."""

    typed = True
    draws_neighbors = True
    data_parallel = True
    loaders = ("ours", "pyg", "dgl")

    kind: str = "neighbors"
    size: Positive = Field(1024, description="training nodes in a batch; the last one of an epoch may have fewer")
    fanouts: Fanouts | dict[str, Fanouts] = Field(
        (10, 10),
        description="in-edges drawn of each node, for each layer from the last; -1: all; or a list by relation",
    )
    replace: bool = Field(False, description="whether an edge may be drawn more than once")
    shuffle: bool = Field(True, description="draw another order in every epoch")
    trim: bool = Field(
        True,
        description="compute in each layer only the nodes that later ones gather from, in all models but gcn and "
        "agnn, whose convs do not take sources and destinations apart, and those of several types",
    )
    prefetch: Count = Field(1, description="batches that a thread makes ahead; 0: none, and no thread")
    evaluation: Literal["full", "layerwise", "sampled"] = Field("full", description=EVALUATION)

    @field_validator("fanouts", mode="wrap")
    @classmethod
    def _either(cls, value: Any, _: Any) -> Any:
        """Validate what was given alone: a problem of the union would name both of its types."""
        return (BY_RELATION if isinstance(value, dict) else FOR_ALL).validate_python(value)


def prepare(
    config: Run, model: Module, backend: Backend, dataset: NodeDataset | TypedDataset, cache: Path | None
) -> Setup:
    """Raises ConfigError where batches do not fit graph or model, BackendUnavailable without compiled kernels."""
    check_fanouts(config)
    nodes = int(dataset.train_mask.sum())
    if not 0 < config.batch.size <= nodes:
        raise ConfigError(
            f"batch.size is {config.batch.size}, but {dataset.name} has {nodes} training nodes; "
            "give at most as many"
        )
    check_sampler(config)
    bindings = bound(config, model, backend)
    return Setup(_batches(config, model, backend, dataset), bindings, warnings=estimated(config.batch))


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


def _batches(config: Run, model: Module, backend: Backend, dataset: NodeDataset | TypedDataset) -> Batching:
    from gnnbench import models
    from gnnbench.datasets import TypedDataset
    from gnnbench.training.batching._neighbors import Neighborhoods
    from gnnbench.training.batching._typed_neighbors import TypedNeighborhoods

    if isinstance(dataset, TypedDataset):
        if config.backend.loader != "ours":
            raise ConfigError(
                f"backend.loader={config.backend.loader} makes batches of one type of nodes, and {dataset.name} "
                "has several; leave it out"
            )
        return TypedNeighborhoods(config.batch, model, dataset, backend)
    if isinstance(config.batch.fanouts, dict):
        raise ConfigError(
            f"batch.fanouts is by relation, and {dataset.name} has one type of edges; give one list of numbers"
        )
    batches = Neighborhoods
    if config.backend.loader == "pyg":
        from gnnbench.training.batching._pyg_loader import PygNeighborhoods as batches
    elif config.backend.loader == "dgl":
        from gnnbench.training.batching._dgl_loader import DglNeighborhoods as batches
    trims = config.batch.trim and models.is_bipartite(config.model)
    return batches(config.batch, dataset, backend, trims)


def check_fanouts(config: Run) -> None:
    """Raises ConfigError unless there is a fanout for each layer of the model."""
    given = config.batch.fanouts
    by_name = {f" of {name!r}": each for name, each in given.items()} if isinstance(given, dict) else {"": given}
    for name, fanouts in by_name.items():
        if len(fanouts) != config.model.layers:
            raise ConfigError(
                f"batch.fanouts{name} is {list(fanouts)}, but the model has {config.model.layers} layers; give "
                "one number for each"
            )


def check_sampler(config: Run) -> None:
    """Raises BackendUnavailable without compiled kernels."""
    from gnnbench.backends import isplib

    if reasons := isplib.Backend.unavailable():
        raise BackendUnavailable(
            f"batch.kind={config.batch.kind} needs the sampler of backend isplib: {'; '.join(reasons)}"
        )
