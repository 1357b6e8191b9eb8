"""Negatives: reproducible, spread evenly, and no edges where these are left out."""

from __future__ import annotations

import pytest
import torch

from gnnbench.errors import GraphError
from gnnbench.graph import Graph
from gnnbench.links import negatives

NODES = 6
DRAWS = 30_000
EDGES = torch.tensor([[0, 0, 1, 2, 5, 5], [1, 2, 0, 4, 5, 0]])


def test_all_pairs_that_are_no_edges_are_equally_likely() -> None:
    graph = Graph.from_edge_index(EDGES, NODES)
    pairs = negatives.uniform(graph, DRAWS, 3)
    counts = torch.zeros(NODES, NODES).index_put_((pairs[0], pairs[1]), torch.ones(()), accumulate=True)
    forbidden = torch.eye(NODES, dtype=torch.bool)
    forbidden[EDGES[0], EDGES[1]] = True
    assert not counts[forbidden].any()
    expected = DRAWS / int((~forbidden).sum())
    assert (counts[~forbidden] - expected).abs().max() < 6 * expected**0.5
    assert torch.equal(pairs, negatives.uniform(graph, DRAWS, 3))
    assert not torch.equal(pairs, negatives.uniform(graph, DRAWS, 4))
    everywhere = negatives.uniform(graph, DRAWS, 3, exclude_edges=False)
    assert len(everywhere.unique(dim=1)[0]) == NODES**2


def test_corrupted_links_keep_their_sources() -> None:
    graph = Graph.from_edge_index(EDGES, NODES)
    sources = torch.tensor([0, 5, 0])
    pairs = negatives.corrupt(graph, sources, 200, 0)
    assert torch.equal(pairs[0], sources.repeat_interleave(200))
    assert {*pairs[1, :200].tolist()} == {3, 4, 5}
    assert {*pairs[1, 200:400].tolist()} == {1, 2, 3, 4}


def test_a_complete_graph_has_none() -> None:
    graph = Graph.from_edge_index(torch.ones(3, 3).nonzero().T, 3)
    with pytest.raises(GraphError, match="no negatives: after 64 draws 5 of 5 pairs are still edges"):
        negatives.uniform(graph, 5, 0)
