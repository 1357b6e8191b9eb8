"""Sampled neighbourhoods of nodes and of the ends of links: what both check, draw and evaluate by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor
from torch.nn import Module
from torch.profiler import record_function

from gnnbench.backends import isplib
from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Sample
from gnnbench.config import Run
from gnnbench.errors import BackendUnavailable, ConfigError, OutOfMemory, UnsupportedOp
from gnnbench.graph import CSRBuilder
from gnnbench.measure import memory
from gnnbench.models import Layer
from gnnbench.training import layerwise
from gnnbench.training.batching._batch import Batching, Setup

Fanout = Annotated[int, Field(ge=-1)]
Fanouts = Annotated[tuple[Fanout, ...], Field(min_length=1)]
# (order, seed) of an epoch -> of each batch: features, what convs take beside them, targets, number of edges
Draw = Callable[[Tensor, int], Iterator[tuple[Any, Any, Tensor, int]]]
EVALUATION = (
    "exact, on the whole graph or, where that does not fit too, a layer at a time in blocks of nodes; or an "
    "estimate on neighbourhoods that are drawn as in training"
)
ESTIMATED = "metrics are estimates: evaluation is on sampled neighbourhoods, not on the whole graph"
LAYERWISE = (
    "evaluation was a layer at a time (batch.evaluation=layerwise), as the whole graph did not fit in memory"
)


def prepared(config: Run, model: Module, backend: Backend, batches: Callable[[], Batching]) -> Setup:
    """The setup of batches that are made once the model is bound.

    Raises:
        ConfigError: there is not a fanout for each layer of the model.
        BackendUnavailable: the sampler is not compiled.
        UnsupportedOp: the backend cannot run the model, or it cannot be evaluated as it is asked to.
    """
    given, evaluation = config.batch.fanouts, config.batch.evaluation
    by_name = {f" of {name!r}": each for name, each in given.items()} if isinstance(given, dict) else {"": given}
    for name, fanouts in by_name.items():
        if len(fanouts) != config.model.layers:
            raise ConfigError(
                f"batch.fanouts{name} is {list(fanouts)}, but the model has {config.model.layers} layers; give "
                "one number for each"
            )
    if reasons := isplib.Backend.unavailable():
        raise BackendUnavailable(
            f"batch.kind={config.batch.kind} needs the sampler of backend isplib: {'; '.join(reasons)}"
        )
    bindings = backend.bind(model)
    if evaluation == "layerwise" and (reasons := layerwise.unsupported(model, backend)):
        raise UnsupportedOp(f"batch.evaluation=layerwise on backend {backend.name!r}", reasons)
    return Setup(batches(), bindings, warnings=[ESTIMATED] * (evaluation == "sampled"))


def sampled_adjacency(backend: Backend, layout: CSRBuilder | None, sample: Sample, trims: bool) -> Any:
    """Return what a model takes of a sample: its edges, or a `Layer` for each conv where each is trimmed."""
    if trims:
        return [Layer(backend.adjacency(hop, layout), hop.num_rows) for hop in sample.hops()]
    return backend.adjacency(sample.edges, layout)


def sampled(
    neighbors: isplib.Neighbors, seeds: Tensor, config: Any, key: int, part: Tensor | None, trims: bool
) -> Sample:
    """Draw the neighbourhood of `seeds`, or what the outputs of those at the places `part` need of it."""
    with record_function("gnnbench::sample"):  # for the profiler, as this is no op of PyTorch
        if part is None:
            return neighbors.sample(seeds, config.fanouts, key, config.replace)
        hops = len(config.fanouts) + (not trims)  # gcn weights by in-degrees of the last nodes
        return neighbors.part(seeds, config.fanouts, key, part, hops, config.replace)


def exact(batching: Any, model: Module, compute: Callable[[], Tensor], layers: Callable[[], Tensor]) -> Tensor:
    """Outputs of all nodes, at once or, where that does not fit in memory, a layer at a time from then on.

    Args:
        batching: says by `layerwise` which, and remarks on it.
        compute: does it at once.
        layers: does it a layer at a time.

    Raises:
        OutOfMemory: it does not fit, and is not possible a layer at a time.
    """
    if not batching.layerwise:
        try:
            return compute()
        except Exception as error:
            if not memory.is_exhaustion(error):
                raise
            if reasons := "; ".join(layerwise.unsupported(model, batching.backend)):
                raise OutOfMemory(
                    "evaluation on the whole graph needs more memory than measure.memory_limit leaves, though "
                    "training does not; raise it, or set batch.evaluation to sampled; it is not possible a layer "
                    f"at a time: {reasons}"
                ) from None
        batching.layerwise, batching.remarks = True, [LAYERWISE]
    return layers()
