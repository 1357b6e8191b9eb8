"""Ops against their peers: checked, then timed in interleaved rounds, and held against the machine's ceilings.

ops          the ops, what is true of them, and the ceilings of the machine
peers        their implementations; dgl_child is run by the interpreter that has DGL
contest      how they meet, whatever they compute: checked, weighed, timed in turn, and checked again
suites       everything on a GPU, the most important first
layers       of PyG, by the drop-in beside their own code
collate draws   batches of many graphs; of sampled neighbourhoods, and of pairs that are no edges
records      what is written
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from gnnbench import backends
from gnnbench.backends.base import KernelBackend
from gnnbench.benchmarks import ops, peers
from gnnbench.benchmarks.contest import CPU, FILE, Contestant, made, measured, race, unknown
from gnnbench.benchmarks.ops import DIRECTIONS, OPS, Case, Reference, of_configurations
from gnnbench.benchmarks.peers import Dgl, DglCase, Implementation
from gnnbench.benchmarks.records import BF16, Bench, Ceilings, Row, Size
from gnnbench.config import BackendConfig
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable, ConfigError
from gnnbench.graph import CSRBuilder, Graph
from gnnbench.measure import memory
from gnnbench.measure.rounds import Budget
from gnnbench.ops._workload import Direction


@dataclass(frozen=True)
class Grid:
    """Grid of cases: every width with every number of heads, or every shape, in every direction.

    Raises:
        ConfigError: an unknown op or peer, a backend without kernels, a width that cannot be split among heads, or
            a shape with other numbers than the op has sizes.
    """

    op: str
    widths: Sequence[int] = (16, 32, 64, 128, 256)
    heads: Sequence[int] = (1,)
    against: Sequence[str] = ()  # peers; those of the op if empty
    backward: bool = False
    weighted: bool = False
    backend: str = "isplib"
    shapes: Sequence[str] = ()  # such as "820x300x600", for ops that take no graph; those of the op if empty

    def __post_init__(self) -> None:
        problems = unknown("op", [self.op], OPS) + unknown("peer", self.against, peers.names())
        kinds = backends.with_kernels()
        if self.backend not in kinds:
            problems.append(f"backend {self.backend!r} has no kernels; allowed: {', '.join(kinds)}")
        problems += [f"{size} is no width or number of heads" for size in (*self.widths, *self.heads) if size < 1]
        if not problems:
            problems += self._misfits()
        if problems:
            raise ConfigError(*problems)

    def _misfits(self) -> list[str]:
        """Sizes that the op cannot have, each in a sentence."""
        op = OPS[self.op]
        if self.shapes and not op.sizes:
            return [f"{self.op} runs on a graph and has no shapes; give widths"]
        if not op.sizes and not (self.widths and self.heads):
            return ["give at least one width and one number of heads"]
        example, each = "x".join(["64"] * len(op.sizes)), " x ".join(op.sizes.values())
        result = [
            f"{shape!r} is no shape of {self.op}; give {each}, such as {example}"
            for shape in self.shapes
            if not re.fullmatch("x".join([r"[1-9]\d*"] * len(op.sizes)), shape)
        ]
        return result + [
            f"a width of {width} cannot be split among {heads} heads"
            for width in self.widths
            for heads in self.heads
            if op.has_heads and op.has_width and width % heads
        ]

    def sizes(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Width, heads and shape of every case."""
        op = OPS[self.op]
        if op.sizes:
            every = self.shapes or op.shapes or of_configurations(self.op)
            return [(split[-1], 1, split) for text in every for split in [tuple(map(int, text.split("x")))]]
        if not op.has_width:
            return [(heads, heads, ()) for heads in self.heads]
        return [(width, heads, ()) for heads in (self.heads if op.has_heads else (1,)) for width in self.widths]

    @property
    def peers(self) -> list[str]:
        """The baselines: those asked for, or the usual ones of the op."""
        return [*(self.against or OPS[self.op].peers or ("torch-csr", "torch-scatter", "dgl"))]

    @property
    def implementations(self) -> list[str]:
        return list(dict.fromkeys((self.backend, *self.peers)))

    @property
    def compared(self) -> list[str]:
        """The baselines of every row; ours too, if bfloat16 is to show what it gains."""
        return self.implementations if self.backend + BF16 in self.peers else self.peers


def bench(
    grid: Grid,
    dataset: NodeDataset | None,
    *,
    out: Path,
    cache: Path,
    dgl_python: str = "",
    memory_limit: str = "90%",
    on_event: Callable[[Bench, str], None] = lambda *_: None,
) -> Bench:
    """Check and time everything in `grid` on one graph; None for an op that takes none.

    What fails becomes a row with its status and reason. `out/bench.json` is written after every case. A stop ends
    the benchmark and keeps what was measured.

    Args:
        cache: where the ceilings of this machine are kept.
        dgl_python: the interpreter that has DGL; empty for this one.
        memory_limit: of this process and of DGL's, each.
        on_event: hears what is about to start, and all that is known.

    Raises:
        GnnbenchError: `out` cannot be written.
    """
    device, layout = CPU, CSRBuilder()  # where this machine cannot run the backend
    with suppress(BackendUnavailable):
        backend = backends.load(BackendConfig(name=grid.backend))
        assert isinstance(backend, KernelBackend)
        device, layout = backend.device, backend.make_kernels()
    graph = dataset.graph(device, layout) if dataset else None
    about: dict[str, Any] = {"op": grid.op, "graph": dataset.name if dataset else ""}
    record = Bench(
        **about,
        backend=grid.backend,
        size=size_of(graph) if graph else None,
        weighted=grid.weighted and bool(OPS[grid.op].weights),
        peers=grid.peers,
        threads=torch.get_num_threads(),
        rows=[
            Row(**about, width=width, heads=heads, shape=[*shape], direction=direction, implementation=each)
            for width, heads, shape in grid.sizes()
            for direction in DIRECTIONS[: 1 + grid.backward]
            for each in grid.implementations
        ],
    )
    benchmark = OpBenchmark(memory.meter(device), partial(on_event, record))

    def steps() -> Iterator[str]:
        """Check and time all implementations of one case after the other."""
        yield "measuring what this machine can do at best"
        record.ceilings = ops.ceilings(cache) if device.type == "cpu" else ops.copying(device)
        benchmark.ceilings = record.ceilings
        limit = memory.limit_bytes(memory_limit)
        dgl = {"dgl": partial(Dgl, dgl_python, graph, limit)} if graph and "dgl" in grid.implementations else {}
        others = made(dgl, record.rows)
        record.versions = {name: other.version for name, other in others.items()}
        for (width, heads, *shape), rows in groupby(record.rows, lambda row: (row.width, row.heads, *row.shape)):
            case = Case(grid.op, graph, width, heads, weighted=grid.weighted, shape=tuple(shape), device=device)
            yield f"{case.name}, {case.label}"
            makers: dict[str, Callable[[], Implementation]] = {
                name: partial(peers.local, name, case) for name in grid.implementations if name not in dgl
            }
            makers |= {name: partial(DglCase, other, case) for name, other in others.items()}
            checked = benchmark.run(case, makers, rows, grid.compared)
            record.checked_rows = min(checked, record.checked_rows or checked)

    return measured(record, steps(), out / FILE, on_event=benchmark.say, memory_limit=memory_limit, device=device)


def size_of(graph: Graph) -> Size:
    """The size of a graph, as in a record."""
    longest = int(graph.degree.max())
    return Size(nodes=graph.num_rows, edges=graph.num_edges, max_degree=longest, symmetric=graph.is_symmetric)


@dataclass
class OpBenchmark:
    """How an op is measured."""

    meter: memory.Meter
    say: Callable[[str], Any]  # is told what is about to start
    budget: Budget | None = None
    ceilings: Ceilings | None = None  # of the machine, once they are known

    def run(
        self,
        case: Case,
        makers: Mapping[str, Callable[[], Implementation]],
        rows: Iterable[Row],
        against: Sequence[str],
    ) -> int:
        """Check and time in every direction of `rows`, which learn it; how many destinations were checked."""
        rows = list(rows)
        truth, ready = Reference(case), made(makers, rows)
        for direction, some in groupby(rows, lambda row: row.direction):
            assert direction != "epoch"
            by_name = {row.implementation: row for row in some}
            contestants = {
                name: Contestant(
                    partial(each.time, direction),
                    partial(_wrong, each, truth, direction),
                    partial(each.memory, direction, self.meter),
                )
                for name, each in ready.items()
            }
            label = f"{case.name} {direction}, {case.label}"
            race(contestants, by_name, against, self.say, label, self.budget)
            for row in by_name.values():
                if row.time_s:
                    self._conclude(row, row.time_s.median, direction, case)
        return truth.rows

    def _conclude(self, row: Row, seconds: float, direction: Direction, case: Case) -> None:
        row.gather_bytes_per_s = case.gathered_bytes / seconds or None
        row.flop_per_s = case.flop(direction) / seconds or None
        if (ceiling := self.ceilings) and not row.rounds:
            traffic, gathered = case.compulsory(direction)
            limits = (
                (traffic, ceiling.stream_bytes_per_s),
                (gathered, ceiling.gather_bytes_per_s),
                (case.flop(direction), ceiling.flop_per_s),
            )
            row.roofline_fraction = max(amount / speed for amount, speed in limits if speed) / seconds


def _wrong(implementation: Implementation, truth: Reference, direction: Direction, row: Row) -> str:
    """How far what it computes is from the truth, if too far.

    In bfloat16 a peer that accumulates in it is timed however imprecise it is, and its row says so.
    """
    row.reason = row.reason or implementation.note
    outputs = implementation.outputs(direction, truth.grad_out)
    if not implementation.is_checked:
        return ""
    error, tolerance = truth.error(direction, outputs, row.rounds), truth.tolerance(row.rounds)
    if row.time_s:
        tolerance = max(tolerance, 2 * (row.error or 0.0))
    else:
        row.error = error
    if error <= tolerance:
        return ""
    reason = f"differs from float64 by {error:.2g}, more than {tolerance:g}"
    if row.time_s or implementation.is_exact or truth.case.dtype != torch.bfloat16 or not math.isfinite(error):
        return reason
    row.reason = reason
    return ""
