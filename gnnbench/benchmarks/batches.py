"""Fields of rows and records that benchmarks of batches share, and how they and layers are gone through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from pydantic import Field

from gnnbench.benchmarks.records import Benchmark, CellStatus, Time
from gnnbench.datasets import GraphsDataset, NodeDataset
from gnnbench.measure import code, environment, memory
from gnnbench.results import files
from gnnbench.results.schema import Ratio, Record

SIZES = (64, 256, 1024)
CPU = torch.device("cpu")


class BatchRow(Record):
    """One implementation at one batch size; figures are None where status is not ok."""

    batch_size: int
    implementation: str
    status: CellStatus = "pending"
    reason: str = Field("", description="one sentence where status is not ok")
    time_s: Time | None = None
    ratio: dict[str, Ratio | None] = Field({}, description="by peer; its time over this one's")

    @property
    def backend(self) -> str:
        """The backend whose kernels ran, or the peer."""
        return self.implementation


class BatchBench(Benchmark):
    """Everything known about one benchmark of batches."""

    status: Literal["ok", "interrupted"] = "interrupted"
    op: str
    graph: str = Field(description="the dataset's label, with what is synthetic")
    nodes: int = Field(description="of all graphs")
    edges: int = Field(description="of all graphs; an undirected edge counts twice")
    features: int
    peers: list[str]


B = TypeVar("B", bound=Benchmark)


def facts(dataset: NodeDataset | GraphsDataset) -> dict[str, Any]:
    """The fields of a record that say what is measured and where."""
    return {
        "graph": dataset.label,
        "nodes": dataset.num_nodes,
        "edges": dataset.num_edges,
        "environment": environment.describe(),
        "code": code.digest(),
    }


def measured(
    record: B,
    steps: Iterable[str],
    *,
    out: Path,
    memory_limit: str,
    on_event: Callable[[str], None],
    device: torch.device = CPU,
) -> B:
    """`record` with its rows measured by `steps`, which say what each does before it.

    `out/bench.json` is written after every step, and on a stop.

    Raises:
        GnnbenchError: memory is exceeded, or `out` cannot be written.
    """
    try:
        with memory.limited(memory_limit, device):
            for step in steps:
                files.save_json(record, out / "bench.json")
                on_event(step)
        record.status = "ok"
    except KeyboardInterrupt:
        pass
    files.save_json(record, out / "bench.json")
    return record
