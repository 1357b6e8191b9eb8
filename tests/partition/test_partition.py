"""Parts of random graphs, put together again: they are the graph, in the order in which one process sums it up."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from gnnbench.datasets import NodeDataset, _reorder
from gnnbench.errors import DatasetError
from gnnbench.graph import Graph
from gnnbench.partition import part
from tests.support.partition import cases, dataset


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_parts_are_the_renumbered_graph(case: tuple[NodeDataset, Tensor, int]) -> None:
    data, assignment, parts = case
    pieces = [part.split(data, assignment, rank, parts) for rank in range(parts)]
    order = torch.cat([piece.node_id for piece in pieces])
    position = order.argsort()
    whole = Graph.from_edge_index(position[data.edge_index], data.num_nodes)
    for rank, piece in enumerate(pieces):
        begin, end = piece.begin, int(piece.offsets[rank + 1])
        assert (len(piece.offsets) - 1, end - begin) == (parts, piece.num_rows)
        assert bool((assignment[piece.node_id] == rank).all())
        assert bool((piece.node_id.diff() > 0).all())
        assert bool((piece.halo.diff() > 0).all())
        assert not bool(((piece.halo >= begin) & (piece.halo < end)).any())
        Graph.from_csr(piece.rowptr, piece.col, piece.num_rows + len(piece.halo))  # ascending and in range
        lower, higher = piece.halo[piece.halo < begin], piece.halo[piece.halo >= begin]
        source = torch.cat([lower, torch.arange(begin, end), higher])
        assert bool((source.diff() > 0).all())
        edges = slice(int(whole.rowptr[begin]), int(whole.rowptr[end]))
        assert torch.equal(piece.rowptr, whole.rowptr[begin : end + 1] - whole.rowptr[begin])
        assert torch.equal(source[piece.col.long()], whole.col[edges].long())
        assert set(source[piece.col.long()].tolist()) >= set(piece.halo.tolist())
        for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
            assert torch.equal(getattr(piece, name), getattr(data, name)[piece.node_id])
    assert sorted(order.tolist()) == [*range(data.num_nodes)]


@pytest.mark.parametrize("method", ["metis", "random", "contiguous"])
@settings(max_examples=15, deadline=None)
@given(case=cases())
def test_every_node_is_assigned_to_a_part(method: part.Method, case: tuple[NodeDataset, Tensor, int]) -> None:
    data, _, parts = case
    graph = data.graph(torch.device("cpu"))
    if parts > data.num_nodes:
        with pytest.raises(DatasetError, match=f"among {parts} parts; choose at most {data.num_nodes}"):
            part.assign(graph, parts, method, seed=3)
        return
    assignment = part.assign(graph, parts, method, seed=3)
    assert assignment.dtype == torch.int64
    assert assignment.shape == (data.num_nodes,)
    assert 0 <= int(assignment.min()) <= int(assignment.max()) < parts
    assert torch.equal(part.assign(graph, parts, method, seed=3), assignment)


def test_methods_balance_what_they_promise() -> None:
    """Metis and contiguous parts weigh the same, a node counting for itself and its in-edges."""
    data = dataset(900, 3000, seed=1)
    data.edge_index = data.edge_index[:, (data.edge_index != 0).all(0)]  # of the hub alone a part consists
    graph = data.graph(torch.device("cpu"))
    for method, limit in (("metis", 1.1), ("contiguous", 1.1)):
        weight = torch.bincount(part.assign(graph, 5, method, 0), 1.0 + graph.degree, 5)  # type: ignore[arg-type]
        assert float(weight.max() / weight.mean()) < limit
    assert [*part.assign(graph, 7, "random", 0).bincount()] == [129] * 4 + [128] * 3
    assert bool((part.assign(graph, 5, "contiguous", 0).diff() >= 0).all())
    halo = {
        method: sum(len(part.split(data, part.assign(graph, 2, method, 0), rank, 2).halo) for rank in range(2))
        for method in ("metis", "random")
    }
    assert halo["metis"] < halo["random"]


def test_wrong_assignments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = dataset(10, 30, seed=2)
    for wrong in (torch.zeros(9, dtype=torch.int64), torch.full((10,), 2), torch.full((10,), -1)):
        with pytest.raises(DatasetError, match="gives each of the 10 nodes one of the parts 0 to 1"):
            part.split(data, wrong, 0, 2)
    graph = data.graph(torch.device("cpu"))
    monkeypatch.setattr(_reorder, "METIS_LIMIT", 39)
    with pytest.raises(DatasetError, match="40 nodes and edges; choose --method random or contiguous"):
        part.assign(graph, 2, "metis", 0)
    assert part.chosen("auto") == ("metis", [])
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert part.chosen("auto") == ("contiguous", [part.PLAIN])
    assert part.chosen("random") == ("random", [])
    with pytest.raises(DatasetError, match="run `pip install pymetis`, or choose --method random or contiguous"):
        part.assign(graph, 2, "metis", 0)
