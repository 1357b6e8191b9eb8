"""How attention's kernels are cut into programs: fixed rules, and what a tuner may try instead."""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import torch

from gnnbench.backends.cuda._base import BaseKernels
from gnnbench.backends.cuda._tile import power_of_two
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Choice

ATTENTION = ("gat_attention", "gatv2_attention", "dot_attention")
TUNED = (*ATTENTION, *(f"{op}_backward" for op in ATTENTION))
ROUNDS = 32  # of a program over a row, from which on it outlasts its neighbours
LANES, WARPS = (8, 16, 32), (1, 2, 4)  # channels that a lane holds of one gather, and warps of a program
TILES = ((8, 1), (16, 1), (16, 2), (32, 1), (8, 4))  # those worth trying


class How(NamedTuple):
    """What a program holds at a time: `units` pairs of row and head, and of each `edges` edges."""

    units: int
    edges: int
    num_warps: int
    longest: int  # edges of a row, above which it is cut into slices of so many
    edge_scores: bool  # whether the scores are computed beforehand, edge by edge


class TilingKernels(BaseKernels):
    """Strategies: "fused", a program for every few rows; "sliced", hubs cut for several programs; "edge", scores
    edge by edge, softmax and sum as for "sliced" (the idea of DF-GNN)."""

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype) -> list[Choice]:
        if op not in TUNED:
            return super().choices(op, graph, width, dtype)
        first = _first(op)
        tiles = [{**first, "lane": lane, "warps": warps} for lane, warps in TILES]
        strategies = [{**first, "strategy": strategy} for strategy in _strategies(op)]
        return [first, *(choice for choice in tiles + strategies if choice != first)]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype) -> Choice:
        if op not in TUNED:
            return super().chosen(op, graph, width, dtype)
        found = graph.plans.get(("choice", op, width, dtype))
        return found if _possible(found, op) else _first(op)

    def how(self, op: str, graph: Graph, heads: int, width: int, width_out: int, dtype: torch.dtype) -> How:
        """A tile of the chosen size, given to channels first, then to heads, edges and rows."""
        choice = self.chosen(op, graph, heads * width_out, dtype)
        warps, degree = int(choice["warps"]), power_of_two(-(-graph.num_edges // max(graph.num_rows, 1)))
        slots = 32 * warps * int(choice["lane"]) // power_of_two(max(width, width_out))
        slots = min(max(slots, 1), 128 * warps)
        edges = min(degree, max(slots // power_of_two(heads), 1))
        cut = min(max(ROUNDS * edges, 4 * degree), self.slice_edges)
        longest = graph.num_edges if choice["strategy"] == "fused" else cut
        return How(slots // edges, edges, warps, longest, choice["strategy"] == "edge")


def _first(op: str) -> Choice:
    """What runs untuned; it cuts nothing where no row is long. Backward holds more tiles, and so smaller ones."""
    return {"strategy": "sliced", "lane": 8 if op.endswith("_backward") else 16, "warps": 1}


def _strategies(op: str) -> list[str]:
    """GAT's scores are too cheap to be worth a pass of their own, and backward has none for them."""
    return ["sliced", "fused", *(["edge"] if op in ATTENTION[1:] else [])]


def _possible(choice: object, op: str) -> TypeGuard[Choice]:
    """Whether a choice that came from elsewhere can be taken."""
    match choice:
        case {"strategy": str(strategy), "lane": int(lane), "warps": int(warps)}:
            return strategy in _strategies(op) and lane in LANES and warps in WARPS
    return False
