"""Ops against their peers: checked, then timed in interleaved rounds, and held against the machine's ceilings.

ops peers    the ops and their other implementations
workloads suites   the cells and graphs of a suite, and how it runs
op_benchmark       one op on one graph, checked, then timed
layers       of PyG, by the drop-in beside their own code
collate sample negatives   batches of many graphs, of sampled neighbourhoods, and of pairs that are no edges
ceilings     what this machine could do at most
dgl dgl_child             DGL, in another Python interpreter
records      what is written, and how benchmarks of batches and layers are gone through
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gnnbench import backends
from gnnbench.backends.base import KernelBackend
from gnnbench.benchmarks import ceilings, peers
from gnnbench.benchmarks.dgl import Dgl, DglCase
from gnnbench.benchmarks.op_benchmark import OpBenchmark, Reference, fail
from gnnbench.benchmarks.ops import OPS, Case, of_configurations
from gnnbench.benchmarks.records import BF16, Bench, Row, Size
from gnnbench.config import BackendConfig
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable, ConfigError, UnsupportedOp, did_you_mean
from gnnbench.graph import Graph
from gnnbench.measure import code, environment, memory
from gnnbench.measure.rounds import Budget
from gnnbench.ops._workload import Direction
from gnnbench.results import files


@dataclass(frozen=True)
class Grid:
    """Grid of cases: every width with every number of heads, or every shape, in every direction.

    Attributes:
        against: peers; those of the op if empty.
        shapes: such as "820x300x600", for ops that take no graph; those of the op if empty.

    Raises:
        ConfigError: an unknown op or peer, a backend without kernels, a width that cannot be split among heads, or
            a shape with other numbers than the op has sizes.
    """

    op: str
    widths: Sequence[int] = (16, 32, 64, 128, 256)
    heads: Sequence[int] = (1,)
    against: Sequence[str] = ()
    backward: bool = False
    weighted: bool = False
    backend: str = "isplib"
    shapes: Sequence[str] = ()

    def __post_init__(self) -> None:
        problems = [] if self.op in OPS else [f"unknown op {self.op!r}{did_you_mean(self.op, OPS)}"]
        known, kinds = peers.names(), backends.with_kernels()
        problems += [
            f"unknown peer {name!r}{did_you_mean(name, known)}" for name in self.against if name not in known
        ]
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

    @property
    def on_graph(self) -> bool:
        """Return whether the op takes a graph, not shapes."""
        return not OPS[self.op].sizes

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
    def directions(self) -> tuple[Direction, ...]:
        return ("forward", "backward") if self.backward else ("forward",)

    @property
    def implementations(self) -> list[str]:
        return list(dict.fromkeys((self.backend, *self.peers)))

    @property
    def compared(self) -> list[str]:
        """The baselines of every row; ours too, if bfloat16 is to show what it gains."""
        return self.implementations if self.backend + BF16 in self.peers else self.peers

    @property
    def loaded(self) -> KernelBackend | None:
        """The backend, or None where this machine cannot run it."""
        with suppress(BackendUnavailable):
            result = backends.load(BackendConfig(name=self.backend))
            assert isinstance(result, KernelBackend)
            return result
        return None

    @property
    def device(self) -> torch.device:
        """That of the backend; the CPU where it cannot run."""
        return self.loaded.device if self.loaded else torch.device("cpu")


def bench(
    grid: Grid,
    dataset: NodeDataset | None,
    *,
    out: Path,
    cache: Path,
    dgl_python: str = "",
    memory_limit: str = "90%",
    budget: Budget = Budget(),
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
    backend, device = grid.loaded, grid.device
    layout = backend.make_kernels() if backend else None
    graph, name = None, dataset.name if dataset else ""
    if dataset:
        graph = dataset.graph(device, layout)
    record = Bench(
        op=grid.op,
        backend=grid.backend,
        graph=name,
        size=size_of(graph) if graph else None,
        weighted=grid.weighted and bool(OPS[grid.op].weights),
        peers=grid.peers,
        threads=torch.get_num_threads(),
        environment=environment.describe(),
        code=code.digest(),
        rows=[
            Row(
                op=grid.op,
                graph=name,
                width=width,
                heads=heads,
                shape=[*shape],
                direction=direction,
                implementation=implementation,
            )
            for width, heads, shape in grid.sizes()
            for direction in grid.directions
            for implementation in grid.implementations
        ],
    )
    benchmark = OpBenchmark(memory.meter(device), budget, lambda text: on_event(record, text))
    limit = memory.limit_bytes(memory_limit)
    work = _Benching(grid, graph, record, out / "bench.json", benchmark, dgl_python, limit)
    files.save_json(record, work.path)
    try:
        with memory.limited(memory_limit, device):
            on_event(record, "measuring what this machine can do at best")
            on_cpu = device.type == "cpu"
            record.ceilings = ceilings.find(cache) if on_cpu else ceilings.copying(device)
            work.benchmark.ceilings = record.ceilings
            for width, heads, shape in grid.sizes():
                work.case(width, heads, shape)
        record.status = "ok"
    except KeyboardInterrupt:
        pass
    finally:
        work.close()
    files.save_json(record, work.path)
    return record


def size_of(graph: Graph) -> Size:
    """The size of a graph, as in a record."""
    return Size(
        nodes=graph.num_rows,
        edges=graph.num_edges,
        max_degree=int(graph.degree.max()),
        symmetric=graph.is_symmetric,
    )


@dataclass
class _Benching:
    """The cases of one benchmark and what they share; everything they learn goes into `record`."""

    grid: Grid
    graph: Graph | None
    record: Bench
    path: Path
    benchmark: OpBenchmark
    dgl_python: str
    memory_bytes: int
    dgl: Dgl | Exception | None = None

    def case(self, width: int, heads: int, shape: tuple[int, ...]) -> None:
        """Check and time all implementations of one case."""
        sizes: dict[str, Any] = {"width": width, "heads": heads, "shape": shape, "device": self.grid.device}
        case = Case(self.grid.op, self.graph, weighted=self.grid.weighted, **sizes)
        truth = Reference(case)
        self.record.checked_rows = min(truth.rows, self.record.checked_rows or truth.rows)
        ready: dict[str, peers.Implementation] = {}
        for name in self.grid.implementations:
            rows = [self._row(case, direction, name) for direction in self.grid.directions]
            try:
                ready[name] = self._implementation(name, case)
            except Exception as error:
                for row in rows:
                    fail(row, error)
        for direction in self.grid.directions:
            racing = {name: self._row(case, direction, name) for name in self.grid.implementations}
            self.benchmark.direction(case, truth, direction, ready, racing, self.grid.compared)
            files.save_json(self.record, self.path)

    def close(self) -> None:
        """End DGL's process."""
        if isinstance(self.dgl, Dgl):
            self.dgl.close()

    def _implementation(self, name: str, case: Case) -> peers.Implementation:
        if name != "dgl":
            return peers.local(name, case)
        if self.graph is None:
            raise UnsupportedOp(case.name, ["DGL is asked for ops on a graph only"])
        if self.graph.device.type != "cpu":
            raise BackendUnavailable("DGL is measured on the CPU only")
        if self.dgl is None:
            try:
                self.dgl = Dgl(self.dgl_python, self.graph, self.memory_bytes)
                self.record.versions["dgl"] = self.dgl.version
            except Exception as error:
                self.dgl = error
        if isinstance(self.dgl, Exception):
            raise self.dgl
        return DglCase(self.dgl, case)

    def _row(self, case: Case, direction: Direction, name: str) -> Row:
        key = case.width, case.heads, [*case.shape], direction, name
        return next(
            row
            for row in self.record.rows
            if (row.width, row.heads, row.shape, row.direction, row.implementation) == key
        )
