"""Sampled neighbourhoods of several types: batches are replayed in plain Python, draws are counted."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.isplib.batch import Rows
from gnnbench.backends.isplib.sample import Relation, TypedNeighbors, TypedSample
from gnnbench.errors import ConfigError, GraphError
from tests.sample.test_sample import assert_likely

pytestmark = pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
RELATIONS = [("a", "to", "a"), ("b", "to", "a"), ("a", "of", "b")]  # no edge leads to the nodes of "c"


def rows(edge_index: Tensor, num_rows: int, num_cols: int, **values: Tensor) -> Rows:
    """Sorted by destination and, where there is a time, by it."""
    order = torch.arange(edge_index.size(1))
    for key in (values.get("time"), edge_index[1]):
        order = order if key is None else order[key[order].argsort(stable=True)]
    rowptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    rowptr[1:] = torch.bincount(edge_index[1], minlength=num_rows).cumsum(0)
    return Rows(
        rowptr, edge_index[0, order], num_cols=num_cols, **{key: each[order] for key, each in values.items()}
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[TypedNeighbors, dict[str, Tensor], dict[Relation, list[int]], dict[str, Any]]:
    sizes = {type_: draw(st.integers(1, 8)) for type_ in "abc"}
    made, hops, timed, weighted = {}, draw(st.integers(1, 3)), draw(st.booleans()), draw(st.booleans())
    for relation in RELATIONS:
        source, _, destination = relation
        edge = st.tuples(st.integers(0, sizes[source] - 1), st.integers(0, sizes[destination] - 1))
        edges = torch.tensor(draw(st.lists(edge, max_size=40)), dtype=torch.int64).reshape(-1, 2).t()
        values = {}
        if timed and relation[1] == "to":
            times = st.lists(st.integers(0, 9), min_size=edges.size(1), max_size=edges.size(1))
            values["time"] = torch.tensor(draw(times), dtype=torch.int64)
        if weighted and relation[0] == "a":
            values["weight"] = torch.rand(edges.size(1), dtype=torch.float64) + 0.1
        made[relation] = rows(edges, sizes[destination], sizes[source], **values)
    seeds = {
        type_: torch.tensor(draw(st.lists(st.integers(0, sizes[type_] - 1), min_size=1, max_size=4)))
        for type_ in draw(st.sampled_from(["a", "b", "ba", "ca"]))
    }
    fanouts = {
        relation: draw(st.lists(st.integers(-1, 4), min_size=hops, max_size=hops)) for relation in RELATIONS
    }
    limit = torch.randint(10, (sum(map(len, seeds.values())),)) if timed else None
    options = {
        "replace": draw(st.booleans()),
        "disjoint": draw(st.booleans()),
        "limit": limit,
        "last": draw(st.booleans()),
    }
    return TypedNeighbors(sizes, made), seeds, fanouts, options


def check(
    batch: TypedSample,
    neighbors: TypedNeighbors,
    seeds: dict[str, Tensor],
    fanouts: dict[Relation, list[int]],
    replace: bool = False,
    disjoint: bool = False,
    limit: Tensor | None = None,
    last: bool = False,
) -> None:
    """Follow pyg-lib's order of hops, relations, nodes and edges, by the edges that the batch has of each node."""
    disjoint, trees = disjoint or limit is not None, 0
    nodes: dict[str, list[tuple[int, int]]] = {type_: [] for type_ in neighbors.num_nodes}
    for type_, ids in seeds.items():
        nodes[type_] = [(trees + place if disjoint else 0, node) for place, node in enumerate(ids.tolist())]
        trees += len(ids)
    places = {type_: {node: place for place, node in reversed([*enumerate(of)])} for type_, of in nodes.items()}
    frontier = {type_: range(len(of)) for type_, of in nodes.items()}
    num_nodes = {type_: [len(of)] for type_, of in nodes.items()}
    edges: dict[Relation, list[tuple[int, int, int]]] = {relation: [] for relation in neighbors.rows}
    num_edges: dict[Relation, list[int]] = {relation: [] for relation in neighbors.rows}
    for hop in range(len(next(iter(fanouts.values())))):
        for relation, of in neighbors.rows.items():
            source, _, destination = relation
            before = len(edges[relation])
            for place in frontier[destination]:
                tree, node = nodes[destination][place]
                drawn = batch.edge[relation][batch.col[relation] == place].tolist()
                could = [*range(int(of.rowptr[node]), int(of.rowptr[node + 1]))]
                if of.time is not None and limit is not None:
                    could = [edge for edge in could if of.time[edge] <= limit[tree]]
                check_row(
                    drawn,
                    could,
                    fanouts[relation][hop],
                    replace,
                    last and of.time is not None and limit is not None,
                )
                for edge in drawn:
                    found = (tree, int(of.col[edge]))
                    if found not in places[source]:
                        places[source][found] = len(nodes[source])
                        nodes[source].append(found)
                    edges[relation].append((places[source][found], place, edge))
            num_edges[relation].append(len(edges[relation]) - before)
        for type_, all_ in nodes.items():
            frontier[type_] = range(frontier[type_].stop, len(all_))
            num_nodes[type_].append(len(frontier[type_]))
    assert (batch.num_nodes, batch.num_edges) == (num_nodes, num_edges)
    assert {type_: of.tolist() for type_, of in batch.node.items()} == {
        type_: [node for _, node in of] for type_, of in nodes.items()
    }
    for place, columns in enumerate((batch.row, batch.col, batch.edge)):
        assert {name: of.tolist() for name, of in columns.items()} == {
            name: [edge[place] for edge in of] for name, of in edges.items()
        }
    trees_of = {type_: [tree for tree, _ in of] for type_, of in nodes.items()}
    assert (
        batch.tree is None
        if not disjoint
        else {t: of.tolist() for t, of in (batch.tree or {}).items()} == trees_of
    )


def check_row(drawn: Sequence[int], could: Sequence[int], fanout: int, replace: bool, last: bool) -> None:
    if last and fanout > 0:
        could = could[-fanout:]
    if fanout < 0 or (len(could) <= fanout and not replace):
        assert drawn == could
        return
    assert len(drawn) == fanout * bool(could)
    assert {*drawn} <= {*could}
    assert replace or len({*drawn}) == len(drawn)


def same(batch: TypedSample, truth: TypedSample) -> None:
    assert (batch.num_nodes, batch.num_edges) == (truth.num_nodes, truth.num_edges)
    for ours, theirs in zip((*batch[:4], batch.tree or {}), (*truth[:4], truth.tree or {}), strict=True):
        assert ours.keys() == theirs.keys()
        for name, values in ours.items():
            assert values.dtype == torch.int64
            assert torch.equal(values, theirs[name])


@settings(deadline=None, max_examples=200)
@given(cases(), st.integers(-(2**63), 2**63 - 1))
def test_a_batch_is_a_part_of_the_graph_in_pyg_libs_order(case: Any, key: int) -> None:
    """By numbers for each node and by hash tables, in trees, up to a time, by weights; one batch after another."""
    neighbors, seeds, fanouts, options = case
    batch = neighbors.sample(seeds, fanouts, key, **options)
    check(batch, neighbors, seeds, fanouts, **options)
    same(neighbors.sample(seeds, fanouts, key, **options), batch)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(isplib.batch, "BY_NODE", 0)
        by_table = pickle.loads(pickle.dumps(neighbors))
        same(by_table.sample(seeds, fanouts, key, **options), batch)


@settings(deadline=None, max_examples=100)
@given(cases())
def test_induced_edges_are_all_between_the_nodes_of_a_batch(case: Any) -> None:
    neighbors, seeds, fanouts, options = case
    drawn = neighbors.sample(seeds, fanouts, 1, replace=options["replace"])
    for by_node in (0, isplib.batch.BY_NODE):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(isplib.batch, "BY_NODE", by_node)
            fresh = pickle.loads(pickle.dumps(neighbors))
            batch = fresh.sample(seeds, fanouts, 1, replace=options["replace"], induced=True)
        assert all(map(torch.equal, batch.node.values(), drawn.node.values()))
        for relation, of in neighbors.rows.items():
            at = {node: place for place, node in reversed([*enumerate(batch.node[relation[0]].tolist())])}
            expected = [
                (at[int(of.col[edge])], place, edge)
                for place, node in enumerate(batch.node[relation[2]].tolist())
                for edge in range(int(of.rowptr[node]), int(of.rowptr[node + 1]))
                if int(of.col[edge]) in at
            ]
            columns = (batch.row[relation], batch.col[relation], batch.edge[relation])
            assert [*zip(*map(Tensor.tolist, columns), strict=True)] == expected


@settings(deadline=None, max_examples=200)
@given(cases(), st.integers(0, 1), st.randoms())
def test_a_part_is_what_leads_to_some_seeds_within_the_batch(case: Any, further: int, random: Any) -> None:
    neighbors, seeds, fanouts, options = case
    seeds = {type_: each.unique() for type_, each in seeds.items()}
    places = {type_: torch.tensor(random.sample(range(len(each)), 1)) for type_, each in seeds.items()}
    given, replace = (seeds, fanouts, 1), options["replace"]
    hops = len(next(iter(fanouts.values()))) + further
    whole = neighbors.sample(*given, replace=replace)
    within = {
        relation: Rows(each.graph().rowptr, each.row, num_cols=each.num_cols)
        for relation, each in whole.edges.items()
    }
    found = TypedNeighbors(whole.sizes, within).sample(places, dict.fromkeys(within, [-1] * hops), 0)
    expected = found._replace(
        node={type_: whole.node[type_][each] for type_, each in found.node.items()},
        edge={relation: whole.edge[relation][each] for relation, each in found.edge.items()},
        elsewhere=whole.total - found.total,
    )
    for by_node in (0, isplib.batch.BY_NODE):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(isplib.batch, "BY_NODE", by_node)
            fresh = pickle.loads(pickle.dumps(neighbors))
            part = fresh.sample_at(*given, places, hops, replace=replace)
        same(part, expected)
        assert (part.elsewhere, part.total) == (expected.elsewhere, whole.total)


def star(count: int, relations: int = 1, **values: Sequence[float]) -> TypedNeighbors:
    """One destination with `count` in-edges of each relation."""
    edge_index = torch.stack([torch.arange(count), torch.zeros(count, dtype=torch.int64)])
    given_values = {
        key: torch.tensor(each, dtype=torch.int64 if key == "time" else torch.float64)
        for key, each in values.items()
    }
    of = rows(edge_index, 1, count, **given_values)
    return TypedNeighbors({"a": count, "b": 1}, {("a", str(i), "b"): of for i in range(relations)})


def draws(neighbors: TypedNeighbors, fanout: int, size: int = 100_000, **options: Any) -> Tensor:
    """The edges of `size` seeds by relation, [relations, size, fanout]."""
    seeds, fanouts = {"b": torch.zeros(size, dtype=torch.int64)}, {key: [fanout] for key in neighbors.rows}
    batch = neighbors.sample(seeds, fanouts, 1, **options)
    return torch.stack([edge.view(size, -1) for edge in batch.edge.values()])


@pytest.mark.parametrize("fanout", [1, 2, 3])
def test_sets_without_replacement_are_as_likely_as_by_one_draw_after_another(fanout: int) -> None:
    weight = [0.5, 3.0, 1.0, 0.0, 2.0]
    drawn = draws(star(5, weight=weight), fanout)[0].sort(1).values
    likely: dict[tuple[int, ...], float] = {}
    for order in permutations([0, 1, 2, 4], fanout):
        left, chance = sum(weight), 1.0
        for edge in order:
            chance, left = chance * weight[edge] / left, left - weight[edge]
        likely[tuple(sorted(order))] = likely.get(tuple(sorted(order)), 0.0) + chance
    sets, counts = np.unique(drawn.numpy(), axis=0, return_counts=True)
    assert [*map(tuple, sets.tolist())] == sorted(likely)
    expected = [likely[key] * len(drawn) for key in sorted(likely)]
    assert_likely(stats.chisquare(counts, expected).statistic, len(expected) - 1) if fanout < 4 and len(
        likely
    ) > 1 else None


@pytest.mark.parametrize("replace", [False, True], ids=["without", "with replacement"])
def test_long_rows_are_drawn_from_by_weight(replace: bool) -> None:
    """Each edge alone as its weight says; with all weights alike, each pair of places in a row of ten draws."""
    weight = torch.rand(300, dtype=torch.float64).tolist()
    first = draws(star(300, weight=weight), 1, 300_000, replace=replace)[0].flatten()
    expected = np.array(weight) / sum(weight) * len(first)
    assert_likely(stats.chisquare(np.bincount(first, minlength=300), expected).statistic, 299)
    ten = draws(star(300, weight=[2.0] * 300), 10, 30_000, replace=replace)[0]
    variance = ten.numel() / 300 * (1 if replace else (1 - 10 / 300) * 300 / 299)
    counts = np.bincount(ten.flatten(), minlength=300)
    assert_likely(float(((counts - ten.numel() / 300) ** 2).sum() / variance), 299)


def test_edges_up_to_a_time_are_equally_likely_and_relations_are_independent() -> None:
    neighbors = star(9, relations=2, time=[0, 1, 2, 3, 4, 5, 5, 8, 9])
    limit = torch.full((100_000,), 5)
    drawn = draws(neighbors, 2, limit=limit)
    assert int(drawn.max()) == 6
    counts = np.bincount(drawn.flatten())
    variance = drawn.numel() / 7 * (1 - 2 / 7) * 7 / 6
    assert_likely(float(((counts - drawn.numel() / 7) ** 2).sum() / variance), 6)
    pairs = np.bincount(drawn[0, :, 0] * 6 + drawn[1, :, 0], minlength=36).reshape(
        6, 6
    )  # the first of six by Floyd
    assert_likely(stats.chi2_contingency(pairs).statistic, 25)
    assert draws(neighbors, 2, 4, limit=limit[:4], last=True).tolist() == [[[5, 6]] * 4] * 2


def test_threads_that_sample_at_once_draw_the_same_batches() -> None:
    torch.manual_seed(0)
    sizes = {"a": 500, "b": 300}
    made = {
        (s, "to", d): rows(
            torch.stack([torch.randint(sizes[s], (9000,)), torch.randint(sizes[d], (9000,))]),
            sizes[d],
            sizes[s],
            time=torch.randint(100, (9000,)),
            weight=torch.rand(9000, dtype=torch.float64),
        )
        for s in sizes
        for d in sizes
    }
    neighbors, seeds = TypedNeighbors(sizes, made), {"b": torch.arange(60)}
    fanouts, limit = {key: [5, 3] for key in made}, torch.arange(60) + 40

    def sample(key: int) -> TypedSample:
        return neighbors.sample(seeds, fanouts, key, limit=limit if key % 2 else None)

    alone = [sample(key) for key in range(8)]
    for threads in (2, 5):
        with ThreadPoolExecutor(threads) as pool:
            for batch, truth in zip(pool.map(sample, range(8)), alone, strict=True):
                same(batch, truth)


def test_what_is_wrong_is_one_sentence() -> None:
    of = rows(torch.tensor([[0, 1], [0, 0]]), 1, 2)
    key = ("a", "to", "b")
    neighbors, fanouts = TypedNeighbors({"a": 2, "b": 1}, {key: of}), {key: [1]}
    seed = torch.tensor([0])
    with pytest.raises(ConfigError, match="is of node type 'c', but there are only 'a'"):
        TypedNeighbors({"a": 2}, {("a", "to", "c"): of})
    with pytest.raises(GraphError, match="has rows of 1 nodes from 2, but there are 2 of type 'a' and 2 of 'a'"):
        TypedNeighbors({"a": 2}, {("a", "to", "a"): of})
    with pytest.raises(GraphError, match="weight must have as many entries as col, 2, not 1"):
        Rows(of.rowptr, of.col, weight=torch.ones(1, dtype=torch.float64))
    with pytest.raises(ConfigError, match="there is no node type 'c', only 'a', 'b'"):
        neighbors.sample({"c": seed}, fanouts, 1)
    with pytest.raises(ConfigError, match="there is no node 1; the 1 nodes"):
        neighbors.sample({"b": seed + 1}, fanouts, 1)
    with pytest.raises(ConfigError, match="there are 1 seeds, but 2 times of seeds"):
        neighbors.sample({"b": seed}, fanouts, 1, limit=torch.zeros(2, dtype=torch.int64))
    for replace in (False, True):
        with pytest.raises(ConfigError, match="the weights of all edges of a node are zero"):
            draws(star(3, weight=[0.0] * 3), 2, 4, replace=replace)
    wrong = TypedNeighbors({"a": 2, "b": 1}, {key: Rows(of.rowptr, of.col + 1, num_cols=2)})
    with pytest.raises(GraphError, match="reach out"):
        wrong.sample({"a": seed, "b": seed}, {key: [0]}, 1, induced=True)
