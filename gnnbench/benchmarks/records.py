"""The record of a benchmark: its schema, and the figures that are drawn from samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from gnnbench import stats
from gnnbench.results.schema import Ratio, Record

BF16 = "-bf16"  # after the name of a backend that gathers in it
CellStatus = Literal["pending", "ok", "wrong", "unavailable", "unsupported", "oom", "failed", "not run"]


def backend_of(implementation: str) -> str:
    """An implementation without its options and precision."""
    return implementation.partition(":")[0].removesuffix(BF16)


class Time(Record):
    """Seconds of one call."""

    median: float
    low: float = Field(description="lower end of the 95% bootstrap interval of the median")
    high: float = Field(description="upper end of it")
    samples: list[list[float]] = Field(description="one list per round")


class Measured(Record):
    """One implementation on one case; figures are None where status is not ok."""

    implementation: str
    status: CellStatus = "pending"
    reason: str = Field("", description="one sentence where status is not ok, or what is to be known beside it")
    time_s: Time | None = None
    ratio: dict[str, Ratio | None] = Field({}, description="by peer; its time over this one's")

    @property
    def backend(self) -> str:
        """The backend whose kernels ran, or the peer."""
        return backend_of(self.implementation)


class Weighed(Measured):
    """One implementation of an op, a model or a layer."""

    error: float | None = None
    memory_increase_bytes: int | None = Field(
        None, description="highest memory in one call above that before it; a backward counts with its forward"
    )
    peak_memory_bytes: int | None = Field(None, description="highest memory of the whole process in that call")


class Row(Weighed):
    """One implementation of an op on one case."""

    op: str = Field(description="or the model that is trained, whose direction is epoch")
    graph: str
    width: int = Field(description="channels of all heads together; of a shape the last size")
    shape: list[int] = Field([], description="sizes, of an op that takes no graph")
    heads: int
    dtype: str = "float32"
    direction: Literal["forward", "backward", "epoch"]
    caveat: str = Field("", description="why the times mean nothing; empty if they do")
    error: float | None = Field(None, description="largest difference from float64 over the root mean square")
    gather_bytes_per_s: float | None = Field(None, description="edges x width x bytes of a number, over the time")
    flop_per_s: float | None = Field(None, description="multiplications and additions of a product, over the time")
    roofline_fraction: float | None = Field(
        None, description="time that the machine's ceilings allow over the time; None if unknown, and in bf16"
    )

    @property
    def rounds(self) -> bool:
        """Return whether features were to be rounded to bfloat16 when they were gathered."""
        return self.implementation.endswith(BF16)


class Ceilings(Record):
    """Speeds that this machine reaches at best, with all threads."""

    stream_bytes_per_s: float = Field(description="reading and writing arrays much larger than the caches")
    gather_bytes_per_s: float | None = Field(
        None, description="random cache lines from a table in the L2 cache; None on a GPU"
    )
    flop_per_s: float | None = Field(
        None, description="multiplications and additions of a large product in float32; None if not measured"
    )


class Size(Record):
    """The graph."""

    nodes: int
    edges: int
    max_degree: int
    symmetric: bool


class Benchmark(Record):
    """Fields that the records of all benchmarks have."""

    schema_version: Literal[1] = 1
    status: Literal["ok", "interrupted", "out of budget"] = "interrupted"
    backend: str = Field("isplib", description="whose kernels are compared with the peers")
    environment: dict[str, Any] = Field({}, description="see `gnnbench.measure.environment.describe`")
    code: str = Field("", description="hash of the code that ran, see `gnnbench.measure.code`; empty: not known")
    rows: list[Any]

    @property
    def exit_code(self) -> int:
        """0; 1 if nothing ran; 3 if something that the backend computes is wrong."""
        if any(row.status == "wrong" for row in self.rows if row.backend == self.backend):
            return 3
        return 0 if any(row.status == "ok" for row in self.rows) else 1


class Bench(Benchmark):
    """Everything known about one benchmark of an op."""

    op: str
    graph: str = Field("", description="the dataset's name, which says so of a synthetic graph; empty without one")
    size: Size | None = Field(None, description="None for an op that takes no graph")
    weighted: bool = Field(description="whether edges have values, in spmm and spmm_max")
    peers: list[str]
    threads: int
    ceilings: Ceilings | None = Field(None, description="None where the kernels are not built")
    versions: dict[str, str] = Field({}, description="of peers in another interpreter")
    checked_rows: int | None = Field(
        None, description="destinations whose results were checked, the fewest of all cases"
    )
    rows: list[Row]


class Suite(Benchmark):
    """Everything known about a suite of benchmarks on one device."""

    suite: Literal["gpu"] = "gpu"
    backend: str = "cuda"
    scale: Literal["full", "tiny"]
    device: str = Field(description="the GPU's model, or cpu")
    caveat: str = Field("", description="why times mean nothing; empty if they do")
    ceilings: Ceilings | None = None
    spent_s: float = Field(0.0, description="over all calls that added to this record")
    graphs: dict[str, Size] = Field({}, description="those that were needed so far, by their labels")
    rows: list[Row] = Field([], description="in the order in which they are run")


class OnDataset(Benchmark):
    """Everything known about one benchmark that has more to it than one op."""

    op: str
    graph: str = Field(description="the dataset's label, with what is synthetic")
    nodes: int = Field(description="of all graphs")
    edges: int = Field(description="of all graphs; an undirected edge counts twice")


class BatchRow(Measured):
    """One implementation at one batch size."""

    batch_size: int = Field(description="graphs, pairs or seeds in a batch")
    time_s: Time | None = Field(
        None, description="of one graph, pair or edge of a batch; of a batch where features alone are gathered"
    )


class BatchBench(OnDataset):
    """Everything known about one benchmark of batches."""

    features: int = Field(description="of a node; of one of each type where there are several")
    peers: list[str]


def time_of(samples: Sequence[Sequence[float]]) -> Time:
    """The figures of one implementation's rounds."""
    median, low, high = stats.median_interval(samples)
    return Time(median=median, low=low, high=high, samples=[list(round_) for round_ in samples])


def ratios(rows: Mapping[str, Measured], peers: Sequence[str]) -> None:
    """Set how every row of one case and direction compares with `peers`."""
    for row in rows.values():
        row.ratio = {peer: _ratio(rows[peer], row) for peer in peers}


def _ratio(peer: Measured, row: Measured) -> Ratio | None:
    if peer.time_s is None or row.time_s is None:
        return None
    return Ratio(ratio=1.0, low=1.0, high=1.0) if peer is row else ratio(peer.time_s.samples, row.time_s.samples)


def ratio(baseline: stats.Rounds, ours: stats.Rounds) -> Ratio | None:
    """How many times faster ours is, of samples by round; None if there are none of either."""
    if not baseline or not ours:
        return None
    value, low, high = stats.ratio_interval(baseline, ours)
    return Ratio(ratio=value, low=low, high=high)
