"""Negatives: pairs of nodes that link prediction is to tell from links, drawn with a seed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gnnbench.errors import GraphError
from gnnbench.graph import Graph

ROUNDS = 64  # of drawing again what is an edge


def uniform(graph: Graph, count: int, seed: int, *, exclude_edges: bool = True) -> Tensor:
    """Draw `count` pairs [2, count] int64 of sources and destinations, each equally likely.

    Args:
        seed: of all random numbers; equal arguments give equal pairs.
        exclude_edges: leave out the edges of `graph` and pairs of a node with itself.

    Raises:
        GraphError: hardly a pair is left that is not an edge.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(places: Tensor) -> Tensor:
        sources = torch.randint(graph.num_cols, (len(places),), generator=generator)
        return torch.stack([sources, torch.randint(graph.num_rows, (len(places),), generator=generator)])

    return _drawn(graph, count, draw, exclude_edges)


def corrupt(graph: Graph, sources: Tensor, per_positive: int, seed: int, *, exclude_edges: bool = True) -> Tensor:
    """Draw `per_positive` destinations for each of `sources` [P] int64: pairs [2, P * per_positive] int64.

    Pair i is of source i // per_positive; for the rest see `uniform`.
    """
    generator = torch.Generator().manual_seed(seed)
    repeated = sources.repeat_interleave(per_positive)

    def draw(places: Tensor) -> Tensor:
        drawn = torch.randint(graph.num_rows, (len(places),), generator=generator)
        return torch.stack([repeated[places], drawn])

    return _drawn(graph, len(repeated), draw, exclude_edges)


def _drawn(graph: Graph, count: int, draw: Callable[[Tensor], Tensor], exclude_edges: bool) -> Tensor:
    pairs = draw(torch.arange(count))
    if not exclude_edges:
        return pairs
    wrong = _joined(graph, pairs).nonzero().flatten()
    for _ in range(ROUNDS):
        if not len(wrong):
            return pairs
        pairs[:, wrong] = draw(wrong)
        wrong = wrong[_joined(graph, pairs[:, wrong])]
    raise GraphError(
        f"no negatives: after {ROUNDS} draws {len(wrong)} of {count} pairs are still edges, as nearly all nodes "
        "are joined; draw with edges among them"
    )


def _joined(graph: Graph, pairs: Tensor) -> Tensor:
    """[P] bool: which pairs are an edge, or of one node."""
    keys = graph.once("edge keys", lambda: graph.row * graph.num_cols + graph.col)
    asked = pairs[1] * graph.num_cols + pairs[0]
    place = torch.searchsorted(keys, asked).clamp_(max=max(len(keys) - 1, 0))
    return (pairs[0] == pairs[1]) | (keys[place] == asked if len(keys) else False)
