"""A step is the whole graph, of which each of several processes has a part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gnnbench.config import BatchConfig, Count
from gnnbench.errors import ConfigError
from gnnbench.training.batching._batch import Setup

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import Run
    from gnnbench.datasets import NodeDataset
    from gnnbench.graph import CSRBuilder
    from gnnbench.partition.part import PartData


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


def read(config: Run) -> NodeDataset | None:
    """The part of this process in `batch.folder`; None without a folder.

    Raises:
        ConfigError: nodes are to be put in another order than they have there.
        DatasetError: another number of parts or another dataset, or a part that is missing or was altered.
    """
    if not config.batch.folder:
        return None
    import torch.distributed as dist

    from gnnbench.partition import files

    if config.dataset.reorder != "none":
        raise ConfigError("nodes have the order of the parts in batch.folder; leave dataset.reorder out")
    return files.load(Path(config.batch.folder), dist.get_rank(), dist.get_world_size(), config.dataset)


def prepare(config: Run, model: Module, backend: Backend, dataset: NodeDataset, cache: Path | None) -> Setup:
    """Every process calls it; it keeps of the dataset no more than its part.

    Raises:
        ConfigError: the backend runs PyG's own code.
        UnsupportedOp: the backend cannot run this model exactly.
        WorkerLost: another process ended.
    """
    from gnnbench import convs
    from gnnbench.backends.base import KernelBackend
    from gnnbench.graph.part import Exchange, Part
    from gnnbench.training.batching._norms import bind_norms
    from gnnbench.training.batching._parts import Parts

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
    import torch
    import torch.distributed as dist

    from gnnbench.graph.part import communicating
    from gnnbench.partition import part

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
