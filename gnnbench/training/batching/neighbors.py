"""A step is a sampled neighbourhood of some training nodes; also what `link_neighbors` draws and evaluates by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, TypeAdapter, field_validator
from torch import Tensor
from torch.nn import Module
from torch.profiler import record_function

from gnnbench import models
from gnnbench.backends import isplib
from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Relation, Sample, TypedSample
from gnnbench.config import BatchConfig, Count, Positive, Run
from gnnbench.datasets import NodeDataset, TypedDataset
from gnnbench.errors import BackendUnavailable, ConfigError, OutOfMemory, UnsupportedOp, did_you_mean
from gnnbench.graph import CSRBuilder, Graph
from gnnbench.measure import memory
from gnnbench.results.schema import Binding
from gnnbench.training import layerwise
from gnnbench.training.batching._batch import Batch, DrawnBatches, Setup, count_targets, loss_function, scored
from gnnbench.training.batching._shares import Shares
from gnnbench.training.batching.full import Full, nodes_of, typed, typed_adjacency

CPU = torch.device("cpu")
Fanouts = Annotated[tuple[Annotated[int, Field(ge=-1)], ...], Field(min_length=1)]
FOR_ALL, BY_RELATION = TypeAdapter(Fanouts), TypeAdapter(dict[str, Fanouts])
# (order, seed) of an epoch -> of each batch: features, what convs take beside them, targets, number of edges
Draw = Callable[[Tensor, int], Iterator[tuple[Any, Any, Tensor, int]]]
ESTIMATING = 2**64 - 1  # a seed that no training has
EVALUATION = (
    "exact, on the whole graph or, where that does not fit too, a layer at a time in blocks of nodes; or an "
    "estimate on neighbourhoods that are drawn as in training"
)
ESTIMATED = "metrics are estimates: evaluation is on sampled neighbourhoods, not on the whole graph"
LAYERWISE = (
    "evaluation was a layer at a time (batch.evaluation=layerwise), as the whole graph did not fit in memory"
)


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


class Sampler:
    """Draws neighbourhoods in a graph of one type, and makes of them what a model takes.

    Args:
        config: of a kind with `fanouts` and `replace`.
        rows: the edges of `dataset`, in main memory.
        trims: whether each layer computes only the nodes that later ones gather from.
    """

    def __init__(self, config: Any, dataset: Any, backend: Backend, rows: Graph, trims: bool) -> None:
        self.config, self.dataset, self.backend, self.trims = config, dataset, backend, trims
        self.layout, self.neighbors = backend.layout(), isplib.Neighbors(rows.rowptr, rows.col)

    def draw(self, seeds: Tensor, key: int, places: Tensor | None = None) -> Sample:
        """Draw the neighbourhood of `seeds`, or what the outputs of those at `places` need of it."""
        given = seeds, self.config.fanouts, key
        with record_function("gnnbench::sample"):  # for the profiler, as this is no op of PyTorch
            if places is None:
                return self.neighbors.sample(*given, self.config.replace)
            hops = len(self.config.fanouts) + (not self.trims)  # gcn weights by in-degrees of the last nodes
            return self.neighbors.sample_at(*given, places, hops, self.config.replace)

    def inputs(self, sample: Sample) -> tuple[Any, ...]:
        """Return features and adjacency."""
        x = isplib.rows(self.dataset.x, sample.node).to(self.backend.device)
        return x, sampled_adjacency(self.backend, self.layout, sample, self.trims)


def sampled_adjacency(backend: Backend, layout: CSRBuilder | None, sample: Sample, trims: bool) -> Any:
    """Return what a model takes of a sample: its edges, or a `Layer` for each conv where each is trimmed."""
    if trims:
        return [models.Layer(backend.adjacency(hop, layout), hop.num_rows) for hop in sample.hops()]
    return backend.adjacency(sample.edges, layout)


class TypedSampler:
    """Draws what leads to nodes of one type of every type, and makes of it what a model takes.

    All types and relations are in every batch, some perhaps empty, so that all parameters have gradients.
    """

    def __init__(self, config: Config, dataset: TypedDataset, backend: Backend, model: Any) -> None:
        self.config, self.dataset, self.backend, self.model = config, dataset, backend, model
        self.layout, self.neighbors = backend.layout(), layerwise.neighbors(dataset)
        self.fanouts = by_relation(config.fanouts, dataset)

    def draw(self, seeds: Tensor, key: int, places: Tensor | None = None) -> TypedSample:
        given = {self.dataset.target: seeds}, self.fanouts, key
        with record_function("gnnbench::sample"):  # for the profiler, as this is no op of PyTorch
            if places is None:
                return self.neighbors.sample(*given, replace=self.config.replace)
            at = {self.dataset.target: places}
            return self.neighbors.sample_at(*given, at, len(self.model.convs), replace=self.config.replace)

    def inputs(self, sample: TypedSample) -> tuple[Any, ...]:
        """Return features by type, adjacency, and the relation of each edge where the model joins them."""
        device = self.backend.device
        x = {kind: isplib.rows(self.dataset.x[kind], node).to(device) for kind, node in sample.node.items()}
        return x, *typed_adjacency(self.model, self.backend, self.layout, sample.sizes, sample.edges)


class Neighborhoods(DrawnBatches):
    """Batches of training nodes, each once per epoch, with edges drawn anew.

    Evaluation is exact, on the whole graph, or an estimate from neighbourhoods that are always the same.

    Args:
        theirs: another library's sampler, for epochs; ours is of what backends are compared on, which has to be
            equal, and of evaluation.
    """

    def __init__(self, model: Module, sampler: Sampler | TypedSampler, theirs: Draw | None) -> None:
        self.nodes = nodes_of(sampler.dataset)
        super().__init__(sampler.config, self.nodes["train"])
        self.model, self.sampler, self.theirs = model, sampler, theirs
        self.dataset, self.backend = sampler.dataset, sampler.backend
        self.y, self.score = self.dataset.y, self.dataset.score
        self.target = "class" if self.y.dim() == 1 else "labels"
        self.edges = 0
        self.layerwise = self.config.evaluation == "layerwise"

    @cached_property
    def _whole(self) -> Full:
        if isinstance(self.dataset, TypedDataset):
            return typed(self.model, self.backend, self.dataset)
        return Full(self.dataset, self.backend.adjacency(self.dataset, self.sampler.layout), self.backend.device)

    def by_layers(self, model: Module) -> Tensor:
        if isinstance(self.dataset, TypedDataset):
            return layerwise.TypedLayerwise(model, self.dataset, self.backend)()
        return layerwise.Layerwise(model, self.dataset, self.backend, self._whole.batch.adj)()

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        return super().training(order, seed, number) if self.theirs is None else self._theirs(order, seed, number)

    def _theirs(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        assert self.theirs is not None
        self.edges = 0
        for x, adj, y, edges in self.theirs(order, seed * 1_000_003 + number):
            self.edges += edges
            yield self._of(y, x.to(self.backend.device), adj)

    def outputs(self, model: Module) -> Tensor:
        if self.config.evaluation == "sampled":
            return self._estimates(model, torch.arange(len(self.y)), 0)
        return exact(self, model, lambda given: self._whole.outputs(given))

    def metrics(self, model: Module) -> dict[str, float | None]:
        """The scores of the outputs; estimates of no more than the nodes of the split."""
        if self.config.evaluation != "sampled":
            return super().metrics(model)
        return {
            split: scored(self.score, self._estimates(model, nodes, number), self.y[nodes]) if len(nodes) else None
            for number, (split, nodes) in enumerate(self.nodes.items())
        }

    def _estimates(self, model: Module, nodes: Tensor, number: int) -> Tensor:
        """Estimates [n, C] of the outputs of nodes, one or more, from neighbourhoods that `number` decides."""
        result = torch.empty(len(nodes), self.dataset.num_classes)
        batches = self._batches(nodes, ESTIMATING, number)
        for batch, own in zip(batches, result.split(self.config.size), strict=True):
            own.copy_(batch.outputs(model)[: batch.targets])
        return result

    def _drawn(self, seeds: Tensor, key: int, places: Tensor | None = None) -> Any:
        return self.sampler.draw(seeds, key, places)

    def _places(self, seeds: Tensor, shares: Shares) -> Tensor:
        """Share out by class where there are classes, as nodes of one have more neighbours in common."""
        if self.target != "class":
            return super()._places(seeds, shares)
        return self.y.index_select(0, seeds).argsort(stable=True)[shares.of(len(seeds))]

    def _batch(self, sample: Any, seeds: Tensor, places: Tensor | None) -> Batch:
        y, inputs = self.y.index_select(0, seeds), self.sampler.inputs(sample)
        if places is None or self.shares is None:
            return self._of(y, *inputs)
        self.shares.edges += sample.total - sample.elsewhere
        own, all_ = (count_targets(self.target, some) for some in (y[places], y))
        batch = self.shares.weighted(self._of(y[places], *inputs), own, all_, len(seeds))
        return replace(batch, targets=len(y))

    def _of(self, y: Tensor, x: Any, adj: Any, edge_attr: Tensor | None = None) -> Batch:
        """A batch whose first nodes are its seeds, with their targets y."""
        loss, size = loss_function(self.target, y.to(self.backend.device), self.smoothing), len(y)
        return Batch(x, adj, lambda outputs: loss(outputs[:size]), size, edge_attr=edge_attr)


def exact(batching: Any, model: Module, compute: Callable[[Module], Tensor]) -> Tensor:
    """Outputs of all nodes by `compute` or, where that does not fit in memory, `by_layers` from then on.

    Raises:
        OutOfMemory: it does not fit, and is not possible a layer at a time.
    """
    if not batching.layerwise:
        try:
            return compute(model)
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
    out: Tensor = batching.by_layers(model)
    return out


def by_relation(
    fanouts: Sequence[int] | Mapping[str, Sequence[int]], dataset: TypedDataset
) -> dict[Relation, Sequence[int]]:
    """The fanouts of each relation, of one list for all or of lists by name; ConfigError unless all are named."""
    names = {" ".join(relation): relation for relation in dataset.relations}
    if not isinstance(fanouts, Mapping):
        return dict.fromkeys(dataset.relations, fanouts)
    if unknown := [name for name in fanouts if name not in names]:
        raise ConfigError(
            f"batch.fanouts: {dataset.name} has no relation {unknown[0]!r}{did_you_mean(unknown[0], names)}"
        )
    if missing := [name for name in names if name not in fanouts]:
        raise ConfigError(
            f"batch.fanouts has no numbers for relation {missing[0]!r} of {dataset.name}; give one for each "
            "layer, 0 to draw none of its edges"
        )
    return {relation: fanouts[name] for name, relation in names.items()}


def prepare(
    config: Run, model: Module, backend: Backend, dataset: NodeDataset | TypedDataset, cache: Path | None
) -> Setup:
    """Raises ConfigError where batches do not fit graph or model, else as `bound`."""
    batch, loader, name = config.batch, config.backend.loader, dataset.name
    nodes = int(dataset.train_mask.sum())
    if not 0 < batch.size <= nodes:
        raise ConfigError(
            f"batch.size is {batch.size}, but {name} has {nodes} training nodes; give at most as many"
        )
    bindings, warnings = bound(config, model, backend)
    sampler: Sampler | TypedSampler
    theirs = None
    if isinstance(dataset, TypedDataset):
        if loader != "ours":
            raise ConfigError(
                f"backend.loader={loader} makes batches of one type of nodes, and {name} has several; leave it out"
            )
        sampler = TypedSampler(batch, dataset, backend, model)
    elif isinstance(batch.fanouts, dict):
        raise ConfigError(
            f"batch.fanouts is by relation, and {name} has one type of edges; give one list of numbers"
        )
    else:
        trims = batch.trim and models.is_bipartite(config.model)
        sampler = Sampler(batch, dataset, backend, dataset.graph(CPU, isplib.IsplibKernels()), trims)
        if loader != "ours":
            module = import_module(f"gnnbench.training.batching._{loader}_loader")
            theirs = module.Neighbors(batch, dataset, backend, trims)
    return Setup(Neighborhoods(model, sampler, theirs), bindings, warnings=warnings)


def bound(config: Run, model: Module, backend: Backend) -> tuple[list[Binding], list[str]]:
    """Check that a model can be trained on samples and evaluated, and bind it; how convs were bound, and warnings.

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
    return bindings, [ESTIMATED] * (evaluation == "sampled")
