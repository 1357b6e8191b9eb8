"""Ops against their peers: checked, then timed in interleaved rounds, and held against the machine's ceilings.

ops peers    the ops and their other implementations
contest      how they meet, whatever they compute: checked, weighed, timed in turn, and checked again
op_benchmark       one op on one graph, held against float64
workloads suites   the cells and graphs of a suite, and how it runs
layers       of PyG, by the drop-in beside their own code
collate sample negatives   batches of many graphs, of sampled neighbourhoods, and of pairs that are no edges
ceilings     what this machine could do at most
dgl dgl_child             DGL, in another Python interpreter
records      what is written
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import torch

from gnnbench import backends
from gnnbench.backends.base import KernelBackend
from gnnbench.benchmarks import ceilings, peers
from gnnbench.benchmarks.contest import made, measured
from gnnbench.benchmarks.dgl import Dgl, DglCase
from gnnbench.benchmarks.op_benchmark import OpBenchmark
from gnnbench.benchmarks.ops import OPS, Case, of_configurations
from gnnbench.benchmarks.records import BF16, Bench, Row, Size
from gnnbench.config import BackendConfig
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable, ConfigError, UnsupportedOp, did_you_mean
from gnnbench.graph import Graph
from gnnbench.measure import memory
from gnnbench.measure.rounds import Budget
from gnnbench.ops._workload import Direction


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
    layout = grid.loaded.make_kernels() if grid.loaded else None
    graph, name = (dataset.graph(grid.device, layout), dataset.name) if dataset else (None, "")
    record = Bench(
        op=grid.op,
        backend=grid.backend,
        graph=name,
        size=size_of(graph) if graph else None,
        weighted=grid.weighted and bool(OPS[grid.op].weights),
        peers=grid.peers,
        threads=torch.get_num_threads(),
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
    hear = partial(on_event, record)
    dgl = partial(_dgl, grid, graph, dgl_python, memory.limit_bytes(memory_limit))
    steps = _steps(grid, graph, record, OpBenchmark(memory.meter(grid.device), budget, hear), cache, dgl)
    path = out / "bench.json"
    return measured(record, steps, path, on_event=hear, memory_limit=memory_limit, device=grid.device)


def _steps(
    grid: Grid, graph: Graph | None, record: Bench, benchmark: OpBenchmark, cache: Path, dgl: Callable[[], Dgl]
) -> Iterator[str]:
    """Check and time all implementations of one case after the other."""
    yield "measuring what this machine can do at best"
    device = grid.device
    record.ceilings = ceilings.find(cache) if device.type == "cpu" else ceilings.copying(device)
    benchmark.ceilings = record.ceilings
    others = made({"dgl": dgl} if "dgl" in grid.implementations else {}, record.rows)
    record.versions = {name: other.version for name, other in others.items()}
    for (width, heads, *shape), rows in groupby(record.rows, lambda row: (row.width, row.heads, *row.shape)):
        case = Case(grid.op, graph, width, heads, weighted=grid.weighted, shape=tuple(shape), device=device)
        yield f"{case.name}, {case.label}"
        makers: dict[str, Callable[[], peers.Implementation]] = {
            name: partial(peers.local, name, case) for name in grid.implementations if name != "dgl"
        }
        makers |= {name: partial(DglCase, other, case) for name, other in others.items()}
        checked = benchmark.run(case, makers, rows, grid.compared)
        record.checked_rows = min(checked, record.checked_rows or checked)


def _dgl(grid: Grid, graph: Graph | None, python: str, memory_bytes: int) -> Dgl:
    if graph is None:
        raise UnsupportedOp(grid.op, ["DGL is asked for ops on a graph only"])
    if graph.device.type != "cpu":
        raise BackendUnavailable("DGL is measured on the CPU only")
    return Dgl(python, graph, memory_bytes)


def size_of(graph: Graph) -> Size:
    """The size of a graph, as in a record."""
    return Size(
        nodes=graph.num_rows,
        edges=graph.num_edges,
        max_degree=int(graph.degree.max()),
        symmetric=graph.is_symmetric,
    )
