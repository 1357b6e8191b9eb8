"""Graphs: every layout sorts, transposes and adds self-loops alike, and what is no graph is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.utils import add_remaining_self_loops, sort_edge_index

from gnnbench.backends import isplib
from gnnbench.errors import GraphError
from gnnbench.graph import Compressed, CSRBuilder, Graph
from tests.support import graphs

LAYOUTS: dict[str, CSRBuilder] = {"torch": CSRBuilder()}
LAYOUTS |= {} if isplib.MISSING else {f"isplib {t} threads": isplib.IsplibKernels(threads=t) for t in (1, 3)}
over_graphs = pytest.mark.parametrize("graph_name", graphs.NAMES)
over_layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())


def same(found: Compressed, truth: Compressed) -> bool:
    return all(torch.equal(*pair) and pair[0].dtype == pair[1].dtype for pair in zip(found, truth, strict=True))


@over_graphs
@over_layouts
def test_rows_hold_the_edges_of_edge_index(layout: CSRBuilder, graph_name: str) -> None:
    edge_index, rows, cols = graphs.zoo()[graph_name]
    graph = Graph.from_edge_index(edge_index, rows, cols, layout)
    assert (graph.num_rows, graph.num_cols, graph.num_edges) == (rows, cols, edge_index.size(1))
    assert graph.edge_id is not None
    src, dst = edge_index[:, graph.edge_id.long()]
    assert torch.equal(graph.col, src.int())
    assert torch.equal(graph.row, dst)
    key = graph.row * cols + graph.col
    assert (key.diff() >= 0).all()
    assert (graph.edge_id.diff()[key.diff() == 0] > 0).all()  # equal edges keep their order
    assert torch.equal(graph.degree, dst.bincount(minlength=rows))
    assert torch.equal(graph.edge_id.sort()[0], torch.arange(graph.num_edges, dtype=torch.int32))


@over_graphs
@over_layouts
def test_transpose(layout: CSRBuilder, graph_name: str) -> None:
    graph = graphs.graph(graph_name, layout)
    ones = np.ones(graph.num_edges)
    matrix = scipy.sparse.csr_matrix((ones, graph.col, graph.rowptr), shape=(graph.num_rows, graph.num_cols))
    turned, perm = graph.transpose, graph.perm.long()
    assert (turned.num_rows, turned.num_cols) == (graph.num_cols, graph.num_rows)
    assert torch.equal(turned.row, graph.col[perm].long())
    assert torch.equal(turned.col, graph.row[perm].int())
    turned_matrix = scipy.sparse.csr_matrix((ones, turned.col, turned.rowptr), shape=matrix.shape[::-1])
    assert abs(turned_matrix - matrix.T).sum() == 0
    assert same(
        layout.transpose(turned.rowptr, turned.col, turned.num_cols)._replace(perm=graph.col),
        Compressed(graph.rowptr, graph.col, graph.col),
    )


@over_layouts
@pytest.mark.parametrize("edges", [40, 100_000])  # by one thread, and by all
def test_one_other_end_is_another_graph(layout: CSRBuilder, edges: int) -> None:
    edge_index = torch.randint(50, (2, edges), generator=torch.Generator().manual_seed(0))
    graph = Graph.from_edge_index(edge_index, 50, layout=layout)
    assert layout.is_of(graph.rowptr, graph.col, graph.edge_id, *edge_index)
    for end in (0, 1):
        other = edge_index.clone()
        other[end, edges // 2] = (other[end, edges // 2] + 1) % 50
        assert not layout.is_of(graph.rowptr, graph.col, graph.edge_id, *other)
    assert not layout.is_of(graph.rowptr, graph.col, graph.edge_id, *edge_index.flip(1))
    assert layout.is_of(graph.rowptr, graph.col, None, graph.col.long(), graph.row)


@over_layouts
@pytest.mark.parametrize("graph_name", graphs.SQUARE)
def test_symmetry(layout: CSRBuilder, graph_name: str) -> None:
    graph = graphs.graph(graph_name, layout)
    dense = torch.zeros(graph.num_rows, graph.num_rows)
    dense.index_put_((graph.row, graph.col.long()), torch.ones(graph.num_edges), accumulate=True)
    assert graph.is_symmetric == torch.equal(dense, dense.t())
    assert (graph.transpose is graph) == graph.is_symmetric


@over_layouts
def test_one_edge_breaks_symmetry(layout: CSRBuilder) -> None:
    edge_index = graphs.zoo()["symmetric"][0]
    for dropped in range(edge_index.size(1)):
        left = torch.cat([edge_index[:, :dropped], edge_index[:, dropped + 1 :]], dim=1)
        graph = Graph.from_edge_index(left, 15, layout=layout)
        loop = bool(edge_index[0, dropped] == edge_index[1, dropped])
        assert graph.is_symmetric == loop
    assert not Graph.from_edge_index(torch.tensor([[0], [0]]), 1, 2, layout).is_symmetric


@over_layouts
@pytest.mark.parametrize("nodes", [3, 70_000])  # by one thread, and by all
def test_equal_degrees_do_not_make_a_graph_symmetric(layout: CSRBuilder, nodes: int) -> None:
    """A directed ring, and the same with the way back."""
    node = torch.arange(nodes)
    ring = torch.stack([node, (node + 1) % nodes])
    graph = Graph.from_edge_index(ring, nodes, layout=layout)
    assert not graph.is_symmetric
    assert torch.equal(graph.transpose.col, ring[1].int())
    assert torch.equal(graph.perm, graph.col.argsort().int())
    assert Graph.from_edge_index(torch.cat([ring, ring.flip(0)], 1), nodes, layout=layout).is_symmetric


@over_layouts
@pytest.mark.parametrize("graph_name", graphs.SQUARE)
def test_self_loops_are_those_of_pyg(layout: CSRBuilder, graph_name: str) -> None:
    edge_index, nodes, _ = graphs.zoo()[graph_name]
    graph = graphs.graph(graph_name, layout).with_self_loops
    truth = sort_edge_index(add_remaining_self_loops(edge_index, num_nodes=nodes)[0], sort_by_row=False)
    assert torch.equal(torch.stack([graph.col.long(), graph.row]), truth)
    assert torch.equal(graph.gcn_scale, graph.degree.double().rsqrt())


@over_layouts
@pytest.mark.parametrize("graph_name", graphs.NAMES)
def test_edges_beside_self_loops_know_where_they_came_from(layout: CSRBuilder, graph_name: str) -> None:
    edge_index, rows, cols = graphs.zoo()[graph_name]
    graph = graphs.graph(graph_name, layout)
    looped, nodes = graph.with_self_loops, torch.arange(min(rows, cols))
    source, destination = torch.cat([edge_index, nodes.expand(2, -1)], dim=1)[:, graph.looped_edge_id]
    assert torch.equal(torch.stack([looped.col.long(), looped.row]), torch.stack([source, destination]))
    inner = edge_index[:, edge_index[0] != edge_index[1]].size(1)
    assert len(graph.looped_edge_id.unique()) == looped.num_edges == inner + len(nodes)


def test_gcn_scale_of_an_isolated_node_is_zero() -> None:
    graph = graphs.graph("isolated nodes")
    assert torch.equal(graph.gcn_scale == 0, graph.degree == 0)


@pytest.mark.parametrize(
    ("rows", "cols", "edges"),
    [
        (1000, 1000, 200_000),  # rows of about 200, sorted by digits
        (3, 90_000, 200_000),  # fewer rows than threads, long rows
        (90_000, 3, 200_000),  # many rows per bucket, most of them empty
        (50, 5_000_000, 100_000),  # four digits per column
    ],
)
def test_large_graphs_are_sorted_alike(rows: int, cols: int, edges: int) -> None:
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(rows, (edges,), generator=generator).clamp_(min=rows // 10)
    col = torch.randint(cols, (edges,), generator=generator)
    plain = CSRBuilder()
    truth = plain.csr(row, col, rows, cols)
    turned = plain.transpose(truth.rowptr, truth.col, cols)
    square = max(rows, cols)
    loops = plain.with_self_loops(*plain.csr(row, col, square, square)[:2], square)
    both = plain.csr(torch.cat([row, col]), torch.cat([col, row]), square, square)
    for threads in (1, 2, 5):
        layout = isplib.IsplibKernels(threads=threads)
        assert same(layout.csr(row, col, rows, cols), truth)
        assert same(layout.transpose(truth.rowptr, truth.col, cols), turned)
        found = layout.with_self_loops(*layout.csr(row, col, square, square)[:2], square)
        assert all(torch.equal(*pair) for pair in zip(found, loops, strict=True))
        assert layout.is_symmetric(both.rowptr, both.col)
        assert not layout.is_symmetric(*loops)


@settings(max_examples=150, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=120),
    rows=st.integers(10, 14),
    threads=st.integers(1, 4),
)
def test_any_edges_are_sorted_and_transposed_as_by_torch(
    edges: list[tuple[int, int]], rows: int, threads: int
) -> None:
    row, col = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t().contiguous()
    plain, fast = CSRBuilder(), isplib.IsplibKernels(threads=threads)
    found = fast.csr(row, col, rows, 6)
    assert same(found, plain.csr(row, col, rows, 6))
    turned = fast.transpose(found.rowptr, found.col, 6)
    assert same(turned, plain.transpose(found.rowptr, found.col, 6))
    back = fast.transpose(turned.rowptr, turned.col, rows)
    assert torch.equal(back.rowptr, found.rowptr)
    assert torch.equal(back.col, found.col)
    assert torch.equal(turned.perm[back.perm.long()], torch.arange(len(edges), dtype=torch.int32))


@over_layouts
def test_any_integer_type_and_stride_is_taken(layout: CSRBuilder) -> None:
    edge_index, nodes, _ = graphs.zoo()["power law"]
    truth = Graph.from_edge_index(edge_index, nodes, layout=layout)
    for same_edges in (edge_index.int(), edge_index.short(), edge_index.t().contiguous().t()):
        found = Graph.from_edge_index(same_edges, nodes, layout=layout)
        assert torch.equal(found.col, truth.col)
        assert torch.equal(found.rowptr, truth.rowptr)


@pytest.mark.parametrize(
    ("edge_index", "rows", "cols", "match"),
    [
        (torch.tensor([[0, 3], [0, 1]]), 3, None, "source index 3 is outside the range of 0 to 2"),
        (torch.tensor([[0, 1], [0, -1]]), 3, None, "destination index -1 is outside the range of 0 to 2"),
        (torch.tensor([[0, 4], [0, 2]]), 2, 5, "destination index 2 is outside the range of 0 to 1"),
        (torch.tensor([[0], [0]]), 0, None, "source index 0 is outside the range of 0 to -1"),
        (torch.zeros(2, 3), 3, None, "must hold integers"),
        (torch.zeros(3, 2, dtype=torch.int64), 3, None, r"shape \[3, 2\], but must be \[2, E\]"),
        (torch.zeros(1, 1, dtype=torch.int64).expand(2, 2**31), 3, None, "2147483648 edges is outside"),
        (torch.zeros(2, 0, dtype=torch.int64), 2**31, None, "2147483648 rows is outside"),
    ],
)
def test_what_is_no_graph_is_refused(edge_index: Tensor, rows: int, cols: int | None, match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Graph.from_edge_index(edge_index, rows, cols)


@pytest.mark.parametrize(
    ("rowptr", "col", "match"),
    [
        ([0, 2, 1, 3], [0, 1, 2], "never fall"),
        ([1, 2, 3], [0, 1, 1], "rise from 0"),
        ([0, 1, 2], [0, 1, 1], "the number of edges, 3"),
        ([0, 2, 3], [0, 5, 0], "col index 5 is outside the range of 0 to 1"),
        ([0, 2, 3], [1, 0, 0], "falls after edge 0"),
        ([], [], "must be vectors"),
    ],
)
def test_rows_that_are_no_graph_are_refused(rowptr: list[int], col: list[int], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        Graph.from_csr(torch.tensor(rowptr, dtype=torch.int64), torch.tensor(col, dtype=torch.int32))


def test_rows_are_taken_as_they_are() -> None:
    graph = Graph.from_csr(torch.tensor([0, 2, 2, 3]), torch.tensor([1, 1, 0]), 2)
    assert (graph.num_rows, graph.num_cols, graph.edge_id) == (3, 2, None)
    assert repr(graph) == "Graph(3 x 2, 3 edges, cpu)"
    graph.rowptr[1] = 1
    with pytest.raises(GraphError, match="edited in place"):
        graph.check_unchanged()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rowptr", torch.tensor([0, 10**9])),
        ("col", torch.full((900,), 10**6, dtype=torch.int32)),
        ("num_cols", 10**6),
    ],
)
def test_a_graph_whose_parts_were_replaced_is_refused(name: str, value: Tensor | int) -> None:
    graph = graphs.graph("power law")
    graph.check_unchanged()
    setattr(graph, name, value)
    with pytest.raises(GraphError, match="was replaced"):
        graph.check_unchanged()


def test_a_graph_met_in_inference_mode_can_be_trained_with() -> None:
    with torch.inference_mode():
        graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 0, 0]]), 3)
        derived = [graph.transpose, graph.with_self_loops, graph.with_self_loops.transpose]
        tensors = [graph.degree, graph.row, graph.perm, graph.gcn_scale]
    for other in (graph, *derived):
        other.check_unchanged()
    assert not any(tensor.is_inference() for tensor in tensors)
