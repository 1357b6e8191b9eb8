"""Measures what `machine.Machine` holds, once on every machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import product
from math import inf
from pathlib import Path

import torch
from torch import Tensor

from gnnbench.backends.isplib import machine
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.backends.isplib.machine import (
    DEGREE,
    LINE_BYTES,
    LINES,
    MOST_SHIFT,
    OPS,
    PREFETCH,
    SHIFTS,
    Machine,
)
from gnnbench.errors import GnnbenchError
from gnnbench.graph import Graph
from gnnbench.measure import clock
from gnnbench.ops.kernels import Choice, choice_key
from gnnbench.results import files

AT_ONCE = {
    1: 1,
    2: 4,
}  # lines that blocks are walked for at once, and lines of the features that show what it costs
PASSES = 2  # over everything, as neighbours on the machine come and go; the least counts
MOST_LINES = 1 << 20  # that one measurement gathers
ROUNDS, ROUND_S = (2, 6), 4e-3  # how often each is measured in a pass, and seconds after which the least is enough
BUILDS = 200, 60e-3  # likewise, as these are short
BUILT = 100, 10_000  # edges of Graphs, three to a node
FAR, SELDOM = (
    -2,
    0.25,
)  # of `TABLES`, one that no cache holds; and the share of gathers from it where most are near
AHEAD = 16  # edges of prefetch meanwhile
MOST_EXPONENT = 16.0
MOST_S = 8.0  # after which others must be using the machine too
STEADY = 1.5  # how far the first time and the last one may lie apart


def learn(kernels: BaseKernels, shift: int, *, anew: bool = False) -> Path | None:
    """Measure this machine, which takes a few seconds, unless it is known, and keep the figures.

    A machine that others keep busy is not measured, and nothing is kept.

    Args:
        shift: of blocks whose tile takes half of the second-level cache.
        anew: whether to measure it in any case.

    Returns:
        The file of this machine, if there is one now.
    """
    file = machine.path()
    if not anew and (os.environ.get(machine.VARIABLE) == "off" or machine.current() is not machine.DEFAULT):
        return file if file.exists() else None
    figures = _Measurement(kernels, shift).machine()
    if figures is None:
        return None
    try:
        files.save_json(machine.Stored(facts=machine.facts(), machine=figures), file)
    except GnnbenchError:  # figures that changed from run to run would change results
        return None
    machine.current.cache_clear()
    return file


class _Busy(Exception):
    """Others use this machine too."""


class _Measurement:
    """Times of random graphs and products with them, on all threads."""

    def __init__(self, kernels: BaseKernels, shift: int) -> None:
        self.kernels, self.shift, self.end = kernels, shift, clock.cpu() + MOST_S
        self.generator = torch.Generator().manual_seed(0)
        self.x = torch.ones(machine.TABLES[-1] // 4)
        self.graphs: dict[tuple[int, int, int, int], Graph] = {}
        self.least: dict[tuple[object, ...], float] = {}  # nanoseconds of every product

    def machine(self) -> Machine | None:
        """The figures, or None where they cannot be trusted."""
        try:
            first = self._check()
            for _ in range(PASSES):
                gather, blocked, wake = self._gather(), self._blocked(), self._wake()
                row = self._rows(gather)
            mean = self._mean(gather)
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
            mean=mean,
            row=row,
            blocked=blocked,
            wake=wake,
            build=build,
            build_edge=build_edge,
        )

    def _check(self) -> float:
        return self._ns("spmm", self._graph(1 << 13, 1 << 14, 1 << 18), 4, self._row(16))

    def _gather(self) -> dict[str, dict[int, list[list[float]]]]:
        figures = {
            op: {distance: [[0.0] * len(machine.TABLES) for _ in LINES] for distance in PREFETCH} for op in OPS
        }
        for (i, lines), (j, table) in product(enumerate(LINES), enumerate(machine.TABLES)):
            edges = min(max(2 * table // LINE_BYTES, 1 << 18), MOST_LINES) // lines
            graph = self._graph(max(edges // DEGREE, 1), table // LINE_BYTES // lines, edges)
            for op, distance in product(OPS, PREFETCH):
                figures[op][distance][i][j] = self._ns(op, graph, lines, self._row(distance)) / edges
        return figures

    def _mean(self, gather: dict[str, dict[int, list[list[float]]]]) -> dict[str, list[float]]:
        """From gathers that are mostly from the smallest table."""
        figures: dict[str, list[float]] = {op: [] for op in OPS}
        for op, (i, lines) in product(OPS, enumerate(LINES)):
            edges, cols = 2 * MOST_LINES // lines, machine.TABLES[FAR] // LINE_BYTES // lines
            graph = self._graph(edges // DEGREE, cols, edges, machine.TABLES[0] // LINE_BYTES // lines)
            ns = self._ns(op, graph, lines, self._row(AHEAD)) / edges
            costs = gather[op][AHEAD][i]
            figures[op].append(_exponent(costs[0] / ns, costs[FAR] / ns))
        return figures

    def _rows(self, gather: dict[str, dict[int, list[list[float]]]]) -> dict[str, list[float]]:
        """From a graph of short rows, whose sources all fit the first-level cache."""
        figures: dict[str, list[float]] = {op: [] for op in OPS}
        for (i, lines), op in product(enumerate(LINES), OPS):
            rows = (1 << 14) // lines
            graph = self._graph(rows, max(machine.TABLES[0] // LINE_BYTES // lines, 1), 2 * rows)
            rest = self._ns(op, graph, lines, self._row(0)) - graph.num_edges * gather[op][0][i][0]
            figures[op].append(max(rest / (graph.num_rows - graph.num_edges / DEGREE), 0.0))
        return figures

    def _blocked(self) -> dict[str, dict[int, dict[int, tuple[float, float, float]]]]:
        """Solved from many columns, many rows, and many edges; only an edge depends on the size of blocks."""
        figures: dict[str, dict[int, dict[int, tuple[float, float, float]]]] = {op: {} for op in OPS}
        rows = MOST_LINES // 512
        shapes = [(64, 8, 64), (16 * rows, 4, 8), (rows, 1, 512)]  # rows, blocks, edges of a row to each block
        sizes = [offset for offset in SHIFTS if self.shift + offset <= MOST_SHIFT]
        for op, (at_once, lines) in product(OPS, AT_ONCE.items()):
            work, times = [], []
            for num_rows, blocks, edges in shapes:
                graph = self._graph(num_rows, blocks << self.shift, num_rows * blocks * edges)
                work.append([(num_rows + graph.num_cols) * at_once, num_rows * blocks, graph.num_edges])
                times.append(self._blocked_ns(op, graph, at_once, lines, self.shift))
            solved = torch.linalg.solve(torch.tensor(work).double(), torch.tensor(times).double()).clamp(min=0.0)
            copy, walk, least = float(solved[0]), float(solved[1]), 0.0
            by_size = figures[op].setdefault(at_once, {})
            for offset in sizes:
                graph = self._graph(rows, 1 << (self.shift + offset), MOST_LINES)
                ns = self._blocked_ns(op, graph, at_once, lines, self.shift + offset)
                rest = ns - (graph.num_rows + graph.num_cols) * at_once * copy - graph.num_rows * walk
                least = max(least, rest / graph.num_edges)  # a larger block is no nearer
                by_size[offset] = copy, walk, least
        return figures

    def _blocked_ns(self, op: str, graph: Graph, at_once: int, lines: int, shift: int) -> float:
        """Time one walk over all blocks."""
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

    def _graph(self, rows: int, cols: int, edges: int, near: int = 0) -> Graph:
        """Rows of very different lengths, for a processor foresees the end of equal ones.

        Args:
            near: columns that all edges but a share of `SELDOM` have, if they are not spread over all columns.
        """
        if (rows, cols, edges, near) not in self.graphs:
            row = (torch.rand(edges, generator=self.generator).square() * rows).long()
            col = torch.randint(cols, (edges,), generator=self.generator)
            if near:
                col[torch.rand(edges, generator=self.generator) >= SELDOM] %= near
            self.graphs[rows, cols, edges, near] = Graph(*self.kernels.csr(row, col, rows, cols)[:2], cols)
        return self.graphs[rows, cols, edges, near]

    def _row(self, prefetch: int, threads: int = 0) -> Choice:
        return {"algorithm": "row", "prefetch": prefetch, "threads": threads or self.kernels.threads}

    def _ns(self, op: str, graph: Graph, lines: int, choice: Choice) -> float:
        x = self.x[: graph.num_cols * lines * 16].view(graph.num_cols, -1)
        graph.plans[choice_key(op, x.size(1), x.dtype)] = choice
        run = self.kernels.spmm if op == "spmm" else self.kernels.spmm_max
        key = op, id(graph), x.size(1), *choice.values()
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


def _exponent(near: float, far: float) -> float:
    """Return the exponent whose mean of costs is one, where a share `SELDOM` are `far`, the others `near`."""
    low, high = 1.0, MOST_EXPONENT
    while high - low > 0.01:
        exponent = (low + high) / 2
        if (1 - SELDOM) * near**exponent + SELDOM * far**exponent < 1:
            low = exponent
        else:
            high = exponent
    return high
