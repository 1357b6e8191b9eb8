"""Pairs of nodes drawn at random, which are no edges: negatives for training on links.

A pair follows from the seed and from its place alone. It is therefore the same on every backend and device,
for any number of threads, and when a run is resumed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.errors import GraphError
from gnnbench.graph import Graph
from gnnbench.graph.layout import check_range, ptr_of


def uniform(graph: Graph, count: int, seed: int, *, exclude: bool = True) -> Tensor:
    """Draw pairs independently, each pair equally likely.

    Args:
        graph: N destinations and M sources.
        count: pairs to draw; one may come twice.
        seed: any integer; another one draws other pairs.
        exclude: leave out edges and, in a square graph, self-loops, as PyG's `negative_sampling` does.

    Returns:
        [2, count] int64 (source, destination), on the graph's device.

    Raises:
        GraphError: every pair is an edge or a self-loop, or there are no nodes.
    """
    rowptr, col = _left_out(graph, exclude)
    if count and graph.num_rows * graph.num_cols <= col.numel():
        raise GraphError(f"all {col.numel():,} pairs of nodes are edges or self-loops, which leaves none to draw")
    return graph.layout.draw_pairs(rowptr, col, graph.num_rows, None, count, seed)


def corrupt(graph: Graph, sources: Tensor, per: int, seed: int, *, exclude: bool = True) -> Tensor:
    """Draw other destinations for each source, each equally likely.

    Args:
        graph, seed, exclude: as of `uniform`.
        sources: [P] int64.
        per: destinations for each, drawn independently; one may come twice.

    Returns:
        [2, P * per] int64, those of the first source first.

    Raises:
        GraphError: what is no source, or a source with edges to all nodes.
    """
    if sources.dim() != 1 or sources.dtype != torch.int64:
        raise GraphError(f"sources are {sources.dtype} {list(sources.shape)}, but must be a vector of int64")
    check_range("source", sources, graph.num_cols)
    rowptr, col = _left_out(graph, exclude)
    sources = sources.to(graph.device).repeat_interleave(per)
    full = rowptr[sources + 1] - rowptr[sources] >= graph.num_rows
    if bool(full.any()):
        raise GraphError(f"source {int(sources[full][0])} has edges to all nodes, which leaves none to draw")
    return graph.layout.draw_pairs(rowptr, col, graph.num_rows, sources, len(sources), seed)


def _left_out(graph: Graph, exclude: bool) -> tuple[Tensor, Tensor]:
    """rowptr [M + 1] and col of the destinations of each source that no pair may have, ascending and each once."""
    if not exclude:
        return graph.rowptr.new_zeros(graph.num_cols + 1), graph.col[:0]
    return graph.once("pairs left out", lambda: _distinct(graph))


def _distinct(graph: Graph) -> tuple[Tensor, Tensor]:
    left_out = graph.transpose.with_self_loops if graph.num_rows == graph.num_cols else graph.transpose
    rowptr, col = left_out.rowptr, left_out.col
    repeats = torch.zeros_like(col, dtype=torch.bool)
    torch.eq(col[1:], col[:-1], out=repeats[1:])
    repeats[rowptr[:-1][rowptr.diff() > 0]] = False  # first of their rows
    if not bool(repeats.any()):
        return rowptr, col
    return rowptr - ptr_of(repeats)[rowptr], col[~repeats]
