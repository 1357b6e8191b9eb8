"""A step is the disjoint union of some of many small graphs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from gnnbench.config import BatchConfig, Count, Positive
from gnnbench.errors import ConfigError
from gnnbench.training.batching._batch import Setup

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import Run
    from gnnbench.datasets import GraphsDataset


class Config(BatchConfig):
    """How graphs are put into batches."""

    graphs = True
    data_parallel = True
    loaders = ("ours", "pyg")

    kind: str = "graphs"
    size: Positive = Field(64, description="graphs in a batch; the last one of an epoch may have fewer")
    shuffle: bool = Field(True, description="draw another order in every epoch")
    prefetch: Count = Field(1, description="batches that a thread makes ahead; 0: none, and no thread")


def prepare(config: Run, model: Module, backend: Backend, dataset: GraphsDataset, cache: Path | None) -> Setup:
    """Raises ConfigError where the readout does not give the targets, UnsupportedOp where the backend cannot."""
    from gnnbench.backends import isplib
    from gnnbench.graph.union import Union
    from gnnbench.training.batching._graphs import Graphs

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
        backend.layout() or (isplib.cpu_layout() if backend.device.type == "cpu" else None),
        rows=backend.sorts,
    )
    batches = Graphs
    if config.backend.loader == "pyg":
        from gnnbench.training.batching._pyg_loader import PygLoader as batches
    edge_attr = None if getattr(model, "embed_edges", None) is None else dataset.edge_attr
    return Setup(batches(config.batch, dataset, union, backend, edge_attr), bindings)
