"""How a product can be run: the heuristic from the size of the cache, and what a tuner may try instead."""

from __future__ import annotations

from math import log2
from pathlib import Path
from typing import TypeGuard

import torch

from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Choice, choice_key

CACHE_SIZE = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")


def _l2_bytes() -> int:
    """Of the first core's second-level cache, as Linux tells it; elsewhere what most processors have at least."""
    try:
        return int(CACHE_SIZE.read_text().removesuffix("K\n")) << 10
    except (OSError, ValueError):
        return 1 << 20


L2_BYTES = _l2_bytes()
LINE_BYTES = 64  # of a cache line, and so of a tile of features
EDGES_PER_BLOCK = 8  # and row, below which walking the blocks costs more than it saves
SHIFT = min(16, int(log2(L2_BYTES / 2 / LINE_BYTES)))  # of blocks whose tile takes half of the cache
FAR = 96  # caches of features, per block of a row and edge, from which on blocks gain (on Sapphire Rapids)
NEAR = 5  # times FAR, for extrema of a graph in one block, which packing alone serves little
SPARSE = 128  # edges per row, below which sums are faster in one block that fills the cache than in two
PREFETCH = (0, 8, 16, 32)  # edges between a prefetch and its use
BF16_TILE = 32  # features in a line
EDGES_PER_SOURCE = 16  # below which converting features to bf16 costs more than gathering them saves
TEAM_WORK = 1 << 18  # multiplications below which waking other threads costs more than they save
TUNED = ("spmm", "spmm_max")


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
        blocked: list[Choice] = [
            {"algorithm": "blocked", "shift": shift}
            for shift in (SHIFT - 1, SHIFT, SHIFT + 1)
            if shift <= 16 and 0 < graph.num_rows * blocks(graph, shift) <= graph.num_edges
        ]
        return [first, *(choice for choice in rows + blocked if choice != first)]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> Choice:
        if op not in TUNED:
            return super().chosen(op, graph, width, dtype, heads)
        result = graph.plans.get(choice_key(op, width, dtype, heads))
        return result if self._possible(result, graph) else self._heuristic(op, graph, width, dtype)

    def _heuristic(self, op: str, graph: Graph, width: int, dtype: torch.dtype) -> Choice:
        caches = graph.num_cols * width * dtype.itemsize / L2_BYTES
        # Every row pays for every block, which is worth the more the farther its features are.
        far = FAR if op == "spmm" or blocks(graph, SHIFT) > 1 else NEAR * FAR
        if worth_blocks(graph) and caches > 1 + far * graph.num_rows * blocks(graph, SHIFT) / graph.num_edges:
            two = op == "spmm" and width * dtype.itemsize > LINE_BYTES
            return {"algorithm": "blocked", "shift": self._pair_shift(graph) if two else SHIFT}
        alone = (graph.num_edges + graph.num_rows) * width < TEAM_WORK
        return {"algorithm": "row", "prefetch": 16 if caches > 1 else 0, "threads": 1 if alone else self.threads}

    def _pair_shift(self, graph: Graph) -> int:
        """Of blocks for sums, whose walks take two lines: half as many columns.

        bf16 does not repay that, nor do sparse rows where one block holds all columns.
        """
        alone = blocks(graph, SHIFT) == 1 and graph.num_edges < SPARSE * graph.num_rows
        return SHIFT if alone or self.precision == "bf16" else SHIFT - 1

    def _possible(self, choice: object, graph: Graph) -> TypeGuard[Choice]:
        """Whether a choice that came from elsewhere can be taken; one kept from more threads cannot."""
        match choice:
            case {"algorithm": "row", "prefetch": int(edges), "threads": int(threads), **others} if not others:
                return edges in PREFETCH and 1 <= threads <= self.threads
            case {"algorithm": "blocked", "shift": int(shift), **others} if not others:
                # With a plan no larger than a few graphs.
                return 0 <= shift <= 16 and graph.num_rows * blocks(graph, shift) <= 4 * graph.num_edges
        return False


def blocks(graph: Graph, shift: int) -> int:
    """Blocks of 2^shift columns; at least one, for the last block writes the rows."""
    return max(1, -(-graph.num_cols >> shift))


def worth_blocks(graph: Graph) -> bool:
    """Whether rows have enough edges to each block of the heuristic's size."""
    return 0 < EDGES_PER_BLOCK * graph.num_rows * blocks(graph, SHIFT) <= graph.num_edges


def worth_bf16(graph: Graph, x: torch.Tensor, width: int) -> bool:
    """Whether bf16 saves cache lines that are far away, and often enough to pay for the conversion."""
    often = graph.num_edges >= EDGES_PER_SOURCE * graph.num_cols
    return x.dtype == torch.float32 and 2 * width > BF16_TILE and x.nbytes > L2_BYTES and often
