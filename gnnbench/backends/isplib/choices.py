"""How a product can be run: by a rule where nothing was tuned, and what a tuner may try instead.

Beside the best of all candidates on twelve graphs of 9,000 to 29,000,000 edges at widths from 16 to 256, on an
AMD EPYC (`results/regret`), it is 1.05x as slow in the geometric mean, 1.44x at worst; on nine of them on an Intel
Xeon 1.06x and 1.59x.
"""

from __future__ import annotations

from math import inf, log2
from pathlib import Path
from typing import TypeGuard

import torch

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Choice, choice_key

LINE_BYTES = 64  # of a cache line
SHIFTS = (-1, 0, 1, 2, 3)  # of blocks, beside the one whose tile takes half of the second-level cache
MOST_SHIFT = 15  # as the columns of a block are numbered in 16 bits, from one
CACHE_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


def _l2_bytes() -> int:
    """Return the size of the first core's L2 cache, as Linux tells it; elsewhere the least of most processors."""
    try:
        return int(CACHE_SIZE.read_text().removesuffix("K\n")) << 10
    except (OSError, ValueError):
        return 1 << 20


L2_BYTES = _l2_bytes()
SHIFT = min(MOST_SHIFT, int(log2(L2_BYTES / 2 / LINE_BYTES)))  # of blocks whose tile takes half of the cache
PREFETCH_DISTANCES = (0, 8, 16, 32)  # edges between a prefetch and its use
CACHED = 2  # second-level caches of features at most, which need no prefetch
DISTANCES = ((1, 32), (4, 16), (inf, 8))  # features of at most so many lines, and their distance
AHEAD = 32  # edges between a prefetch and its use, in blocks whose tile takes half of the cache or more
# Blocks pay where many edges share a source that is far away, or a row so many that they are added by fours.
CROWDED, LARGE = 48, 11 << 19  # edges of a row, for features of so many bytes, whatever the second-level cache
FULL = 128  # edges of a row, whatever the features
# Edges that a row has in a block: the narrowest whose tile fits, the narrowest that does not, the widest.
SHARED, SPILLED, LEAST = 16, 32, 5
BF16_TILE = 32  # features in a line
EDGES_PER_SOURCE = 16  # below which converting features to bf16 costs more than gathering them saves
PLAN = 1.0  # of the graph, how large the plan for blocks may be
PLANNED = (1, 4, 16)  # lines of features that blocks are made ready for
TUNED = ("spmm", "spmm_max")
_attention = _compiled.load("attention")
FAMILIES = tuple(_attention.FAMILIES if _attention else ())  # that were compiled
CHUNKS: list[Choice] = [{"chunk": edges} for edges in (64, 16, 32, 128)]  # of a row that attention walks at a time
# By row; the first of sddmm and attention is what runs untuned.
WAYS: dict[str, list[Choice]] = {
    **{key: [{"algorithm": "row", "prefetch": edges} for edges in PREFETCH_DISTANCES] for key in TUNED},
    "sddmm": [{"prefetch": edges} for edges in (12, 0, 6, 24)],
    **{f"{name}_attention{direction}": CHUNKS for name in FAMILIES for direction in ("", "_backward")},
}
SOFTMAX = 16  # multiplications that the softmax of an edge and head is like
TEAM_WORK = 1 << 15  # multiplications below which waking other threads costs more than they save


class ChoosingKernels(BaseKernels):
    """How passes over edges run: with how many threads, and with how many edges in flight.

    Aggregations run by row, or over blocks of 2^shift columns whose features fit the cache.
    """

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> list[Choice]:
        if op not in WAYS:
            return super().choices(op, graph, width, dtype, heads)
        first, teams = self._untuned(op, graph, width, dtype, heads), sorted({self.threads, 1}, reverse=True)
        every: list[Choice] = [{**way, "threads": threads} for threads in teams for way in WAYS[op]]
        if op in TUNED:
            every += [{"algorithm": "blocked", "shift": shift} for shift in _shifts(graph)]
        return [first, *(choice for choice in every if choice != first)]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> Choice:
        if op not in WAYS:
            return super().chosen(op, graph, width, dtype, heads)
        result = graph.whole.cache.get(choice_key(op, width, dtype, heads))
        if result is not None and self._possible(result, op, graph.whole):
            return result
        return self._untuned(op, graph, width, dtype, heads)

    def _untuned(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int) -> Choice:
        if op in TUNED:
            return self._heuristic(graph.whole, width, dtype)
        work = width if op == "sddmm" else 2 * width + SOFTMAX * heads
        return {**WAYS[op][0], "threads": self._team_for(graph, work)}

    def _team_for(self, graph: Graph, work: int) -> int:
        """Threads for so many multiplications an edge."""
        return 1 if (graph.num_edges + graph.num_rows) * work < TEAM_WORK else self.threads

    def _heuristic(self, graph: Graph, width: int, dtype: torch.dtype) -> Choice:
        """Walk edges the same way by any number of threads, as the order of summation follows from it."""
        features = width * dtype.itemsize

        def make() -> Choice:
            if (shift := block(graph, features)) is not None:
                return {"algorithm": "blocked", "shift": shift}
            near = graph.num_cols * features <= CACHED * L2_BYTES
            prefetch = 0 if near else distance(features)
            return {"algorithm": "row", "prefetch": prefetch, "threads": self._team_for(graph, width)}

        return graph.once(("heuristic", features, self.threads), make)

    def _possible(self, choice: object, op: str, graph: Graph) -> TypeGuard[Choice]:
        """Return whether a choice that came from elsewhere can be taken; one kept from more threads cannot."""
        match choice:
            case {"algorithm": "blocked", "shift": int(shift), **others} if op in TUNED and not others:
                # With a plan no larger than a few graphs.
                return 0 <= shift <= MOST_SHIFT and graph.num_rows * blocks(graph, shift) <= 4 * graph.num_edges
            case {"threads": int(threads), **way}:
                return way in WAYS[op] and 1 <= threads <= self.threads
        return False


def distance(features: int) -> int:
    """Return how many edges ahead to prefetch features of so many bytes, where no cache holds those of a graph."""
    return next(edges for lines, edges in DISTANCES if features <= lines * LINE_BYTES)


def blocks(graph: Graph, shift: int) -> int:
    """Blocks of 2^shift columns; at least one, for the last block writes the rows."""
    return max(1, -(-graph.num_cols >> shift))


def block(graph: Graph, features: int) -> int | None:
    """The width of blocks, as bits of a column id, for so many bytes of features; None to go by row."""
    rows, edges, shifts = max(graph.num_rows, 1), graph.num_edges, _shifts(graph)
    crowded = edges >= CROWDED * rows and graph.num_cols * features > LARGE
    if not shifts or not (crowded or edges >= FULL * rows):
        return None
    for shift in shifts:
        if edges >= (SHARED if shift <= SHIFT else SPILLED) * rows * blocks(graph, shift):
            return shift
    return shifts[-1] if edges >= LEAST * rows * blocks(graph, shifts[-1]) else None


def _shifts(graph: Graph) -> list[int]:
    """Return the widths of blocks, as bits of a column id, that can serve a graph."""
    shifts = [SHIFT + offset for offset in SHIFTS if SHIFT + offset <= MOST_SHIFT]
    return [shift for shift in shifts if 0 < graph.num_rows * blocks(graph, shift) <= PLAN * graph.num_edges]


def worth_bf16(graph: Graph, x: torch.Tensor, width: int) -> bool:
    """Return whether bf16 saves cache lines that are far away, and often enough to pay for the conversion."""
    often = graph.whole.num_edges >= EDGES_PER_SOURCE * graph.num_cols
    return x.dtype == torch.float32 and 2 * width > BF16_TILE and x.nbytes > L2_BYTES and often
