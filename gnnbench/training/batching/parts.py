"""A step is the whole graph, of which each of several processes has a part."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor
from torch.nn import Module

from gnnbench import convs
from gnnbench.backends.base import Backend, KernelBackend
from gnnbench.config import BatchConfig, Count, Run
from gnnbench.datasets import NodeDataset
from gnnbench.errors import ConfigError
from gnnbench.graph import CSRBuilder
from gnnbench.graph.part import Exchange, Part, communicating
from gnnbench.partition import part
from gnnbench.partition.part import PartData
from gnnbench.training.batching._batch import Batch, Setup, scored
from gnnbench.training.batching._shares import add_gradients, bind_norms
from gnnbench.training.batching.full import Full

BF16_TOLERANCE = 2e-2  # relative error, of eight bits of precision


class Config(BatchConfig):
    """How the nodes of a graph are shared out."""

    distributed = True

    kind: str = "parts"
    method: Literal["auto", "metis", "random", "contiguous"] = Field(
        "auto",
        description="metis where its package is installed, otherwise contiguous; few edges between parts; the "
        "same number of nodes in each; or ranges of ids",
    )
    seed: Count = Field(0, description="of metis and random")
    folder: str = Field("", description="of parts that `gnnbench partition` wrote, in place of method and seed")
    halo: Literal["float32", "bf16"] = Field(
        "float32", description="in which features of other parts travel, and their gradients; bf16 is not exact"
    )

    @property
    def tolerance(self) -> float | None:
        return BF16_TOLERANCE if self.halo == "bf16" else None


class Parts(Full):
    """One part of a graph.

    Attributes:
        targets: training nodes of all processes.
        sent_bytes, received_bytes: features and their gradients in the latest epoch.
    """

    reduction = "sum"
    sent_bytes = received_bytes = 0

    def __init__(self, data: PartData, graph: Part, x: Tensor) -> None:
        super().__init__(data, graph, graph.device, x)
        assert data.node_id is not None
        self.graph, self.metric, self.node_id = graph, data.metric, data.node_id.to(graph.device)
        count = torch.tensor([len(self.nodes["train"])], device=graph.device)
        self.targets = int(graph.exchange.summed(count))

    @property
    def share(self) -> dict[str, int | None]:
        traffic = {"sent_bytes": self.sent_bytes, "received_bytes": self.received_bytes}
        graph = self.graph
        return {"nodes": graph.num_rows, "halo_nodes": graph.exchange.halo, "edges": graph.num_edges, **traffic}

    def epoch(self, seed: int, number: int) -> Iterator[Batch]:
        exchange = self.graph.exchange
        exchange.sent_bytes = exchange.received_bytes = 0
        yield self.batch
        self.sent_bytes, self.received_bytes = exchange.sent_bytes, exchange.received_bytes

    def watch(self, phase: Callable[[str], AbstractContextManager[None]]) -> None:
        self.graph.exchange.phase = phase

    def loss(self, logits: Tensor) -> Tensor:
        """The share of these nodes in the mean over training nodes of all processes."""
        return super().loss(logits) / (self.targets * math.prod(self.y.shape[1:]))

    def added(self, model: Module, loss: Tensor) -> Tensor:
        return add_gradients(model, loss, self.graph.exchange)

    def whole(self, x: Tensor) -> Tensor:
        rows, node_id = self.graph.exchange.gathered(x), self.graph.exchange.gathered(self.node_id)
        return torch.empty_like(rows).index_copy_(0, node_id, rows)

    def scores(self, model: Module, outputs: Tensor) -> dict[str, float | None]:
        """Compute metrics from counts where they are ratios; else all outputs of the split are gathered."""
        return {split: self._score(outputs[nodes], self.y[nodes]) for split, nodes in self.nodes.items()}

    def _score(self, logits: Tensor, y: Tensor) -> float | None:
        exchange = self.graph.exchange
        if (counts := COUNTS.get(self.metric)) is None:
            return scored(self.score, exchange.gathered(logits), exchange.gathered(y))
        hits, total = exchange.summed(torch.stack(counts(logits, y)).double()).tolist()
        return hits / total if total else None


def _hits(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    right = logits.argmax(-1) == y
    return right.sum(), torch.full_like(y, 1).sum()


def _yes(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    yes, truth = logits > 0, y > 0
    return 2 * (yes & truth).sum(), yes.sum() + truth.sum()


# Metrics of `gnnbench.datasets` as a numerator and a denominator, each a sum over nodes.
COUNTS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {"accuracy": _hits, "micro-F1": _yes}


def read(config: Run) -> NodeDataset | None:
    """The part of this process in `batch.folder`; None without a folder.

    Raises:
        ConfigError: nodes are to be put in another order than they have there.
        DatasetError: another number of parts or another dataset, or a part that is missing or was altered.
    """
    if not config.batch.folder:
        return None
    if config.dataset.reorder != "none":
        raise ConfigError("nodes have the order of the parts in batch.folder; leave dataset.reorder out")
    return part.load(Path(config.batch.folder), dist.get_rank(), dist.get_world_size(), config.dataset)


def prepare(config: Run, model: Module, backend: Backend, dataset: NodeDataset, cache: Path | None) -> Setup:
    """Every process calls it; it keeps of the dataset no more than its part.

    Raises:
        ConfigError: the backend runs PyG's own code.
        UnsupportedOp: the backend cannot run this model exactly.
        WorkerLost: another process ended.
    """
    if not isinstance(backend, KernelBackend):
        raise ConfigError(
            f"batch.kind=parts runs convs on kernels, which backend {backend.name!r} has none of; "
            "choose isplib, reference or cuda"
        )
    if not backend.config.dropout:
        raise ConfigError("batch.kind=parts draws dropout by a hash; leave backend.dropout out")
    kernels, device = backend.make_kernels(), backend.device
    data, warnings = _share(config.batch, dataset, kernels if device.type == "cpu" else None)
    narrow = config.batch.halo == "bf16"
    exchange = Exchange(data.offsets, data.halo.to(device), narrow=narrow)
    graph = Part.of(data.rowptr.to(device), data.col.to(device), exchange, kernels)
    x = data.x.to(device)
    bindings = convs.bind(model, kernels, **backend.rewrites(), first_node=data.begin)
    bind_norms(model, exchange)
    convs.warm(model, graph, x)
    return Setup(Parts(data, graph, x), bindings, warnings=warnings)


def _share(config: Config, dataset: NodeDataset, layout: CSRBuilder | None) -> tuple[PartData, list[str]]:
    """The part of this process, and what is to be said of parts; where nodes go is decided by the first one."""
    if isinstance(dataset, part.PartData):
        return dataset, []
    method, warnings = part.chosen(config.method)
    rank, size = dist.get_rank(), dist.get_world_size()
    assignment = torch.zeros(dataset.num_nodes, dtype=torch.int64)
    if rank == 0 and size > 1:
        graph = dataset.graph(torch.device("cpu"), layout)
        assignment = part.assign(graph, size, method, config.seed)
    with communicating():
        dist.broadcast(assignment, 0)
    return part.split(dataset, assignment, rank, size, layout=layout), warnings
