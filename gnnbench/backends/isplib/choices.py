"""How a product can be run: what is fastest by the model of the machine, and what a tuner may try instead."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import NamedTuple, TypeGuard

import torch

from gnnbench.backends.isplib import machine, measurement
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.backends.isplib.machine import LINE_BYTES, MOST_SHIFT, SHIFTS
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Choice, choice_key

CACHE_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


def _l2_bytes() -> int:
    """Return the size of the first core's L2 cache, as Linux tells it; elsewhere the least of most processors."""
    try:
        return int(CACHE_SIZE.read_text().removesuffix("K\n")) << 10
    except (OSError, ValueError):
        return 1 << 20


L2_BYTES = _l2_bytes()
SHIFT = min(MOST_SHIFT, int(log2(L2_BYTES / 2 / LINE_BYTES)))  # of blocks whose tile takes half of the cache
PREFETCH = (0, 8, 16, 32)  # edges between a prefetch and its use
FARTHEST = 32  # whose wide rows may have left the first-level cache
DOUBT = 1.1  # how much faster has to seem what depends on luck, as with caches that others share
BF16_TILE = 32  # features in a line
EDGES_PER_SOURCE = 16  # below which converting features to bf16 costs more than gathering them saves
PLAN = 1.0  # of the graph, how large the plan for blocks may be
LARGE = 1 << 20  # edges from which on choices matter so much that the machine is measured for them
COUNTED = 1 << 17  # edges from which on it is counted how far apart a graph's columns lie
WINDOWS = [1 << bits for bits in range(8, 23)]  # successive edges, in which different columns are counted
SAMPLES = 4  # of these in a graph
PLANNED = (1, 4, 16)  # lines of features that blocks are made ready for
TUNED = ("spmm", "spmm_max")


class Predicted(NamedTuple):
    """The fastest choice and its time with all threads, in nanoseconds."""

    choice: Choice
    ns: float


class Size(NamedTuple):
    """Counts of a graph that a prediction follows from."""

    num_rows: int
    num_cols: int
    num_edges: int
    distances: machine.Distances
    shifts: tuple[int, ...]  # of blocks that can serve it

    @classmethod
    def of(cls, graph: Graph) -> Size:
        """Count a graph, of a small one the leading bits, so that batches of about one size are predicted once."""
        sizes, shifts = (graph.num_rows, graph.num_cols, graph.num_edges), tuple(_shifts(graph))
        if graph.num_edges >= COUNTED:
            return cls(*sizes, _distances(graph), shifts)
        rows, cols, edges = map(_leading_bits, sizes)
        return cls(rows, cols, edges, (machine.Distance(max(cols, 1), cols, 1.0),), shifts)


class ChoosingKernels(BaseKernels):
    """How aggregations run: by row, or over blocks of 2^shift columns whose features fit the cache."""

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> list[Choice]:
        if op not in TUNED:
            return super().choices(op, graph, width, dtype, heads)
        first = self._heuristic(op, graph, width, dtype)
        rows: list[Choice] = [
            {"algorithm": "row", "prefetch": edges, "threads": threads}
            for threads in sorted({self.threads, 1}, reverse=True)
            for edges in PREFETCH
        ]
        blocked: list[Choice] = [{"algorithm": "blocked", "shift": shift} for shift in _shifts(graph)]
        return [first, *(choice for choice in rows + blocked if choice != first)]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> Choice:
        if op not in TUNED:
            return super().chosen(op, graph, width, dtype, heads)
        result = graph.plans.get(choice_key(op, width, dtype, heads))
        if result is not None and self._possible(result, graph):
            return result
        return self._heuristic(op, graph, width, dtype)

    def learn_machine(self, edges: int = 0, *, anew: bool = False) -> Path | None:
        return measurement.learn(self, SHIFT, anew=anew) if anew or edges >= LARGE else None

    def _heuristic(self, op: str, graph: Graph, width: int, dtype: torch.dtype) -> Choice:
        lines = -(-width * dtype.itemsize // LINE_BYTES)
        key = ("heuristic", op, lines, self.threads)
        return graph.once(key, lambda: self._among_threads(self._predicted(op, graph, lines)))

    def _among_threads(self, best: Predicted) -> Choice:
        """Its choice, by one thread where waking the others takes longer than they save."""
        if best.choice["algorithm"] == "blocked":
            return best.choice
        model = machine.current()
        share = best.ns * model.threads  # with one thread; so each of several saves all but its part of it
        alone = share * (1 - 1 / self.threads) <= model.wake
        return {**best.choice, "threads": 1 if alone else self.threads}

    def _predicted(self, op: str, graph: Graph, lines: int) -> Predicted:
        """The fastest way, whatever the number of threads is, as the order of summation follows from it."""
        return _fastest(machine.current(), op, Size.of(graph), lines)

    def _planned(self, graph: Graph) -> set[int]:
        """Shifts of the blocks that sums over usual widths go by."""
        ways = [self._predicted("spmm", graph, lines).choice for lines in PLANNED]
        return {int(choice["shift"]) for choice in ways if "shift" in choice}

    def _possible(self, choice: object, graph: Graph) -> TypeGuard[Choice]:
        """Return whether a choice that came from elsewhere can be taken; one kept from more threads cannot."""
        match choice:
            case {"algorithm": "row", "prefetch": int(edges), "threads": int(threads), **others} if not others:
                return edges in PREFETCH and 1 <= threads <= self.threads
            case {"algorithm": "blocked", "shift": int(shift), **others} if not others:
                # With a plan no larger than a few graphs.
                return 0 <= shift <= MOST_SHIFT and graph.num_rows * blocks(graph, shift) <= 4 * graph.num_edges
        return False


def blocks(graph: Graph | Size, shift: int) -> int:
    """Blocks of 2^shift columns; at least one, for the last block writes the rows."""
    return max(1, -(-graph.num_cols >> shift))


@lru_cache(1024)
def _fastest(model: machine.Machine, op: str, size: Size, lines: int) -> Predicted:
    shared = size.num_cols * lines * LINE_BYTES > L2_BYTES
    result = [
        Predicted(
            {"algorithm": "row", "prefetch": prefetch},
            DOUBT ** (shared + (prefetch == FARTHEST))
            * model.row_ns(op, prefetch, size.num_rows, size.num_edges, lines, size.distances),
        )
        for prefetch in machine.PREFETCH
    ]
    for shift in size.shifts:
        count = blocks(size, shift)
        within = log2(max(size.num_cols / count, 1.0)) - SHIFT
        ns = model.blocked_ns(op, within, size.num_rows, size.num_cols, size.num_edges, count, lines)
        result.append(Predicted({"algorithm": "blocked", "shift": shift}, ns))
    return min(result, key=lambda predicted: predicted.ns)


def _shifts(graph: Graph) -> list[int]:
    """Return the widths of blocks, as bits of a column id, that can serve a graph."""
    shifts = [SHIFT + offset for offset in SHIFTS if SHIFT + offset <= MOST_SHIFT]
    return [shift for shift in shifts if 0 < graph.num_rows * blocks(graph, shift) <= PLAN * graph.num_edges]


def _leading_bits(size: int) -> int:
    """`size` rounded down to a number of which only the first five bits count."""
    rest = max(size.bit_length() - 5, 0)
    return size >> rest << rest


def _distances(graph: Graph) -> machine.Distances:
    """Measure for a graph's gathers how different columns become more as one looks at more edges.

    An edge beyond so many brings a new column as often as the last one of its column is further away than the
    columns of these (Xiang et al., HOTL: a higher order theory of locality, ASPLOS 2013).
    """

    def count() -> machine.Distances:
        windows = [window for window in WINDOWS if window <= graph.num_edges]
        columns = [0.0] * len(windows)
        for start in torch.linspace(0, graph.num_edges - windows[-1], SAMPLES).long().tolist():
            seen = torch.zeros(graph.num_cols, dtype=torch.bool)
            for i, (begin, end) in enumerate(pairwise((0, *windows))):
                seen[graph.col[start + begin : start + end].long()] = True
                columns[i] += int(seen.sum()) / SAMPLES
        result, beyond = list[machine.Distance](), 1.0
        for (fewer, more), (below, above) in zip(pairwise(windows), pairwise(columns), strict=True):
            new = min((above - below) / (more - fewer), beyond)
            result.append(machine.Distance(below, fewer, beyond - new))
            beyond = new
        return *result, machine.Distance(graph.num_cols + 1, graph.num_edges, beyond)

    return graph.once("distances", count)


def worth_bf16(graph: Graph, x: torch.Tensor, width: int) -> bool:
    """Return whether bf16 saves cache lines that are far away, and often enough to pay for the conversion."""
    often = graph.num_edges >= EDGES_PER_SOURCE * graph.num_cols
    return x.dtype == torch.float32 and 2 * width > BF16_TILE and x.nbytes > L2_BYTES and often
