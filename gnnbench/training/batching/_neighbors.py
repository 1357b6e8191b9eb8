"""Batches of sampled neighbourhoods, the same ones on every backend."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.profiler import record_function

from gnnbench.backends import isplib
from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Sample, TypedSample
from gnnbench.datasets import NodeDataset, TypedDataset
from gnnbench.errors import OutOfMemory
from gnnbench.graph import CSRBuilder
from gnnbench.measure import memory
from gnnbench.models import Layer
from gnnbench.training import layerwise
from gnnbench.training.batching._batch import Batch, count_targets, loss_function, scored
from gnnbench.training.batching._drawn import DrawnBatches
from gnnbench.training.batching.full import Full, nodes_of

if TYPE_CHECKING:
    from gnnbench.training.batching._shares import Shares
    from gnnbench.training.batching.neighbors import Config

Drawn = TypeVar("Drawn", Sample, TypedSample)
Outputs = Callable[[], Tensor]
CPU = torch.device("cpu")
LAYERWISE = (
    "evaluation was a layer at a time (batch.evaluation=layerwise), as the whole graph did not fit in memory"
)
EVALUATION = 2**64 - 1  # a seed that no training has


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


def exact(
    batching: Any, model: Module, compute: Callable[[Module], Tensor], layers: Callable[[Module], Outputs]
) -> Tensor:
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
    return layers(model)()


class Sampled(DrawnBatches[Drawn]):
    """Batches of training nodes, each once per epoch, with edges drawn anew.

    Evaluation is exact, on the whole graph, or an estimate from neighbourhoods that are always the same.
    """

    def __init__(self, config: Config, dataset: NodeDataset | TypedDataset, backend: Backend) -> None:
        self.nodes = nodes_of(dataset)
        super().__init__(config, self.nodes["train"])
        self.backend, self.layout = backend, backend.layout()
        self.dataset, self.y = dataset, dataset.y
        self.target = "class" if dataset.y.dim() == 1 else "labels"
        self.edges = 0
        self.layerwise = config.evaluation == "layerwise"

    @cached_property
    @abstractmethod
    def _whole(self) -> Full:
        """The whole graph, for evaluation."""

    @abstractmethod
    def _layers(self, model: Module) -> Outputs:
        """The outputs of all nodes, a layer at a time."""

    @abstractmethod
    def _gathered(self, sample: Drawn, y: Tensor) -> Batch:
        """A batch whose first nodes are its seeds, with their targets y."""

    def outputs(self, model: Module) -> Tensor:
        if self.config.evaluation == "sampled":
            return self.estimates(model, torch.arange(len(self.y)), 0)
        return exact(self, model, lambda model: self._whole.outputs(model), self._layers)

    def scores(self, model: Module, outputs: Tensor) -> dict[str, float | None]:
        outputs = outputs.to(self.y.device)
        return {
            split: scored(self.dataset.score, outputs[nodes], self.y[nodes]) for split, nodes in self.nodes.items()
        }

    def metrics(self, model: Module) -> dict[str, float | None]:
        """The scores of the outputs; estimates of no more than the nodes of the split."""
        return self._estimates(model) if self.config.evaluation == "sampled" else super().metrics(model)

    def _estimates(self, model: Module) -> dict[str, float | None]:
        """Estimate for each part of the split the metric of outputs on sampled neighbourhoods."""
        return {
            split: self._estimate(model, nodes, number) for number, (split, nodes) in enumerate(self.nodes.items())
        }

    def _estimate(self, model: Module, nodes: Tensor, number: int) -> float | None:
        if not len(nodes):
            return None
        return scored(self.dataset.score, self.estimates(model, nodes, number), self.y.index_select(0, nodes))

    def estimates(self, model: Module, nodes: Tensor, number: int) -> Tensor:
        """Estimates [n, C] of the outputs of nodes, one or more, from neighbourhoods that `number` decides."""
        result, done = torch.empty(0), 0
        for batch in self._batches(nodes, EVALUATION, number):
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

    def _batch(self, sample: Drawn, seeds: Tensor, places: Tensor | None) -> Batch:
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


class Neighborhoods(Sampled[Sample]):
    """Batches of nodes of one type.

    Args:
        trims: whether each layer computes only the nodes that later ones gather from.
    """

    def __init__(self, config: Config, dataset: NodeDataset, backend: Backend, trims: bool) -> None:
        super().__init__(config, dataset, backend)
        self.x, self.trims = dataset.x, trims
        rows = dataset.graph(CPU, isplib.IsplibKernels())
        self.neighbors = isplib.Neighbors(rows.rowptr, rows.col)

    @cached_property
    def _whole(self) -> Full:
        return Full(self.dataset, self.backend.adjacency(self.dataset, self.layout), self.backend.device)

    def _layers(self, model: Module) -> layerwise.Layerwise:
        return layerwise.Layerwise(model, self.dataset, self.backend, self._whole.batch.adj)

    def _drawn(self, seeds: Tensor, key: int, places: Tensor | None = None) -> Sample:
        return sampled(self.neighbors, seeds, self.config, key, places, self.trims)

    def _gathered(self, sample: Sample, y: Tensor) -> Batch:
        x = isplib.rows(self.x, sample.node).to(self.backend.device)
        return self._of(x, sampled_adjacency(self.backend, self.layout, sample, self.trims), y)
