"""What memory and building a Graph cost on this machine, measured once and kept; times predicted from it."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from bisect import bisect_right
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from math import inf, log2
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field, ValidationError
from torch import Tensor

from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.errors import GnnbenchError
from gnnbench.graph import Graph
from gnnbench.measure import clock, code, environment
from gnnbench.ops.kernels import Choice, choice_key
from gnnbench.results import files
from gnnbench.results.schema import Record

VARIABLE = "GNNBENCH_MACHINE"  # "off": the figures of `DEFAULT`
LINE_BYTES = 64  # of a cache line
LINES = (1, 4, 16)  # of the features of a node
TABLES = tuple(1 << bits for bits in (17, 20, 22, 23, 24, 25, 26, 28))  # bytes that are gathered from
PREFETCH = (0, 16, 32)
SHIFTS = (-1, 0, 1, 2, 3)  # of blocks, beside the one whose tile takes half of the second-level cache
MOST_SHIFT = 15  # as the columns of a block are numbered in 16 bits, from one
OPS = ("spmm", "spmm_max")
AT_ONCE = {
    1: 1,
    2: 16,
}  # lines of features that blocks are walked for at once, and lines of those that are measured
PASSES = 2  # over everything, as neighbours on the machine come and go; the least counts
DEGREE = 32  # mean length of rows
MOST_LINES = 1 << 20  # that one measurement gathers
ROUNDS, ROUND_S = (2, 6), 4e-3  # how often each is measured in a pass, and seconds after which the least is enough
BUILDS = 200, 60e-3  # likewise, as these are short
BUILT = 100, 10_000  # edges of Graphs, three to a node
MOST_S = 8.0  # after which others must be using the machine too
STEADY = 1.5  # how far the first time and the last one may lie apart


Distances = tuple[
    tuple[float, float], ...
]  # columns gathered since the last time that this one was, and their share


class Machine(Record):
    """Nanoseconds with all threads, by op: "spmm" or "spmm_max"."""

    __hash__ = object.__hash__  # of predictions that are kept

    threads: int
    gather: dict[str, dict[int, list[list[float]]]] = Field(
        description="of an edge by row, by prefetch distance, for each of `LINES` and `TABLES`"
    )
    blocked: dict[str, dict[int, dict[int, tuple[float, float, float]]]] = Field(
        description="by lines walked at once and shift: copying a line, visiting a row of a block, an edge"
    )
    wake: float = Field(description="of a product that several threads share")
    build: float = Field(description="of building a Graph of hardly any edges and its transpose, with one thread")
    build_edge: float = Field(description="and for each edge")

    def row_ns(self, op: str, prefetch: int, edges: int, lines: int, distances: Distances) -> float:
        """By row: `edges` gathers of so many lines.

        In a table whose rows are all as likely, distances are spread evenly up to its size. So what gathers
        between two distances cost follows from the tables of these sizes.
        """
        ns = before = before_ns = 0.0
        for columns, share in distances:
            table = columns * lines * LINE_BYTES
            table_ns = table * self._gather_ns(op, prefetch, lines, table)
            if share:
                ns += share * max((table_ns - before_ns) / (table - before), 0.0)
            before, before_ns = table, table_ns
        return edges * ns

    def _gather_ns(self, op: str, prefetch: int, lines: int, table: float) -> float:
        """One gather of so many lines from a table of so many bytes."""
        rest = max(lines / LINES[-1], 1.0)  # whatever is beyond the longest that was measured costs the same
        figures = self.gather[op][prefetch]
        right, to_right = _between(TABLES, table)
        upper = min(max(bisect_right(LINES, lines), 1), len(LINES) - 1)
        to_upper = min((lines - LINES[upper - 1]) / (LINES[upper] - LINES[upper - 1]), 1.0)  # a line costs as much
        below, above = (
            figures[i][right - 1] * (1 - to_right) + figures[i][right] * to_right for i in (upper - 1, upper)
        )
        return rest * (below * (1 - to_upper) + above * to_upper)

    def blocked_ns(self, op: str, shift: int, rows: int, cols: int, edges: int, blocks: int, lines: int) -> float:
        """Over so many blocks of columns; `shift` is one of `SHIFTS`."""
        at_once = min(lines, max(self.blocked[op]))
        copy, walk, edge = self.blocked[op][at_once][shift]
        return -(-lines // at_once) * ((rows + cols) * at_once * copy + rows * blocks * walk + edges * edge)


def _between(grid: tuple[int, ...], at: float) -> tuple[int, float]:
    """The upper neighbour of `at` in a grid of rising numbers, and how far towards it `at` is, in logarithms."""
    right = min(max(bisect_right(grid, at), 1), len(grid) - 1)
    low, high = grid[right - 1], grid[right]
    return right, min(max(log2(max(at, 1.0) / low) / log2(high / low), 0.0), 1.0)


DEFAULT = Machine.model_validate_json(Path(__file__).with_suffix(".json").read_bytes())  # of an AMD EPYC (Zen 4)


class Stored(Record):
    """A machine on disk."""

    schema_version: Literal[1] = 1
    facts: dict[str, Any]
    machine: Machine


@cache
def facts() -> dict[str, Any]:
    """What the figures depend on."""
    return {"cpu": environment.cpu(), "isa": os.environ.get("GNNBENCH_ISA", ""), "kernels": code.kernels()}


def path() -> Path:
    """The file of this machine."""
    key = hashlib.sha256(json.dumps(facts(), sort_keys=True).encode()).hexdigest()[:16]
    return _folder() / f"{key}.json"


def _folder() -> Path:
    from gnnbench import datasets

    return datasets.roots().cache / "machine"


@cache
def current() -> Machine:
    """This machine as it was measured, or `DEFAULT` where it was not."""
    if os.environ.get(VARIABLE) == "off":
        return DEFAULT
    if not _folder().exists():  # without hashing the kernels, which takes longer than a small model's forward
        return DEFAULT
    file = path()
    try:
        stored = Stored.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return DEFAULT
    except (OSError, ValidationError) as error:
        problem = getattr(error, "strerror", None) or "it is not a model of a machine"
    else:
        if stored.facts == facts():
            return stored.machine
        problem = "it is of another machine or version"
    warnings.warn(f"{file} is ignored ({problem}): run `gnnbench tune --machine` again", stacklevel=2)
    return DEFAULT


def learn(kernels: BaseKernels, shift: int, *, anew: bool = False) -> Path | None:
    """Measure this machine, which takes a few seconds, unless it is known, and keep the figures.

    A machine that others keep busy is not measured, and nothing is kept.

    Args:
        shift: of blocks whose tile takes half of the second-level cache.
        anew: whether to measure it in any case.

    Returns:
        The file of this machine, if there is one now.
    """
    file = path()
    if not anew and (os.environ.get(VARIABLE) == "off" or current() is not DEFAULT):
        return file if file.exists() else None
    machine = _Measurement(kernels, shift).machine()
    if machine is None:
        return None
    try:
        files.save_json(Stored(facts=facts(), machine=machine), file)
    except GnnbenchError:  # figures that changed from run to run would change results
        return None
    current.cache_clear()
    return file


class _Busy(Exception):
    """Others use this machine too."""


class _Measurement:
    """Times of random graphs and products with them, on all threads."""

    def __init__(self, kernels: BaseKernels, shift: int) -> None:
        self.kernels, self.shift, self.end = kernels, shift, clock.cpu() + MOST_S
        self.generator = torch.Generator().manual_seed(0)
        self.x = torch.ones(TABLES[-1] // 4)
        self.graphs: dict[tuple[int, int, int], Graph] = {}
        self.least: dict[tuple[object, ...], float] = {}  # nanoseconds of every product

    def machine(self) -> Machine | None:
        """The figures, or None where they cannot be trusted."""
        try:
            first = self._check()
            for _ in range(PASSES):
                gather, blocked, wake = self._gather(), self._blocked(), self._wake()
            build, build_edge = self._build()
            again = self._check()
        except _Busy:
            return None
        steady = max(first, again) < STEADY * min(first, again)
        if not steady or build_edge <= 0:
            return None
        return Machine(
            threads=self.kernels.threads,
            gather=gather,
            blocked=blocked,
            wake=wake,
            build=build,
            build_edge=build_edge,
        )

    def _check(self) -> float:
        return self._ns("spmm", self._graph(1 << 13, 1 << 14, 1 << 18), 4, self._row(16))

    def _gather(self) -> dict[str, dict[int, list[list[float]]]]:
        figures = {op: {distance: [[0.0] * len(TABLES) for _ in LINES] for distance in PREFETCH} for op in OPS}
        for (i, lines), (j, table) in product(enumerate(LINES), enumerate(TABLES)):
            edges = min(max(2 * table // LINE_BYTES, 1 << 18), MOST_LINES) // lines
            graph = self._graph(max(edges // DEGREE, 1), table // LINE_BYTES // lines, edges)
            for op, distance in product(OPS, PREFETCH):
                figures[op][distance][i][j] = self._ns(op, graph, lines, self._row(distance)) / edges
        return figures

    def _blocked(self) -> dict[str, dict[int, dict[int, tuple[float, float, float]]]]:
        """Solved from many columns, many rows, and many edges; only an edge depends on the size of blocks."""
        figures: dict[str, dict[int, dict[int, tuple[float, float, float]]]] = {op: {} for op in OPS}
        shapes = [(64, 8, 64), (1 << 14, 4, 12), (1 << 11, 1, 128)]  # rows, blocks, edges of a row to each block
        sizes = [offset for offset in SHIFTS if self.shift + offset <= MOST_SHIFT]
        for op, (at_once, lines) in product(OPS, AT_ONCE.items()):
            work, times = [], []
            for rows, blocks, edges in shapes:
                graph = self._graph(rows, blocks << self.shift, rows * blocks * edges)
                work.append([(rows + graph.num_cols) * at_once, rows * blocks, graph.num_edges])
                times.append(self._blocked_ns(op, graph, at_once, lines, self.shift))
            solved = torch.linalg.solve(torch.tensor(work).double(), torch.tensor(times).double()).clamp(min=0.0)
            copy, walk, least = float(solved[0]), float(solved[1]), 0.0
            by_size = figures[op].setdefault(at_once, {})
            for offset in sizes:
                graph = self._graph(1 << 11, 1 << (self.shift + offset), 16 << (self.shift + 3))
                ns = self._blocked_ns(op, graph, at_once, lines, self.shift + offset)
                rest = ns - (graph.num_rows + graph.num_cols) * at_once * copy - graph.num_rows * walk
                least = max(least, rest / graph.num_edges)  # a larger block is no nearer
                by_size[offset] = copy, walk, least
        return figures

    def _blocked_ns(self, op: str, graph: Graph, at_once: int, lines: int, shift: int) -> float:
        """Of one walk over all blocks."""
        return self._ns(op, graph, lines, {"algorithm": "blocked", "shift": shift}) * at_once / lines

    def _wake(self) -> float:
        few = self._graph(100, 100, 400)
        return max(self._ns("spmm", few, 1, self._row(0)) - self._ns("spmm", few, 1, self._row(0, threads=1)), 0.0)

    def _build(self) -> tuple[float, float]:
        threads, times = torch.get_num_threads(), []
        torch.set_num_threads(1)  # as for graphs so small that the drop-in weighs them
        try:
            for edges in BUILT:
                edge_index = torch.randint(edges // 3, (2, edges), generator=self.generator)
                times.append(self._least(partial(self._built, edge_index), *BUILDS))
        finally:
            torch.set_num_threads(threads)
        return times[0], (times[1] - times[0]) / (BUILT[1] - BUILT[0])

    def _built(self, edge_index: Tensor) -> Graph:
        return Graph.from_edge_index(edge_index, edge_index.size(1) // 3, layout=self.kernels).transpose

    def _graph(self, rows: int, cols: int, edges: int) -> Graph:
        """Rows of very different lengths, for a processor foresees the end of equal ones."""
        if (rows, cols, edges) not in self.graphs:
            row = (torch.rand(edges, generator=self.generator).square() * rows).long()
            col = torch.randint(cols, (edges,), generator=self.generator)
            self.graphs[rows, cols, edges] = Graph(*self.kernels.csr(row, col, rows, cols)[:2], cols)
        return self.graphs[rows, cols, edges]

    def _row(self, prefetch: int, threads: int = 0) -> Choice:
        return {"algorithm": "row", "prefetch": prefetch, "threads": threads or self.kernels.threads}

    def _ns(self, op: str, graph: Graph, lines: int, choice: Choice) -> float:
        x = self.x[: graph.num_cols * lines * 16].view(graph.num_cols, -1)
        graph.plans[choice_key(op, x.size(1), x.dtype)] = choice
        run = self.kernels.spmm if op == "spmm" else self.kernels.spmm_max
        key = op, graph.num_rows, *x.shape, graph.num_edges, *choice.values()
        self.least[key] = min(
            self.least.get(key, inf), self._least(lambda: run(graph, x, None, "sum" if op == "spmm" else "max"))
        )
        return self.least[key]

    def _least(self, work: Callable[[], object], most: float = ROUNDS[1], most_s: float = ROUND_S) -> float:
        """Nanoseconds."""
        times = list[float]()
        while len(times) < ROUNDS[0] or (len(times) < most and sum(times) < most_s):
            start = clock.cpu()
            work()
            times.append(clock.cpu() - start)
        if clock.cpu() > self.end:
            raise _Busy
        return min(times) * 1e9
