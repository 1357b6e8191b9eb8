"""Adjacencies of torch_sparse, where that is installed: convs and `spmm` patched against unpatched."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch_geometric import utils

import gnnbench
from gnnbench.graph import CSRBuilder, Graph
from gnnbench.graph.cache import GraphCache
from tests.convs.test_convs import CONVS
from tests.patch.test_patch_convs import WEIGHTED, check, outcome, rand, simple, width
from tests.patch.test_patch_functions import check as check_function
from tests.support import graphs
from tests.support.dropin import BACKEND

torch_sparse = pytest.importorskip("torch_sparse", reason="torch_sparse is not installed")
pytestmark = [pytest.mark.usefixtures("always"), pytest.mark.filterwarnings("ignore:Sparse")]


def matrix(graph: str, *, valued: bool, distinct: bool = True) -> Any:
    """The transposed adjacency, as PyG wants it, with random values or none."""
    if distinct:
        edge_index, nodes = simple(graph)
        rows, cols = nodes, nodes
    else:
        edge_index, rows, cols = graphs.zoo()[graph]
    value = rand(edge_index.size(1), grad=False).abs() + 0.1 if valued else None
    return torch_sparse.SparseTensor(row=edge_index[1], col=edge_index[0], value=value, sparse_sizes=(rows, cols))


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("graph", ["hub", "isolated nodes"])
@pytest.mark.parametrize("case", [*CONVS, *[name for name in WEIGHTED if name not in CONVS]])
def test_convs(case: str, graph: str, valued: bool) -> None:
    make, adj_t = {**WEIGHTED, **CONVS}[case], matrix(graph, valued=valued)
    arguments = {"x": rand(adj_t.size(0), width(make())), "edge_index": adj_t}
    torch.manual_seed(0)
    raises = isinstance(outcome(make().double(), arguments), type)
    declined = "cached" in case or (valued and hasattr(make(), "lin_edge"))
    check(make, arguments, accelerated=None if raises else not declined)


@pytest.mark.parametrize("graph", ["self loops", "duplicates"])
@pytest.mark.parametrize(
    "case", ["gcn", "sage mean", "sage max", "gat", "gin", "transformer", "graph conv", "agnn"]
)
def test_loops_and_repeated_edges(case: str, graph: str) -> None:
    adj_t = matrix(graph, valued=False, distinct=False)
    arguments = {"x": rand(adj_t.size(0), width(CONVS.get(case, WEIGHTED.get(case))())), "edge_index": adj_t}
    check({**WEIGHTED, **CONVS}[case], arguments, accelerated=case not in ("gcn", "gat", "agnn"))


@pytest.mark.parametrize("graph", ["wide", "tall"])
@pytest.mark.parametrize("case", ["sage mean", "gin of one linear", "gat without loops"])
def test_pairs(case: str, graph: str) -> None:
    adj_t = matrix(graph, valued=False, distinct=False)
    x = rand(adj_t.size(1), 7), rand(adj_t.size(0), 7, seed=2)
    check(CONVS[case], {"x": x, "edge_index": adj_t})


@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max"])
@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("graph", ["isolated nodes", "wide", "tall"])
def test_spmm(graph: str, valued: bool, reduce: str) -> None:
    src = matrix(graph, valued=valued, distinct=False).coalesce()
    x = rand(src.size(1), 5)
    check_function(lambda: utils.spmm(src, x, reduce), x, ran="spmm")


def test_values_with_a_gradient_are_pygs() -> None:
    src, x = matrix("hub", valued=True), rand(30, 5)
    value = src.storage.value().requires_grad_()
    check_function(lambda: utils.spmm(src, x), x, value, ran=None)


def test_a_graph_is_found_by_the_tensors_inside() -> None:
    cache, adj_t = GraphCache(CSRBuilder(), max_bytes=1 << 20), matrix("hub", valued=False)
    graph = cache.graph(adj_t, 30, 30)
    row, col, _ = adj_t.coo()
    assert torch.equal(graph.col, Graph.from_edge_index(torch.stack([col, row]), 30).col)
    assert cache.graph(adj_t.set_value(torch.ones(adj_t.nnz()), layout="coo"), 30, 30) is graph
    assert cache.graph(adj_t.copy(), 30, 30) is graph
    assert cache.graph(adj_t.clone(), 30, 30) is not graph
    assert cache.graph(adj_t.t(), 30, 30) is not graph
    col[0] = (col[0] + 1) % 30
    assert cache.graph(adj_t, 30, 30) is not graph
    del adj_t, row, col
    gc.collect()
    assert len(cache) == 0


def test_a_matrix_is_kept_while_patched_and_no_longer() -> None:
    adj_t, x = matrix("hub", valued=False), rand(30, 7)
    with gnnbench.patched(BACKEND):
        conv = CONVS["sage mean"]().double()
        for _ in range(3):
            conv(x, adj_t)
        assert gnnbench.patch_status().graphs == 1
        del adj_t
        gc.collect()
        assert gnnbench.patch_status().graphs == 0
