"""Fields of rows and records that benchmarks of batches share, and how sizes are gone through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from pydantic import Field

from gnnbench.benchmarks.records import Benchmark, CellStatus, Time
from gnnbench.datasets import AnyDataset
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


B = TypeVar("B", bound=BatchBench)
Race = Callable[[list[Any], int], None]  # checks and times the rows of one batch size


def facts(dataset: AnyDataset) -> dict[str, Any]:
    """The fields of a record that say what is measured and where."""
    return {
        "graph": dataset.label,
        "nodes": dataset.num_nodes,
        "edges": dataset.num_edges,
        "features": dataset.x.size(1),
        "environment": environment.describe(),
        "code": code.digest(),
    }


def measured(
    record: B,
    sizes: Iterable[int],
    prepare: Callable[[], Race],
    *,
    out: Path,
    memory_limit: str,
    on_event: Callable[[str], None],
) -> B:
    """`record` with its rows measured; `out/bench.json` is written after every batch size, and on a stop.

    Raises:
        GnnbenchError: memory is exceeded, or `out` cannot be written.
    """
    try:
        with memory.limited(memory_limit, CPU):
            on_event("sorting the edges")
            race = prepare()
            for size in sizes:
                on_event(f"batches of {size}: checking, then timing")
                race([row for row in record.rows if row.batch_size == size], size)
                files.save_json(record, out / "bench.json")
        record.status = "ok"
    except KeyboardInterrupt:
        pass
    files.save_json(record, out / "bench.json")
    return record
