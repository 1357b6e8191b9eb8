"""How kernels over edges are run: what a program holds at a time, strategies for hubs, or cuSPARSE instead."""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import torch

from gnnbench.backends.cuda import _base
from gnnbench.backends.cuda._base import WARP_ELEMENTS, BaseKernels, Tile, fit, longest_row, power_of_two
from gnnbench.backends.cuda.families import ON_DEVICE
from gnnbench.graph import Graph
from gnnbench.ops.families import FAMILIES
from gnnbench.ops.kernels import Choice, choice_key

# Elements of a warp; an extremum is held with the edge that it came from. For sums, few to a program and so more
# programs at a time: on an H200, ogbn-arxiv's shape at 128 channels, 1.8 times as fast as WARP_ELEMENTS.
BY_ROWS = {"spmm": 256, "spmm_max": WARP_ELEMENTS // 2, "sddmm": WARP_ELEMENTS}
CHANNELS, ELEMENTS, WARPS = (32, 64, 128, 256), (256, 512, 1024, 2048), (1, 2, 4)
CUSPARSE: Choice = {"algorithm": "cusparse"}

ATTENTION = {f"{FAMILIES[name].op}{way}" for name in ON_DEVICE for way in ("", "_backward")}
CHEAP = {family.op for family in FAMILIES.values() if "C" not in family.inputs["query"]}  # scores, of two numbers
ROUNDS = 32  # of a program over a row, from which on it outlasts its neighbours
LANES = (8, 16, 32)  # channels that a lane holds of one gather
TILES = ((8, 1), (16, 1), (16, 2), (32, 1), (8, 4))  # lanes and warps worth trying


class Tiling(NamedTuple):
    """Size of a program's tile in attention: `units` pairs of row and head, and of each `edges` edges."""

    units: int
    edges: int
    num_warps: int
    longest: int  # edges of a row, above which it is cut into slices of so many
    by_edge: bool  # whether what edges need of scores is computed beforehand, edge by edge


class ChoosingKernels(BaseKernels):
    """By rows: `channels` of a program at most, `elements` of a warp, and `warps`.

    Strategies of attention: "fused", a program for every few rows; "sliced", hubs cut for several programs;
    "edge", the same after a pass over edges for their scores or, in backward, for their gradients.
    """

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> list[Choice]:
        if op not in {*BY_ROWS, *ATTENTION}:
            return super().choices(op, graph, width, dtype, heads)
        first, others = self._untuned(op, graph, width, heads), list[Choice]()
        if op in ATTENTION:
            others += [{**first, "lane": lane, "warps": warps} for lane, warps in TILES]
            others += [{**first, "strategy": strategy} for strategy in _strategies(op)]
        else:
            others += [{**first, "channels": count} for count in CHANNELS if count < 2 * power_of_two(width)]
            others += [{**first, "elements": count} for count in ELEMENTS]
            others += [{**first, "warps": count} for count in WARPS]
            others += [CUSPARSE] if _possible(CUSPARSE, op, dtype) else []
        return [first, *(choice for choice in others if choice != first)]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> Choice:
        if op not in {*BY_ROWS, *ATTENTION}:
            return super().chosen(op, graph, width, dtype, heads)
        choice = graph.cache.get(choice_key(op, width, dtype, heads))
        return choice if _possible(choice, op, dtype) else self._untuned(op, graph, width, heads)

    def tiling(self, op: str, graph: Graph, heads: int, width: int, width_out: int, dtype: torch.dtype) -> Tiling:
        """A tile of attention, of the chosen size and strategy."""
        choice = self.chosen(op, graph, heads * width_out, dtype, heads)
        return self._tiled(choice, graph, heads, max(width, width_out))

    def _tiled(self, choice: Choice, graph: Graph, heads: int, channels: int) -> Tiling:
        """A tile, given to channels first, then to heads, edges and rows."""
        warps, degree = int(choice["warps"]), power_of_two(-(-graph.num_edges // max(graph.num_rows, 1)))
        slots = 32 * warps * int(choice["lane"]) // power_of_two(channels)
        slots = min(max(slots, 1), 128 * warps)
        edges = min(degree, max(slots // power_of_two(heads), 1))
        cut = min(max(ROUNDS * edges, 4 * degree), self.slice_edges)
        longest = graph.num_edges if choice["strategy"] == "fused" else cut
        return Tiling(slots // edges, edges, warps, longest, choice["strategy"] == "edge")

    def _untuned(self, op: str, graph: Graph, width: int, heads: int) -> Choice:
        """A tile of usual size, and for attention a rule from reasoning: no GPU has confirmed it yet.

        All wait for the longest row. Up to two slices long, it is over before the kernels that cutting needs have
        started: "fused". Longer ones are cut, and then the slowest program walks one slice. If programs for rows
        and slices are fewer than a GPU runs at a time, what that one computes per edge is time lost: others, idle
        otherwise, can do it beforehand, and what they write is little, for the graph is small: "edge". If they
        are more, each has others to hide behind, and writing per edge only adds traffic: "sliced".
        Backward holds more tiles, and so smaller ones.
        """
        if op in BY_ROWS:
            return {"algorithm": "row", "channels": 128, "elements": BY_ROWS[op], "warps": 1}
        choice: Choice = {"strategy": "sliced", "lane": 8 if op.endswith("_backward") else 16, "warps": 1}
        tiling = self._tiled(choice, graph, heads, width // heads)
        programs = (graph.num_rows + graph.num_edges // tiling.longest) * heads // tiling.units
        if longest_row(graph) <= 2 * tiling.longest:
            choice["strategy"] = "fused"
        elif programs < _base.PROGRAMS and "edge" in _strategies(op):
            choice["strategy"] = "edge"
        return choice


def tile_of(choice: Choice, graph: Graph, heads: int, channels: int) -> Tile:
    """The tile of a choice by rows; that of the first one where cuSPARSE was chosen but cannot serve."""
    warps, widest = int(choice.get("warps", 1)), int(choice.get("channels", 128))
    elements = warps * int(choice.get("elements", WARP_ELEMENTS))
    return fit(graph, heads, channels, elements, widest=widest, num_warps=warps)


def _strategies(op: str) -> list[str]:
    """Scores of two numbers are too cheap to be worth a pass of their own; their gradients take channels."""
    return ["fused", "sliced", *(["edge"] if op not in CHEAP else [])]


def _possible(choice: object, op: str, dtype: torch.dtype) -> TypeGuard[Choice]:
    """Return whether a choice that came from elsewhere can be taken."""
    match choice:
        case {"strategy": str(strategy), "lane": int(lane), "warps": int(warps), **others} if op in ATTENTION:
            return not others and strategy in _strategies(op) and lane in LANES and warps in WARPS
        case {"algorithm": "row", "channels": channels, "elements": elements, "warps": warps, **others} if (
            op in BY_ROWS
        ):
            return not others and channels in CHANNELS and elements in ELEMENTS and warps in WARPS
        case {"algorithm": "cusparse", **others} if not others:  # whose order changes every time
            exact = dtype in (torch.float32, torch.float64)
            return op == "spmm" and exact and not torch.are_deterministic_algorithms_enabled()
    return False
