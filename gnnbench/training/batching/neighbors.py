"""A step is a sampled neighbourhood of some training nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

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
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.training import layerwise
from gnnbench.training.batching import _neighbors
from gnnbench.training.batching._ahead import DrawnBatches
from gnnbench.training.batching._batch import Batch, Batching, Setup, count_targets, loss_function, scored
from gnnbench.training.batching._shares import Shares
from gnnbench.training.batching.full import Full, nodes_of, typed, typed_adjacency

CPU = torch.device("cpu")
FOR_ALL, BY_RELATION = TypeAdapter(_neighbors.Fanouts), TypeAdapter(dict[str, _neighbors.Fanouts])
ESTIMATING = 2**64 - 1  # a seed that no training has


class Config(BatchConfig):
    """Which neighbourhoods are drawn (Hamilton, Ying & Leskovec 2017)."""

    typed = True
    draws_neighbors = True
    data_parallel = True
    loaders = ("ours", "pyg", "dgl")

    kind: str = "neighbors"
    size: Positive = Field(1024, description="training nodes in a batch; the last one of an epoch may have fewer")
    fanouts: _neighbors.Fanouts | dict[str, _neighbors.Fanouts] = Field(
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
    evaluation: Literal["full", "layerwise", "sampled"] = Field("full", description=_neighbors.EVALUATION)

    @field_validator("fanouts", mode="wrap")
    @classmethod
    def _either(cls, value: Any, _: Any) -> Any:
        """Validate what was given alone: a problem of the union would name both of its types."""
        return (BY_RELATION if isinstance(value, dict) else FOR_ALL).validate_python(value)


class Sampled(DrawnBatches):
    """Batches of training nodes, each once per epoch, with edges drawn anew.

    Evaluation is exact, on the whole graph, or an estimate from neighbourhoods that are always the same.
    """

    def __init__(self, config: Config, dataset: NodeDataset | TypedDataset, backend: Backend) -> None:
        self.nodes = nodes_of(dataset)
        super().__init__(config, self.nodes["train"])
        self.backend, self.layout = backend, backend.layout()
        self.dataset, self.y, self.score = dataset, dataset.y, dataset.score
        self.target = "class" if dataset.y.dim() == 1 else "labels"
        self.edges = 0
        self.layerwise = config.evaluation == "layerwise"

    @cached_property
    @abstractmethod
    def _whole(self) -> Full:
        """The whole graph, for evaluation."""

    @abstractmethod
    def _layers(self, model: Module) -> Tensor:
        """The outputs of all nodes, a layer at a time."""

    @abstractmethod
    def _gathered(self, sample: Any, y: Tensor) -> Batch:
        """A batch whose first nodes are its seeds, with their targets y."""

    def outputs(self, model: Module) -> Tensor:
        if self.config.evaluation == "sampled":
            return self._estimates(model, torch.arange(len(self.y)), 0)
        whole, layers = (lambda: self._whole.outputs(model)), partial(self._layers, model)
        return _neighbors.exact(self, model, whole, layers)

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
        result, done = torch.empty(0), 0
        for batch in self._batches(nodes, ESTIMATING, number):
            own = batch.outputs(model)[: batch.targets].cpu()
            if not done:
                result = own.new_empty(len(nodes), own.size(1))
            result[done : done + len(own)] = own
            done += len(own)
        return result

    def _places(self, seeds: Tensor, shares: Shares) -> Tensor:
        """Share out by class where there are classes, as nodes of one have more neighbours in common."""
        if self.target != "class":
            return super()._places(seeds, shares)
        return self.y.index_select(0, seeds).argsort(stable=True)[shares.of(len(seeds))]

    def _batch(self, sample: Any, seeds: Tensor, places: Tensor | None) -> Batch:
        y = self.y.index_select(0, seeds)
        if places is None or self.shares is None:
            return self._gathered(sample, y)
        self.shares.edges += sample.total - sample.elsewhere
        own, all_ = (count_targets(self.target, some) for some in (y[places], y))
        batch = self.shares.weighted(self._gathered(sample, y[places]), own, all_, len(seeds))
        return replace(batch, targets=len(y))

    def _of(self, x: Any, adj: Any, y: Tensor, edge_attr: Tensor | None = None) -> Batch:
        loss, size = loss_function(self.target, y.to(self.backend.device), self.smoothing), len(y)
        return Batch(x, adj, lambda outputs: loss(outputs[:size]), size, edge_attr=edge_attr)


class Neighborhoods(Sampled):
    """Batches of nodes of one type.

    Args:
        trims: whether each layer computes only the nodes that later ones gather from.
        drawn: another library's sampler, for epochs; ours is of what backends are compared on, which has to be
            equal, and of evaluation.
    """

    def __init__(
        self, config: Config, dataset: NodeDataset, backend: Backend, trims: bool, drawn: _neighbors.Draw | None
    ) -> None:
        super().__init__(config, dataset, backend)
        self.x, self.trims, self.drawn = dataset.x, trims, drawn
        rows = dataset.graph(CPU, isplib.IsplibKernels())
        self.neighbors = isplib.Neighbors(rows.rowptr, rows.col)

    @cached_property
    def _whole(self) -> Full:
        return Full(self.dataset, self.backend.adjacency(self.dataset, self.layout), self.backend.device)

    def _layers(self, model: Module) -> Tensor:
        return layerwise.Layerwise(model, self.dataset, self.backend, self._whole.batch.adj)()

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        return super().training(order, seed, number) if self.drawn is None else self._theirs(order, seed, number)

    def _theirs(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        assert self.drawn is not None
        self.edges = 0
        for x, adj, y, edges in self.drawn(order, seed * 1_000_003 + number):
            self.edges += edges
            yield self._of(x.to(self.backend.device), adj, y)

    def _drawn(self, seeds: Tensor, key: int, places: Tensor | None = None) -> Sample:
        return _neighbors.sampled(self.neighbors, seeds, self.config, key, places, self.trims)

    def _gathered(self, sample: Sample, y: Tensor) -> Batch:
        x = isplib.rows(self.x, sample.node).to(self.backend.device)
        return self._of(x, _neighbors.sampled_adjacency(self.backend, self.layout, sample, self.trims), y)


class TypedNeighborhoods(Sampled):
    """Batches of nodes of one type, with what leads to them of every type.

    All types and relations are in every batch, some perhaps empty, so that all parameters have gradients.
    """

    def __init__(self, config: Config, model: Any, dataset: TypedDataset, backend: Backend) -> None:
        super().__init__(config, dataset, backend)
        self.model, self.fanouts = model, by_relation(config.fanouts, dataset)
        self.neighbors = layerwise.neighbors(dataset)

    @cached_property
    def _whole(self) -> Full:
        return typed(self.model, self.backend, self.dataset)

    def _layers(self, model: Module) -> Tensor:
        return layerwise.TypedLayerwise(model, self.dataset, self.backend)()

    def _drawn(self, seeds: Tensor, key: int, places: Tensor | None = None) -> TypedSample:
        given, replace = ({self.dataset.target: seeds}, self.fanouts, key), self.config.replace
        with record_function("gnnbench::sample"):  # for the profiler, as this is no op of PyTorch
            if places is None:
                return self.neighbors.sample(*given, replace=replace)
            part = {self.dataset.target: places}
            return self.neighbors.part(*given, part, len(self.model.convs), replace=replace)

    def _gathered(self, sample: TypedSample, y: Tensor) -> Batch:
        device = self.backend.device
        x = {kind: isplib.rows(self.dataset.x[kind], node).to(device) for kind, node in sample.node.items()}
        adj, edge_type = typed_adjacency(self.model, self.backend, self.layout, sample.sizes, sample.edges)
        return self._of(x, adj, y, edge_type)


def by_relation(
    fanouts: Sequence[int] | Mapping[str, Sequence[int]], dataset: TypedDataset
) -> dict[Relation, Sequence[int]]:
    """The fanouts of each relation, of one list for all or of lists by the names of all.

    Raises:
        ConfigError: a name that is no relation's, or a relation without fanouts.
    """
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
    """Raises ConfigError where batches do not fit graph or model, else as `_neighbors.prepared`."""
    nodes = int(dataset.train_mask.sum())
    if not 0 < config.batch.size <= nodes:
        raise ConfigError(
            f"batch.size is {config.batch.size}, but {dataset.name} has {nodes} training nodes; "
            "give at most as many"
        )
    return _neighbors.prepared(config, model, backend, partial(_batches, config, model, backend, dataset))


def _batches(config: Run, model: Module, backend: Backend, dataset: NodeDataset | TypedDataset) -> Batching:
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
    trims, drawn = config.batch.trim and models.is_bipartite(config.model), None
    if config.backend.loader != "ours":
        loader = import_module(f"gnnbench.training.batching._{config.backend.loader}_loader")
        drawn = loader.Neighbors(config.batch, dataset, backend, trims)
    return Neighborhoods(config.batch, dataset, backend, trims, drawn)
