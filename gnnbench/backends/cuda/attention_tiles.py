"""How attention's kernels run: a rule from the degrees of a graph, and what a tuner may try instead."""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import torch

from gnnbench.backends.cuda import _tile
from gnnbench.backends.cuda._base import BaseKernels
from gnnbench.backends.cuda._tile import power_of_two
from gnnbench.backends.cuda.families import ON_DEVICE
from gnnbench.backends.cuda.plan import longest_row
from gnnbench.graph import Graph
from gnnbench.ops.families import FAMILIES
from gnnbench.ops.kernels import Choice, choice_key

ATTENTION = tuple(FAMILIES[name].op for name in ON_DEVICE)  # that have kernels of their own
CHEAP = {family.op for family in FAMILIES.values() if "C" not in family.inputs["query"]}  # scores, of two numbers
TUNED = (*ATTENTION, *(f"{op}_backward" for op in ATTENTION))
ROUNDS = 32  # of a program over a row, from which on it outlasts its neighbours
LANES, WARPS = (8, 16, 32), (1, 2, 4)  # channels that a lane holds of one gather, and warps of a program
TILES = ((8, 1), (16, 1), (16, 2), (32, 1), (8, 4))  # those worth trying


class How(NamedTuple):
    """Size of a program's tile: `units` pairs of row and head, and of each `edges` edges."""

    units: int
    edges: int
    num_warps: int
    longest: int  # edges of a row, above which it is cut into slices of so many
    by_edge: bool  # whether what edges need of scores is computed beforehand, edge by edge


class TilingKernels(BaseKernels):
    """Strategies of a pass over rows: "fused", a program for every few of them; "sliced", hubs cut for several
    programs; "edge", the same after a pass over edges for their scores or, in backward, for their gradients."""

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> list[Choice]:
        if op not in TUNED:
            return super().choices(op, graph, width, dtype, heads)
        first = self._untuned(op, graph, heads, width // heads)
        tiles = [{**first, "lane": lane, "warps": warps} for lane, warps in TILES]
        strategies = [{**first, "strategy": strategy} for strategy in _strategies(op)]
        return [first, *(choice for choice in tiles + strategies if choice != first)]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> Choice:
        if op not in TUNED:
            return super().chosen(op, graph, width, dtype, heads)
        choice = graph.plans.get(choice_key(op, width, dtype, heads))
        return choice if _possible(choice, op) else self._untuned(op, graph, heads, width // heads)

    def how(self, op: str, graph: Graph, heads: int, width: int, width_out: int, dtype: torch.dtype) -> How:
        """A tile of the chosen size and strategy."""
        choice = self.chosen(op, graph, heads * width_out, dtype, heads)
        return self._tiled(choice, graph, heads, max(width, width_out))

    def _tiled(self, choice: Choice, graph: Graph, heads: int, channels: int) -> How:
        """A tile, given to channels first, then to heads, edges and rows."""
        warps, degree = int(choice["warps"]), power_of_two(-(-graph.num_edges // max(graph.num_rows, 1)))
        slots = 32 * warps * int(choice["lane"]) // power_of_two(channels)
        slots = min(max(slots, 1), 128 * warps)
        edges = min(degree, max(slots // power_of_two(heads), 1))
        cut = min(max(ROUNDS * edges, 4 * degree), self.slice_edges)
        longest = graph.num_edges if choice["strategy"] == "fused" else cut
        return How(slots // edges, edges, warps, longest, choice["strategy"] == "edge")

    def _untuned(self, op: str, graph: Graph, heads: int, channels: int) -> Choice:
        """The rule, from reasoning: no GPU has confirmed it yet.

        All wait for the longest row. Up to two slices long, it is over before the kernels that cutting needs have
        started: "fused". Longer ones are cut, and then the slowest program walks one slice. If programs for rows
        and slices are fewer than a GPU runs at a time, what that one computes per edge is time lost: others, idle
        otherwise, can do it beforehand, and what they write is little, for the graph is small: "edge". If they
        are more, each has others to hide behind, and writing per edge only adds traffic: "sliced".
        Backward holds more tiles, and so smaller ones.
        """
        choice: Choice = {"strategy": "sliced", "lane": 8 if op.endswith("_backward") else 16, "warps": 1}
        how = self._tiled(choice, graph, heads, channels)
        programs = (graph.num_rows + graph.num_edges // how.longest) * heads // how.units
        if longest_row(graph) <= 2 * how.longest:
            choice["strategy"] = "fused"
        elif programs < _tile.PROGRAMS and "edge" in _strategies(op):
            choice["strategy"] = "edge"
        return choice


def _strategies(op: str) -> list[str]:
    """Scores of two numbers are too cheap to be worth a pass of their own; their gradients take channels."""
    return ["fused", "sliced", *(["edge"] if op not in CHEAP else [])]


def _possible(choice: object, op: str) -> TypeGuard[Choice]:
    """Return whether a choice that came from elsewhere can be taken."""
    match choice:
        case {"strategy": str(strategy), "lane": int(lane), "warps": int(warps), **others} if not others:
            return strategy in _strategies(op) and lane in LANES and warps in WARPS
    return False
