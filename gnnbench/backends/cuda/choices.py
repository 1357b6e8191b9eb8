"""How an aggregation, or sddmm, can be run: what a program holds at a time, or cuSPARSE instead."""

from __future__ import annotations

from typing import TypeGuard

import torch

from gnnbench.backends.cuda._base import BaseKernels
from gnnbench.backends.cuda._tile import WARP_ELEMENTS, Tile, fit, power_of_two
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Choice, choice_key

# Elements of a warp; an extremum is held with the edge that it came from.
TUNED = {"spmm": WARP_ELEMENTS, "spmm_max": WARP_ELEMENTS // 2, "sddmm": WARP_ELEMENTS}
CHANNELS, ELEMENTS, WARPS = (32, 64, 128, 256), (256, 512, 1024, 2048), (1, 2, 4)
CUSPARSE: Choice = {"algorithm": "cusparse"}


class ChoosingKernels(BaseKernels):
    """By rows: `channels` of a program at most, `elements` of a warp, and `warps`."""

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> list[Choice]:
        if op not in TUNED:
            return super().choices(op, graph, width, dtype, heads)
        first = _row(128, TUNED[op], 1)
        channels = [_row(count, TUNED[op], 1) for count in CHANNELS if count < 2 * power_of_two(width)]
        elements = [_row(128, count, 1) for count in ELEMENTS]
        warps = [_row(128, TUNED[op], count) for count in WARPS]
        others = [choice for choice in channels + elements + warps if choice != first]
        return [first, *others, *([CUSPARSE] if self._possible(CUSPARSE, op, dtype) else [])]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> Choice:
        if op not in TUNED:
            return super().chosen(op, graph, width, dtype, heads)
        choice = graph.plans.get(choice_key(op, width, dtype, heads))
        return choice if self._possible(choice, op, dtype) else _row(128, TUNED[op], 1)

    def _possible(self, choice: object, op: str, dtype: torch.dtype) -> TypeGuard[Choice]:
        """Return whether a choice that came from elsewhere can be taken."""
        match choice:
            case {"algorithm": "row", "channels": channels, "elements": elements, "warps": warps, **others}:
                return not others and channels in CHANNELS and elements in ELEMENTS and warps in WARPS
            case {"algorithm": "cusparse", **others} if not others:  # whose order changes every time
                exact = dtype in (torch.float32, torch.float64)
                return op == "spmm" and exact and not torch.are_deterministic_algorithms_enabled()
        return False


def tile_of(choice: Choice, graph: Graph, heads: int, channels: int) -> Tile:
    """The tile of a choice by rows; that of the first one where cuSPARSE was chosen but cannot serve."""
    warps, widest = int(choice.get("warps", 1)), int(choice.get("channels", 128))
    elements = warps * int(choice.get("elements", WARP_ELEMENTS))
    return fit(graph, heads, channels, elements, widest=widest, num_warps=warps)


def _row(channels: int, elements: int, warps: int) -> Choice:
    return {"algorithm": "row", "channels": channels, "elements": elements, "warps": warps}
