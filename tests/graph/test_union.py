"""Batches of many graphs: those of PyG, in rows as one Graph has them, whoever puts them together."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

from gnnbench.backends import isplib
from gnnbench.errors import GraphError
from gnnbench.graph import Graph
from gnnbench.graph.union import Union, readout
from gnnbench.ops.kernels import Kernels
from tests.support.graphs import SQUARE, zoo

CASES = {"torch": Kernels()} | ({} if isplib.MISSING else {"isplib": isplib.IsplibKernels()})
over_cases = pytest.mark.parametrize("kernels", CASES.values(), ids=CASES.keys())
MEMBERS = {name: zoo()[name][:2] for name in SQUARE}
NODES = torch.tensor([nodes for _, nodes in MEMBERS.values()])
EDGES = torch.tensor([edges.size(1) for edges, _ in MEMBERS.values()])
SYMMETRIC = [SQUARE.index(name) for name in ("symmetric", "no edges", "one node", "no nodes")]
IDS = {
    "every graph": list(range(len(SQUARE))),
    "many": torch.randint(len(SQUARE), (90,), generator=torch.Generator().manual_seed(0)).tolist(),
    "one": [SQUARE.index("duplicates")],
    "none": [],
    "repeated": [2, 5, 2, 2],
    "without edges": [SQUARE.index("no edges")] * 2,
    "without nodes": [SQUARE.index("no nodes")] * 3,
    "of one node": [SQUARE.index("one node")] * 4,
    "symmetric": SYMMETRIC * 2,
}
over_ids = pytest.mark.parametrize("ids", IDS.values(), ids=IDS.keys())


def starts(sizes: Tensor) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def union(kernels: Kernels | None = None) -> Union:
    edge_index = torch.cat([edges for edges, _ in MEMBERS.values()], dim=1).int()
    return Union(starts(NODES), starts(EDGES), edge_index, kernels)


def batch(graphs: Union, ids: Tensor) -> Graph:
    return graphs.collate(ids, torch.zeros(graphs.num_nodes)).graph


def features(*rest: int, rows: int = int(NODES.sum())) -> Tensor:
    return torch.arange(rows * torch.Size(rest).numel()).reshape(rows, *rest).float()


def batch_of(ids: list[int], x: Tensor, edge_attr: Tensor) -> Batch:
    parts = zip(x.split(NODES.tolist()), edge_attr.split(EDGES.tolist()), MEMBERS.values(), strict=True)
    data = [Data(x=x, edge_index=edges, edge_attr=edge_attr) for x, edge_attr, (edges, _) in parts]
    if not ids:  # which PyG has no batch of
        return Batch.from_data_list([data[SQUARE.index("no nodes")]])
    return Batch.from_data_list([data[graph] for graph in ids])


def same(found: Tensor | None, truth: Tensor | None) -> bool:
    return found is not None and truth is not None and found.dtype == truth.dtype and torch.equal(found, truth)


def assert_same_graph(found: Graph, truth: Graph) -> None:
    assert same(found.rowptr, truth.rowptr)
    assert same(found.col, truth.col)
    assert found.num_cols == truth.num_cols
    assert found.is_symmetric == truth.is_symmetric
    assert (found.transpose is found) == truth.is_symmetric
    assert same(found.transpose.rowptr, truth.transpose.rowptr)
    assert same(found.transpose.col, truth.transpose.col)
    assert found.transpose.is_symmetric == truth.is_symmetric
    assert same(found.perm, truth.perm)


@over_ids
@over_cases
def test_a_batch_is_that_of_pyg(kernels: Kernels, ids: list[int]) -> None:
    x, edge_attr = features(3), features(2, rows=int(EDGES.sum())).long()
    graphs, truth = union(kernels), batch_of(ids, x, edge_attr)
    of = torch.tensor(ids, dtype=torch.int64)
    found = graphs.collate(of, x)
    assert same(found.x, truth.x)
    assert same(graphs.edge_index(of), truth.edge_index)
    assert same(graphs.gather_edges(of, edge_attr), truth.edge_attr)
    if ids:
        assert same(found.ptr, truth.ptr)
    assert found.ptr.numel() == len(ids) + 1
    sorted_batch = Graph.from_edge_index(truth.edge_index, truth.num_nodes, layout=kernels)
    assert_same_graph(found.graph, sorted_batch)
    assert same(found.graph.edge_id, sorted_batch.edge_id)
    assert_same_graph(batch(graphs, of).with_self_loops, sorted_batch.with_self_loops)
    assert_same_graph(found.graph.with_self_loops, sorted_batch.with_self_loops)  # its transpose was asked for
    in_rows = graphs.collate(of, x, edge_attr)
    assert_same_graph(in_rows.graph, sorted_batch)
    assert in_rows.graph.edge_id is None
    assert same(in_rows.edge_attr, truth.edge_attr[sorted_batch.edge_id])


@over_ids
@over_cases
def test_a_readout_is_pygs_pooling(kernels: Kernels, ids: list[int]) -> None:
    graphs, of = union(kernels), torch.tensor(ids, dtype=torch.int64)
    x = torch.randn(int(NODES.sum()), 5, generator=torch.Generator().manual_seed(1))
    _, x, ptr, _ = graphs.collate(of, x)
    pooled = readout(ptr, kernels)
    owner = torch.repeat_interleave(torch.arange(len(ids)), ptr.diff())
    for reduce, pool in (("sum", global_add_pool), ("mean", global_mean_pool)):
        torch.testing.assert_close(kernels.spmm(pooled, x, None, reduce), pool(x, owner, len(ids)))
    assert same(kernels.spmm_max(pooled, x, None, "max")[0], global_max_pool(x, owner, len(ids)))
    assert same(pooled.transpose.row, torch.arange(int(ptr[-1])))
    assert same(pooled.transpose.col, owner.int())
    assert_same_graph(pooled, Graph.from_csr(pooled.rowptr, pooled.col, pooled.num_cols, kernels))


@over_cases
@pytest.mark.parametrize(
    "x",
    [
        features(7).to(torch.bfloat16),
        features(2, 3).double(),
        features().long(),
        features(5) % 2 > 0,
        features(0),
        features(4)[:, ::2],
    ],
    ids=["bfloat16", "three dimensions", "one dimension", "bool", "no columns", "strided"],
)
def test_features_of_any_type_are_copied(kernels: Kernels, x: Tensor) -> None:
    ids = IDS["many"]
    found = union(kernels).gather(torch.tensor(ids, dtype=torch.int32), x)
    parts = x.split(NODES.tolist())
    assert same(found, torch.cat([parts[graph] for graph in ids]))


@over_cases
def test_a_batch_needs_no_sort(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = union(kernels)
    for sorting in ("csr", "transpose", "is_symmetric"):
        monkeypatch.setattr(type(kernels), sorting, lambda *_: pytest.fail("sorted"))
    for ids in (torch.tensor(IDS["many"]), torch.tensor(IDS["symmetric"])):
        assert batch(graphs, ids).transpose.num_edges == graphs.edge_index(ids).size(1)
        assert readout(graphs.ptr(ids), kernels).transpose.num_cols == ids.numel()


@over_cases
def test_threads_share_a_union(kernels: Kernels) -> None:
    graphs, x = union(kernels), features(3)
    order = torch.randint(len(SQUARE), (40, 25), generator=torch.Generator().manual_seed(2))
    alone = [graphs.collate(ids, x) for ids in order]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda ids: graphs.collate(ids, x), order))
    for found, truth in zip(together, alone, strict=True):
        assert same(found.x, truth.x)
        assert same(found.graph.col, truth.graph.col)
        assert same(found.graph.rowptr, truth.graph.rowptr)


@over_cases
def test_batches_are_gone_when_nobody_needs_them(kernels: Kernels) -> None:
    """At once, not when Python looks for circles of references."""
    graphs = union(kernels)
    gc.disable()
    try:
        for ids in (IDS["symmetric"], IDS["many"]):
            graph = batch(graphs, torch.tensor(ids))
            looped, _ = graph.with_self_loops.transpose, graph.transpose
            gone = weakref.ref(graph), weakref.ref(looped)
            del graph, looped, _
            assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


@over_cases
def test_a_batch_of_inference_mode_can_be_trained_with(kernels: Kernels) -> None:
    with torch.inference_mode():
        found = union(kernels).collate(torch.tensor(IDS["many"]), features(3))
    assert not found.x.is_inference()
    assert not found.graph.transpose.col.is_inference()


def test_without_rows_there_are_edges_only() -> None:
    edge_index = MEMBERS["hub"][0]
    graphs = Union(torch.tensor([0, 30]), torch.tensor([0, 300]), edge_index, rows=False)
    assert same(graphs.edge_index(torch.tensor([0])), edge_index)
    with pytest.raises(GraphError, match="rows=True"):
        batch(graphs, torch.tensor([0]))


def made(graph_ptr: list[int], edge_ptr: list[int], *edges: tuple[int, int]) -> Union:
    edge_index = torch.tensor([*edges], dtype=torch.int64).reshape(-1, 2).t()
    return Union(torch.tensor(graph_ptr), torch.tensor(edge_ptr), edge_index)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: made([1, 2], [0, 0]), "graph_ptr begins at 1"),
        (lambda: made([0, 2, 1], [0, 0, 0]), "graph_ptr falls from 2 to 1 at graph 1"),
        (lambda: made([0, 2], [0, 0, 0]), "graph_ptr is of 1 graphs, but edge_ptr of 2"),
        (lambda: made([0, 2], [0, 2], (0, 1)), "edge_ptr ends at 2, but edge_index has 1 edges"),
        (lambda: made([0, 2, 2, 5], [0, 1, 1, 2], (0, 1), (3, 1)), "graph 2 has 3 nodes.* the source 3"),
        (lambda: made([0, 2, 2, 5], [0, 0, 1, 2], (0, 0), (2, 1)), "graph 1 has 0 nodes.* the source 0"),
        (lambda: made([0, 2], [0, 1], (0, -1)), "graph 0 has 2 nodes.* the destination -1"),
        (lambda: made([0, 2**31], [0, 0]), "2147483648 rows"),
        (lambda: Union(torch.zeros(2), torch.zeros(2), torch.zeros(2, 0).long()), "must be integers"),
        (lambda: Union(torch.zeros(2).long(), torch.zeros(2).long(), torch.zeros(3, 0).long()), r"\[2, E\]"),
    ],
)
def test_what_is_no_union_is_refused(make: Callable[[], Union], problem: str) -> None:
    with pytest.raises(GraphError, match=problem):
        make()


@over_cases
def test_what_is_no_batch_is_refused(kernels: Kernels) -> None:
    graphs, last = union(kernels), len(SQUARE)
    for ids in ([0, last], [-1]):
        with pytest.raises(GraphError, match=f"graph index {ids[-1]} is outside the range of 0 to {last - 1}"):
            batch(graphs, torch.tensor(ids))
    with pytest.raises(GraphError, match="vector of integers"):
        batch(graphs, torch.tensor([0.0]))
    with pytest.raises(GraphError, match=f"there are {int(NODES.sum())} nodes"):
        graphs.gather(torch.tensor([0]), torch.zeros(3, 2))
    large = Union(torch.tensor([0, 10**6]), torch.tensor([0, 0]), torch.zeros(2, 0).int(), kernels)
    with pytest.raises(GraphError, match="3000000000 rows"):
        batch(large, torch.zeros(3000).long())
