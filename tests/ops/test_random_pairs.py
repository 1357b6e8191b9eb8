"""Random pairs: no edges, all others equally likely, and the same numbers from every backend and place."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from gnnbench.backends.isplib import IsplibKernels
from gnnbench.errors import GraphError
from gnnbench.graph import Graph
from gnnbench.ops import negatives
from gnnbench.ops.kernels import Kernels
from tests.support import graphs
from tests.support.kernels import KERNELS

DRAWS = 20_000
ON = [name for name in graphs.NAMES if name not in ("no nodes", "no sources", "one node", "duplicates")]
over_exclude = pytest.mark.parametrize("exclude", [True, False], ids=["without edges", "all"])


def allowed(graph: Graph, exclude: bool) -> Tensor:
    """[sources, destinations] bool: the pairs that may be drawn."""
    pairs = torch.ones(graph.num_cols, graph.num_rows, dtype=torch.bool)
    if exclude:
        pairs[graph.col.long(), graph.row] = False
        if graph.num_rows == graph.num_cols:
            pairs.fill_diagonal_(False)
    return pairs


@over_exclude
@pytest.mark.parametrize("name", ON)
def test_what_is_no_edge_is_equally_likely(name: str, exclude: bool) -> None:
    graph = graphs.graph(name, [*KERNELS.values()][-1])
    may = allowed(graph, exclude)
    counts = torch.zeros(may.shape, dtype=torch.int64)
    source, destination = negatives.uniform(graph, DRAWS, 1, exclude=exclude)
    counts.index_put_((source, destination), torch.ones((), dtype=torch.int64), accumulate=True)
    assert not counts[~may].any()
    assert chisquare(counts[may].numpy()).pvalue > 1e-3

    sources = may.any(1).nonzero().flatten()[:3].flip(0)
    drawn = negatives.corrupt(graph, sources, DRAWS // 10, 2, exclude=exclude)
    assert torch.equal(drawn[0], sources.repeat_interleave(DRAWS // 10))
    for node, mine in zip(sources, drawn[1].chunk(len(sources)), strict=True):
        counts = mine.bincount(minlength=graph.num_rows)
        assert not counts[~may[node]].any()
        assert may[node].sum() == 1 or chisquare(counts[may[node]].numpy()).pvalue > 1e-3


@over_exclude
@pytest.mark.parametrize("name", ["no edges", "hub", "wide", "power law"])
def test_numbers_follow_from_seed_and_place(name: str, exclude: bool) -> None:
    """Not from the kernels, threads, or how many are drawn; of the seed 64 bits count."""
    by = [*KERNELS.values(), *(IsplibKernels(threads=threads) for threads in (2, 3, 5))]
    all_graphs = [graphs.graph(name, kernels) for kernels in by]
    sources = allowed(all_graphs[0], exclude).any(1).nonzero().flatten()
    met = []
    for seed in (0, 1, -1, 2**63):
        uniform, corrupted = (
            [draw(graph, seed) for graph in all_graphs]
            for draw in (
                lambda graph, seed: negatives.uniform(graph, 5000, seed, exclude=exclude),
                lambda graph, seed: negatives.corrupt(graph, sources, 5000 // len(sources), seed, exclude=exclude),
            )
        )
        for drawn in (uniform, corrupted):
            assert all(torch.equal(drawn[0], each) for each in drawn[1:])
        assert torch.equal(negatives.uniform(all_graphs[-1], 10, seed, exclude=exclude), uniform[0][:, :10])
        assert not any(torch.equal(uniform[0], other) for other in met)
        met.append(uniform[0])
    assert torch.equal(negatives.uniform(all_graphs[-1], 5000, -1 + 2**64, exclude=exclude), met[2])


def test_draws_that_would_favour_some_are_drawn_again() -> None:
    """Count, of 2^64 numbers, those left over once all pairs have as many."""
    rows, cols, count = 1 << 20, 3 << 29, 200_000
    assert 2**64 % (rows * cols) / 2**64 * count > 4
    given = torch.zeros(rows + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), cols, None, count
    drawn = Kernels().draw_pairs(*given, 5)
    assert all(torch.equal(kernels.draw_pairs(*given, 5), drawn) for kernels in KERNELS.values())
    assert (drawn[0] >= 0).all()
    assert (drawn[0] < rows).all()


def test_what_cannot_be_drawn_is_one_sentence() -> None:
    pairs = torch.ones(3, 3).nonzero().T
    with pytest.raises(GraphError, match="all 9 pairs of nodes are edges or self-loops, which leaves none"):
        negatives.uniform(Graph.from_edge_index(pairs, 3), 1, 0)
    star = Graph.from_edge_index(torch.tensor([[1, 1, 0], [0, 2, 2]]), 3)
    assert negatives.corrupt(star, torch.tensor([0, 2]), 2, 0)[1].tolist()[:2] == [1, 1]
    with pytest.raises(GraphError, match="source 1 has edges to all nodes, which leaves none to draw"):
        negatives.corrupt(star, torch.tensor([0, 1]), 1, 0)
    with pytest.raises(GraphError, match="source index 3 is outside the range of 0 to 2"):
        negatives.corrupt(star, torch.tensor([3]), 1, 0)
    with pytest.raises(GraphError, match=r"sources are torch.int32 \[1\]"):
        negatives.corrupt(star, torch.tensor([1], dtype=torch.int32), 1, 0)
