"""A step is the disjoint union of some of many small graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import Module
from torch.profiler import record_function

from gnnbench.backends.base import Backend
from gnnbench.config import BatchConfig, Count, Positive, Run
from gnnbench.datasets import GraphsDataset
from gnnbench.errors import ConfigError
from gnnbench.graph.union import Union
from gnnbench.training.batching._batch import SAMPLES, Batch, Loader, Setup, count_targets, loss_function, scored
from gnnbench.training.batching._shares import Shares

# The graphs of every batch -> its features, edges and targets, then what a readout and convs take of them.
Collate = Callable[[Sequence[list[int]]], Iterator[tuple[Any, ...]]]


class Config(BatchConfig):
    """How graphs are put into batches."""

    graphs = True
    data_parallel = True
    loaders = ("ours", "pyg")

    kind: str = "graphs"
    size: Positive = Field(64, description="graphs in a batch; the last one of an epoch may have fewer")
    shuffle: bool = Field(True, description="draw another order in every epoch")
    prefetch: Count = Field(1, description="batches that a thread makes ahead; 0: none, and no thread")


class Graphs(Loader):
    """Batches of the training graphs, each graph once per epoch.

    The order of an epoch depends on seed and number alone, so that it is the same on every backend, and in a run
    that is resumed.

    Args:
        collated: another library's way to put graphs together; None for ours.
    """

    def __init__(
        self,
        config: Config,
        dataset: GraphsDataset,
        union: Union,
        backend: Backend,
        edge_attr: Tensor | None,
        collated: Collate | None,
    ) -> None:
        super().__init__(config, dataset.splits["train"])
        self.dataset, self.union, self.backend, self.collated = dataset, union, backend, collated
        self.x, self.y = (tensor.to(backend.device) for tensor in (dataset.x, dataset.y))
        self.edge_attr = None if edge_attr is None else edge_attr.to(backend.device)

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        return self._batches(order) if self.shares is None else self._shared(order, self.shares)

    def outputs(self, model: Module) -> Tensor:
        outputs = [batch.outputs(model).cpu() for batch in self._batches(torch.arange(self.dataset.num_graphs))]
        return torch.cat(outputs)

    def scores(self, model: Module, outputs: Tensor) -> dict[str, float | None]:
        outputs = outputs.to(self.y.device)
        return {
            split: scored(self.dataset.score, self._of(graphs, outputs).cpu(), self._of(graphs, self.y).cpu())
            for split, graphs in self.dataset.splits.items()
        }

    def samples(self) -> list[Batch]:
        return [self._batch(graphs) for graphs in self.shuffled(0, 0).split(self.config.size)[:SAMPLES]]

    def _batches(self, order: Tensor) -> Iterator[Batch]:
        chosen = order.split(self.config.size)
        if self.collated is None:
            return (self._batch(graphs) for graphs in chosen)
        return (self._made(*parts) for parts in self.collated([graphs.tolist() for graphs in chosen]))

    def _shared(self, order: Tensor, shares: Shares) -> Iterator[Batch]:
        target = self.dataset.target
        for graphs in order.split(self.config.size):
            mine = graphs[shares.of(len(graphs))]
            shares.edges += int(self.dataset.edge_ptr.diff()[mine].sum())
            batch, targets = self._batch(mine), count_targets(target, self._of(graphs, self.y))
            yield shares.weighted(batch, batch.targets, targets, len(graphs))

    def _batch(self, graphs: Tensor) -> Batch:
        pooled = not self.dataset.per_node
        with record_function("gnnbench::collate"):  # for the profiler, as this is no op of PyTorch
            x, adj, *more = self.backend.collate(self.union, graphs, self.x, self.edge_attr, pooled=pooled)
        return self._made(x, adj, self._of(graphs, self.y), *more)

    def _made(self, x: Any, adj: Any, y: Tensor, *more: Any) -> Batch:
        target = self.dataset.target
        return Batch(x, adj, loss_function(target, y, self.smoothing), count_targets(target, y), *more)

    def _of(self, graphs: Tensor, rows: Tensor) -> Tensor:
        """The targets or outputs of some graphs, of those of all."""
        return self.union.gather(graphs, rows) if self.dataset.per_node else rows[graphs]


def prepare(config: Run, model: Module, backend: Backend, dataset: GraphsDataset, cache: Path | None) -> Setup:
    """Raises ConfigError where the readout does not give the targets, UnsupportedOp where the backend cannot."""
    from gnnbench.backends import isplib  # of which validating a configuration needs nothing

    if dataset.per_node != (config.model.readout == "none"):
        targets, remedy = ("nodes", "none") if dataset.per_node else ("whole graphs", "mean")
        raise ConfigError(
            f"{dataset.name} has targets of {targets}, which model.readout={config.model.readout} does not give; "
            f"set model.readout to {remedy}"
        )
    bindings = backend.bind(model)
    union = Union(
        dataset.graph_ptr.to(backend.device),
        dataset.edge_ptr.to(backend.device),
        dataset.edge_index.to(backend.device),
        backend.layout() or (isplib.cpu_layout() if backend.device.type == "cpu" else None),
        rows=backend.sorts,
    )
    edge_attr, collated = None if getattr(model, "embed_edges", None) is None else dataset.edge_attr, None
    if config.backend.loader == "pyg":
        from gnnbench.training.batching import _pyg_loader

        collated = _pyg_loader.Collate(dataset, edge_attr, backend)
    return Setup(Graphs(config.batch, dataset, union, backend, edge_attr, collated), bindings)
