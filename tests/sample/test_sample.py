"""Sampled neighbourhoods: parts of the graph, every edge equally likely, the same whoever draws them."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.isplib.batch import BY_NODE, Positions
from gnnbench.backends.isplib.sample import Neighbors, Sample, SampledEdges
from gnnbench.errors import ConfigError, GraphError
from gnnbench.graph import CSRBuilder, Graph
from gnnbench.graph.layout import MAX_INT32
from tests.support import graphs

pytestmark = pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
MILLION = 10**6


def neighbors(edge_index: Tensor, nodes: int, *, wide: bool = False) -> Neighbors:
    graph = graphs.Graph.from_edge_index(edge_index, nodes)
    return Neighbors(graph.rowptr, graph.col.long() if wide else graph.col, graph.edge_id)


def positions(rows: Neighbors) -> list[Positions]:
    """Return those that no batch uses."""
    (kept,) = rows.typed._positions.values()
    return kept


def star(degree: int) -> Neighbors:
    """A node 0 with so many in-edges, which are named by their places."""
    rowptr = torch.full((degree + 1,), degree)
    rowptr[0] = 0
    return Neighbors(rowptr, torch.arange(degree, dtype=torch.int32))


def draws(degree: int, fanout: int, replace: bool, key: int = 1) -> Tensor:
    """The edges of node 0 that were drawn, [rows, fanout], about a million."""
    seeds = torch.zeros(MILLION // fanout, dtype=torch.int64)
    edge = star(degree).sample(seeds, [fanout], key, replace).edge
    return edge.view(len(seeds), -1)


def assert_likely(statistic: float, freedom: int) -> None:
    """Neither too far off nor too good to be true; the key is fixed, so that this either holds or does not."""
    assert 1e-4 < stats.chi2.sf(statistic, freedom) < 1 - 1e-4


@pytest.mark.parametrize("degree", [2, 3, 7, 63, 64, 65, 1000, 40_000])
@pytest.mark.parametrize("replace", [False, True], ids=["without", "with replacement"])
def test_every_edge_of_a_row_is_equally_likely(degree: int, replace: bool) -> None:
    fanout = min(10, degree - 1)
    drawn = draws(degree, fanout, replace)
    counts, expected = np.bincount(drawn.flatten(), minlength=degree), drawn.numel() / degree
    variance = expected if replace else expected * (1 - fanout / degree) * degree / (degree - 1)
    assert len(counts) == degree
    assert_likely(float(((counts - expected) ** 2).sum() / variance), degree - 1)


@pytest.mark.parametrize("degree", [2, 5, 64, 1000, 40_000])
def test_no_edge_is_drawn_twice_without_replacement(degree: int) -> None:
    for fanout in {1, degree // 2, degree - 1}:
        ordered = draws(degree, fanout, replace=False).sort(1).values
        assert bool((ordered.diff() > 0).all())
        assert int(ordered.max()) < degree


def test_every_set_of_edges_is_equally_likely() -> None:
    ordered = draws(7, 3, replace=False).sort(1).values
    sets, counts = np.unique(ordered.numpy(), axis=0, return_counts=True)
    assert [*map(tuple, sets)] == [*combinations(range(7), 3)]
    assert_likely(stats.chisquare(counts).statistic, len(sets) - 1)


@pytest.mark.parametrize("degree", [1, 3])
def test_rows_that_are_short_enough_are_taken_whole(degree: int) -> None:
    for fanout in (-1, 3, 10):
        batch = star(degree).sample(torch.tensor([0, 0]), [fanout], key=1)
        assert batch.edge.tolist() == [*range(degree)] * 2
    assert draws(1, 4, replace=True).flatten().unique().tolist() == [0]


def test_rows_hops_and_batches_are_drawn_independently() -> None:
    """Pairs of draws next to each other in a row, in neighbouring rows, and in the same place by the next key."""
    first, second = draws(16, 10, replace=True), draws(16, 10, replace=True, key=2)
    for one, other in ((first[:, 0], first[:, 1]), (first[:-1], first[1:]), (first, second)):
        pairs = np.bincount((one * 16 + other).flatten(), minlength=256)
        assert_likely(stats.chisquare(pairs).statistic, 255)
    seeds = torch.arange(20_000)  # each with 16 edges from a node of its own, which has 16 more
    sources = torch.cat([seeds + len(seeds), seeds]).repeat_interleave(16)
    chains = Neighbors(torch.arange(2 * len(seeds) + 1) * 16, sources)
    one, other = (chains.sample(seeds, [1, 1], key=1).edge % 16).view(2, -1)
    pairs = np.bincount(one * 16 + other, minlength=256)
    assert_likely(stats.chisquare(pairs).statistic, 255)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, int, Tensor, list[int], bool]:
    """A directed graph with loops, duplicates and isolated nodes; seeds, repeated ones too; fanouts; replace."""
    nodes = draw(st.integers(1, 12))
    node = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=60))
    seeds = draw(st.lists(node, min_size=1, max_size=6))
    fanouts = draw(st.lists(st.integers(-1, 5), min_size=1, max_size=4))
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    return edge_index, nodes, torch.tensor(seeds), fanouts, draw(st.booleans())


def check(batch: Sample, edge_index: Tensor, nodes: int, seeds: Tensor, fanouts: list[int], replace: bool) -> None:
    degree = torch.bincount(edge_index[1], minlength=nodes).tolist()
    places = {node: place for place, node in reversed([*enumerate(batch.node.tolist())])}
    assert torch.equal(batch.node[: len(seeds)], seeds)
    assert len(places) == len(batch.node) - len(seeds) + len(seeds.unique())
    assert torch.equal(torch.stack([batch.node[batch.row], batch.node[batch.col]]), edge_index[:, batch.edge])
    assert batch.row.tolist() == [places[node] for node in batch.node[batch.row].tolist()]
    assert bool((batch.col.diff() >= 0).all())
    assert (sum(batch.num_nodes), sum(batch.num_edges)) == (len(batch.node), len(batch.edge))
    first = edge = 0
    for fanout, rows, edges in zip(fanouts, batch.num_nodes, batch.num_edges, strict=False):
        of_hop = batch.col[edge : edge + edges].tolist()
        new = batch.row[edge : edge + edges].unique().tolist()
        for row in range(first, first + rows):
            size = degree[int(batch.node[row])]
            drawn = batch.edge[batch.col == row]
            wanted = size if fanout < 0 else fanout * (size > 0) if replace else min(size, fanout)
            assert of_hop.count(row) == len(drawn) == wanted
            assert (replace and fanout >= 0) or len(drawn.unique()) == len(drawn)
        first, edge = first + rows, edge + edges
        assert [place for place in new if place >= first] == [*range(first, max([first - 1, *new]) + 1)]


@settings(deadline=None, max_examples=100)
@given(cases(), st.integers(-(2**63), 2**63 - 1))
def test_a_batch_is_a_part_of_the_graph(case: tuple[Tensor, int, Tensor, list[int], bool], key: int) -> None:
    edge_index, nodes, seeds, fanouts, replace = case
    batch = neighbors(edge_index, nodes).sample(seeds, fanouts, key, replace)
    check(batch, *case)
    same(batch, neighbors(edge_index, nodes, wide=True).sample(seeds, fanouts, key, replace))


@settings(deadline=None, max_examples=100)
@given(cases())
def test_rows_of_a_batch_are_those_of_a_sort(case: tuple[Tensor, int, Tensor, list[int], bool]) -> None:
    """And so are their transpose and the order of its edges; none of it is computed from a layout."""
    edge_index, nodes, seeds, fanouts, replace = case
    batch = neighbors(edge_index, nodes).sample(seeds, fanouts, 1, replace)
    for edges in (batch.edges, *batch.hops()):
        graph = edges.graph(layout=Unused())
        truth = Graph.from_edge_index(edges.edge_index, edges.num_rows, edges.num_cols)
        assert graph.is_symmetric == truth.is_symmetric
        pairs = {
            "rowptr": (graph.rowptr, truth.rowptr),
            "col": (graph.col, truth.col),
            "perm": (graph.perm, truth.perm),
            "the transpose's rowptr": (graph.transpose.rowptr, truth.transpose.rowptr),
            "the transpose's col": (graph.transpose.col, truth.transpose.col),
        }
        for name, (ours, theirs) in pairs.items():
            assert ours.dtype == theirs.dtype, name
            assert torch.equal(ours, theirs), name


@settings(deadline=None, max_examples=50)
@given(cases())
def test_hops_are_what_the_seeds_depend_on(case: tuple[Tensor, int, Tensor, list[int], bool]) -> None:
    edge_index, nodes, seeds, fanouts, replace = case
    batch = neighbors(edge_index, nodes).sample(seeds, fanouts, 1, replace)
    hops = batch.hops()
    assert (hops[0].num_cols, hops[-1].num_rows) == (len(batch.node), len(seeds))
    assert [hop.num_cols for hop in hops[1:]] == [hop.num_rows for hop in hops[:-1]]
    for hop in hops:
        assert torch.equal(hop.col, batch.col[batch.col < hop.num_rows])
        assert torch.equal(hop.row, batch.row[batch.col < hop.num_rows])
        assert bool((hop.row < hop.num_cols).all())


@pytest.mark.parametrize("wrong", [{"col": [1, 0]}, {"col": [0, 2]}, {"row": [0, 3]}, {"row": [-1, 0]}])
def test_edges_that_are_no_batch_are_no_graph(wrong: dict[str, list[int]]) -> None:
    edges = torch.tensor([0, 1])
    batch = SampledEdges(edges, edges, 2, 3)._replace(**{key: torch.tensor(ids) for key, ids in wrong.items()})
    with pytest.raises(GraphError, match="must come by destination, and lead from 3 nodes to the first 2"):
        batch.graph()


class Unused(CSRBuilder):
    """Sorts nothing."""

    def csr(self, *_: Any) -> Any:
        raise AssertionError("sorted")

    transpose = is_symmetric = csr


@pytest.mark.parametrize("replace", [False, True], ids=["without", "with replacement"])
def test_threads_that_sample_at_once_draw_the_same_batches(replace: bool) -> None:
    graph = graphs.power_law(2000, 60_000)
    rows = Neighbors(graph.rowptr, graph.col, graph.edge_id)
    seeds, fanouts, keys = torch.arange(0, 2000, 3), [7, -1, 40], range(12)
    alone = [rows.sample(seeds, fanouts, key, replace) for key in keys]
    assert len(alone[0].edge) > 20_000
    for threads in range(1, 9):
        with ThreadPoolExecutor(threads) as pool:
            together = pool.map(lambda key: rows.sample(seeds, fanouts, key, replace), keys)
            for batch, truth in zip(together, alone, strict=True):
                same(batch, truth)
    same(pickle.loads(pickle.dumps(rows)).sample(seeds, fanouts, keys[0], replace), alone[0])


def same(batch: Sample, truth: Sample) -> None:
    assert batch[4:] == truth[4:]
    for ours, theirs in zip(batch[:4], truth[:4], strict=True):
        assert ours.dtype == torch.int64
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("by_node", [0, BY_NODE], ids=["by table", "by node"])
def test_positions_start_anew_before_they_overflow(by_node: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isplib.batch, "BY_NODE", by_node)
    edge_index, nodes, _ = graphs.zoo()["power law"]
    rows, seeds = neighbors(edge_index, nodes), torch.arange(9)
    truth = rows.sample(seeds, [3, 3], key=1)
    kept = positions(rows)[0]
    kept.base = MAX_INT32 - nodes - len(seeds)  # room for one more batch
    same(rows.sample(seeds, [3, 3], key=1), truth)
    assert kept.base > MAX_INT32 - nodes - len(seeds)
    same(rows.sample(seeds, [3, 3], key=1), truth)
    assert positions(rows) == [kept]
    assert kept.base == 1 + len(truth.node)


@settings(deadline=None, max_examples=100)
@given(st.lists(cases(), min_size=1, max_size=4), st.integers(0, 2**63 - 1))
def test_a_hash_table_gives_the_same_batches(
    many: list[tuple[Tensor, int, Tensor, list[int], bool]], key: int
) -> None:
    """Draw from one graph again and again, so that a table holds what earlier batches left."""
    edge_index, nodes, *_ = many[0]
    by_node = neighbors(edge_index, nodes)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(isplib.batch, "BY_NODE", 0)
        by_table = neighbors(edge_index, nodes)
        for *_, seeds, fanouts, replace in many:
            within = seeds % nodes
            same(by_table.sample(within, fanouts, key, replace), by_node.sample(within, fanouts, key, replace))
        with pytest.raises(ConfigError, match="there is no node"):
            by_table.sample(torch.tensor([nodes]), [1], key)


def test_the_memory_of_a_hash_table_follows_the_batch() -> None:
    """And not the graph, whose nodes would need 80 MB here for each thread."""
    nodes = 20_000_000
    rows = Neighbors(torch.arange(nodes + 1), (torch.arange(nodes, dtype=torch.int32) + 1) % nodes)
    batch = rows.sample(torch.tensor([nodes - 2, 5, 5]), [1] * 4, key=1)
    assert batch.node.tolist() == [nodes - 2, 5, 5, nodes - 1, 6, 0, 7, 1, 8, 2, 9]
    assert positions(rows)[0].table is not None
    assert positions(rows)[0].table.numel() < 200


def test_memory_does_not_grow_with_batches() -> None:
    graph = graphs.power_law(2000, 60_000)
    rows, seeds = Neighbors(graph.rowptr, graph.col, graph.edge_id), torch.arange(64)
    sizes = []
    for _ in range(4):
        for key in range(2500):
            rows.sample(seeds, [10], key)
        sizes.append(psutil.Process().memory_info().rss)
    assert sizes[-1] - sizes[0] < 64 << 20  # of 132 MiB, the size of 7,500 batches; sanitizers keep some
    assert len(positions(rows)) == 1


def wrong(rowptr: list[int], col: list[int]) -> Neighbors:
    return Neighbors(torch.tensor(rowptr), torch.tensor(col, dtype=torch.int32))


@pytest.mark.parametrize(
    ("rowptr", "col", "problem"),
    [
        ([0, 3], [0, 0], "rowptr does not rise"),
        ([0, -1], [0, 0], "rowptr does not rise"),
        ([-1, 1], [0, 0], "rowptr does not rise"),
        ([2, 1], [0, 0], "rowptr does not rise"),
        ([0, 2], [0, 1], "outside the range of 0 to 0"),
        ([0, 2], [-1, 0], "outside the range of 0 to 0"),
    ],
)
def test_rows_that_reach_out_of_the_graph_are_refused(rowptr: list[int], col: list[int], problem: str) -> None:
    for fanout in (-1, 1, 5):
        for replace in (False, True):
            with pytest.raises(GraphError, match=problem):
                wrong(rowptr, col).sample(torch.zeros(40, dtype=torch.int64), [fanout], 1, replace)


def test_what_are_no_rows_is_refused() -> None:
    rowptr, col = torch.tensor([0, 1]), torch.tensor([0])
    for given_rows in ((rowptr.int(), col), (rowptr, col.float()), (rowptr[None], col), (rowptr, col, col)):
        with pytest.raises(GraphError, match=r"but must be a contiguous vector of torch\.int"):
            Neighbors(*given_rows)
    with pytest.raises(GraphError, match="edge_id must have as many entries as col, 1, not 2"):
        Neighbors(rowptr, col, torch.tensor([0, 1]).int())
    for node in (1, -1, 2**32):
        with pytest.raises(ConfigError, match=f"there is no node {node}; the 1 nodes are numbered from 0"):
            Neighbors(rowptr, col).sample(torch.tensor([0, node]), [1], key=1)
