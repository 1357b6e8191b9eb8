"""A step is the disjoint union of some of many small graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from gnnbench.config import BatchConfig, Count, Positive
from gnnbench.errors import ConfigError
from gnnbench.train.batching._batch import Batch, Batching, Ready

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import Run
    from gnnbench.datasets import GraphsDataset, NodeDataset
    from gnnbench.graph import Layout
    from gnnbench.graph.union import Union

SAMPLES = 3  # batches that backends are compared on


class Config(BatchConfig):
    """How graphs are put together."""

    kind: str = "graphs"
    size: Positive = Field(64, description="graphs in a batch; the last one of an epoch may have fewer")
    shuffle: bool = Field(True, description="draw another order in every epoch")
    prefetch: Count = Field(1, description="batches that a thread makes ahead; 0: none, and no thread")


class Graphs(Batching):
    """Batches of the training graphs, each graph once per epoch.

    The order of an epoch depends on seed and number alone, so that it is the same on every backend, and in a run
    that is resumed.
    """

    def __init__(self, config: Config, dataset: GraphsDataset, union: Union, backend: Backend) -> None:
        self.config = config
        self.dataset = dataset
        self.union = union
        self.backend = backend
        self.x, self.y = (tensor.to(backend.device) for tensor in (dataset.x, dataset.y))
        self.train = dataset.parts["train"]
        self.steps = -(-len(self.train) // config.size)

    def epoch(self, seed: int, number: int) -> Iterator[Batch]:
        from gnnbench.train.batching._ahead import ahead

        self.loading_s = 0.0
        order = self.train[_permutation(len(self.train), seed, number)] if self.config.shuffle else self.train
        return ahead(self._timed(self._batches(order)), self.config.prefetch)

    def metrics(self, model: Module) -> dict[str, float | None]:
        from gnnbench.train.batching import _loss

        return {
            part: _loss.score(self.dataset.score, self._outputs(model, graphs), self._targets(graphs).cpu())
            for part, graphs in self.dataset.parts.items()
        }

    def samples(self) -> list[Batch]:
        order = self.train[_permutation(len(self.train), 0, 0)]
        return [self._batch(graphs) for graphs in order.split(self.config.size)[:SAMPLES]]

    def _batches(self, order: Tensor) -> Iterator[Batch]:
        return (self._batch(graphs) for graphs in order.split(self.config.size))

    def _batch(self, graphs: Tensor) -> Batch:
        from gnnbench.train.batching import _loss

        y, target = self._targets(graphs), self.dataset.target
        x, adj, segments = self.backend.collate(self.union, graphs, self.x, pooled=not self.dataset.per_node)
        return Batch(x, adj, _loss.function(target, y), _loss.count(target, y), segments)

    def _timed(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        from gnnbench.measure import clock

        while True:
            start = clock.cpu()
            batch = next(batches, None)
            self.loading_s += clock.cpu() - start
            if batch is None:
                return
            yield batch

    def _targets(self, graphs: Tensor) -> Tensor:
        return self.union.gather(graphs, self.y) if self.dataset.per_node else self.y[graphs]

    def _outputs(self, model: Module, graphs: Tensor) -> Tensor:
        import torch

        outputs = [batch.outputs(model).cpu() for batch in self._batches(graphs)]
        return torch.cat(outputs) if outputs else torch.empty(0)


def prepare(
    config: Run, model: Module, backend: Backend, dataset: NodeDataset | GraphsDataset, cache: Path | None
) -> Ready:
    """Raises ConfigError where there is only one graph or no readout, UnsupportedOp where the backend cannot."""
    from gnnbench.datasets import GraphsDataset
    from gnnbench.graph.union import Union

    if not isinstance(dataset, GraphsDataset):
        raise ConfigError(
            f"{dataset.name} is one graph, and batch.kind=graphs is of many; leave batch.kind out to train on it"
        )
    if dataset.per_node != (config.model.readout == "none"):
        targets, remedy = ("nodes", "none") if dataset.per_node else ("whole graphs", "mean")
        raise ConfigError(
            f"{dataset.name} has targets of {targets}, which model.readout={config.model.readout} does not give; "
            f"set model.readout to {remedy}"
        )
    bindings = backend.bind(model)
    union = Union.of(
        dataset.graph_ptr.to(backend.device),
        dataset.edge_ptr.to(backend.device),
        dataset.edge_index.to(backend.device),
        backend.layout() or _fastest(backend.device),
        rows=backend.sorts,
    )
    if config.backend.loader == "pyg":
        from gnnbench.train.batching._pyg_loader import PygLoader

        return Ready(PygLoader(config.batch, dataset, union, backend), bindings)
    return Ready(Graphs(config.batch, dataset, union, backend), bindings)


def _fastest(device: torch.device) -> Layout | None:
    """Who puts graphs together where PyG runs the convs: compiled code, where it is built."""
    from gnnbench.backends import isplib

    return isplib.IsplibKernels() if device.type == "cpu" and not isplib.MISSING else None


def _permutation(count: int, seed: int, number: int) -> Tensor:
    """An order of `count` graphs that depends on seed and epoch alone."""
    import torch

    generator = torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)
    return torch.randperm(count, generator=generator)
