"""A Graph is found by its tensor's identity and version: never stale, never leaking, never over its memory."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from gnnbench.errors import GraphError
from gnnbench.graph import CSRBuilder, Graph
from gnnbench.graph.cache import MADE, GraphCache

EDGES = [[0, 1, 2, 2, 0], [1, 0, 1, 0, 0]]


@pytest.fixture
def cache() -> GraphCache:
    return GraphCache(CSRBuilder(), max_bytes=1 << 20)


def edge_index() -> Tensor:
    return torch.tensor(EDGES)


def test_the_same_tensor_finds_the_same_graph(cache: GraphCache) -> None:
    edges = edge_index()
    graph = cache.graph(edges, 3, 3)
    assert cache.graph(edges, 3, 3) is graph
    assert (graph.num_rows, graph.num_edges, cache.built, cache.found) == (3, 5, 1, 1)


def test_edges_that_are_made_again_are_sorted_once(cache: GraphCache) -> None:
    graph = cache.graph(edge_index(), 3, 3)
    assert len(cache) == 0  # with the tensor, unless it comes again
    for _ in range(3):
        with torch.inference_mode():
            assert cache.graph(edge_index(), 3, 3) is graph
    assert (len(cache), cache.built, cache.found) == (1, 1, 3)
    reverse = cache.graph(edge_index(), 3, 3, reverse=True)
    assert cache.graph(edge_index(), 3, 3, reverse=True) is reverse is not graph
    for columns in range(4, 9):
        cache.graph(edge_index(), 3, columns)
    assert len(cache) == 0


@pytest.mark.parametrize("reverse", [False, True])
def test_edges_that_differ_where_no_sample_is_are_others(cache: GraphCache, reverse: bool) -> None:
    edges = torch.randint(50, (2, 5000), generator=torch.Generator().manual_seed(0))
    others = edges.clone()
    others[1, 1] = (others[1, 1] + 1) % 50
    graph = cache.graph(edges, 50, 50, reverse=reverse)
    assert cache.graph(edges.clone(), 50, 50, reverse=reverse) is graph
    expected = Graph.from_edge_index(others.flip(0) if reverse else others, 50)
    assert cache.graph(others, 50, 50, reverse=reverse).col.tolist() == expected.col.tolist()


def _by_numpy(edges: Tensor) -> None:
    edges.numpy()[:] = EDGES[::-1]


def _by_other_memory(edges: Tensor) -> None:
    edges.data = torch.tensor(EDGES).flip(0)


@pytest.mark.parametrize(
    "edit",
    [
        lambda edges: edges[0, 0].fill_(2),
        lambda edges: edges[0].fill_(1),
        lambda edges: edges.set_(edges.flip(0)),
        lambda edges: edges.data.copy_(edges.flip(0)),
        _by_numpy,
        _by_other_memory,
    ],
)
def test_an_edited_tensor_gets_a_new_graph(cache: GraphCache, edit: Callable[[Tensor], object]) -> None:
    """However it was edited: torch counts only the first three."""
    edges = edge_index()
    old = cache.graph(edges, 3, 3)
    edit(edges)
    new = cache.graph(edges, 3, 3)
    assert old is not new
    assert new.col.tolist() == Graph.from_edge_index(edges, 3).col.tolist()
    assert len(cache) == 1


def test_a_large_tensor_that_was_filled_anew_gets_a_new_graph(cache: GraphCache) -> None:
    for edges in (torch.zeros(2, 10**6, dtype=torch.int64), torch.zeros(10**6, 2, dtype=torch.int64).t()):
        old = cache.graph(edges, 3, 3)
        edges.data.random_(3, generator=torch.Generator().manual_seed(0))
        assert cache.graph(edges, 3, 3) is not old


def test_memory_taken_again_is_no_hit(cache: GraphCache) -> None:
    for shift in range(50):
        edges = edge_index() + shift  # often at the address of the one before
        assert cache.graph(edges, 60, 60).col.tolist() == Graph.from_edge_index(edges, 60).col.tolist()
        del edges
    gc.collect()
    assert len(cache) == 0
    assert cache.nbytes == 0


def test_sizes_and_direction_are_part_of_the_key(cache: GraphCache) -> None:
    edges = edge_index()
    graph, wider, reverse = (
        cache.graph(edges, 3, 3),
        cache.graph(edges, 3, 7),
        cache.graph(edges, 3, 3, reverse=True),
    )
    assert (wider.num_cols, len(cache)) == (7, 3)
    assert reverse.col.tolist() == graph.transpose.col.tolist()
    assert cache.graph(edges, 3, 3) is graph


@pytest.mark.parametrize("kind", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_sparse_tensors_have_destinations_as_rows(cache: GraphCache, kind: str) -> None:
    dense = torch.tensor([[0.0, 2.0, 3.0, 0.0], [4.0, 0.0, 0.0, 5.0], [0.0, 0.0, 6.0, 0.0]])
    sparse = getattr(dense, kind)()
    graph = cache.graph(sparse, 3, 4)
    values = sparse._values() if kind == "to_sparse_coo" else sparse.values()
    found = torch.zeros(3, 4)
    assert graph.edge_id is not None
    found[graph.row, graph.col.long()] = values[graph.edge_id]
    assert torch.equal(found, dense)
    assert cache.graph(sparse, 3, 4) is graph


def test_edge_index_class_of_pyg(cache: GraphCache) -> None:
    edges = EdgeIndex(EDGES, sparse_size=(3, 3))
    graph = cache.graph(edges, 3, 3)
    assert type(graph.col) is Tensor
    assert cache.graph(edges, 3, 3) is graph


def test_what_was_not_used_for_longest_goes_first() -> None:
    one = Graph.from_edge_index(edge_index(), 3).nbytes
    cache = GraphCache(CSRBuilder(), max_bytes=2 * one)
    tensors = [edge_index().roll(shift, 1) for shift in range(3)]
    first, second = cache.graph(tensors[0], 3, 3), cache.graph(tensors[1], 3, 3)
    cache.graph(tensors[0], 3, 3)
    cache.graph(tensors[2], 3, 3)
    assert (len(cache), cache.nbytes) == (2, 2 * one)
    assert cache.graph(tensors[0], 3, 3) is first
    assert cache.graph(tensors[1], 3, 3) is not second


def test_one_graph_over_the_limit_is_still_kept() -> None:
    cache, edges = GraphCache(CSRBuilder(), max_bytes=1), edge_index()
    assert cache.graph(edges, 3, 3) is cache.graph(edges, 3, 3)


def test_memory_counts_what_is_derived(cache: GraphCache) -> None:
    edges = edge_index()
    graph = cache.graph(edges, 3, 3)
    before = cache.nbytes
    _ = graph.transpose.rowptr, graph.with_self_loops.rowptr
    assert cache.nbytes > before


def test_memory_is_counted_while_another_thread_derives_more(cache: GraphCache) -> None:
    edges = edge_index()
    graph = cache.graph(edges, 3, 3)

    class Derived(list[Tensor]):
        """Return what is counted while the other thread runs."""

        def __iter__(self) -> Iterator[Tensor]:
            graph.cache["another"] = vars(graph)["more"] = torch.zeros(1)
            return super().__iter__()

    graph.cache["derived"] = vars(graph)["known"] = Derived([torch.zeros(100)])
    assert cache.nbytes > 400


def test_edits_of_inference_tensors_are_noticed(cache: GraphCache) -> None:
    with torch.inference_mode():
        edges = edge_index()
        graph = cache.graph(edges, 3, 3)
        assert cache.graph(edges, 3, 3) is graph
        edges[0, 0] = 2
        assert cache.graph(edges, 3, 3) is not graph


def test_wrong_indices_are_refused_and_not_kept(cache: GraphCache) -> None:
    edges = edge_index()
    with pytest.raises(GraphError, match="source index 2 is outside the range of 0 to 1"):
        cache.graph(edges, 3, 2)
    assert len(cache) == 0


def test_clear_forgets_all(cache: GraphCache) -> None:
    edges = edge_index()
    cache.graph(edges, 3, 3)
    cache.clear()
    assert (len(cache), cache.nbytes) == (0, 0)


def test_many_threads_at_once(cache: GraphCache) -> None:
    shared, wrong = [edge_index().roll(shift, 1) for shift in range(4)], []

    def work(seed: int) -> None:
        for step in range(200):
            edges = shared[(seed + step) % 4] if step % 3 else edge_index()
            if cache.graph(edges, 3, 3).num_edges != 5:
                wrong.append(step)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(cache) <= 4 + MADE  # what lives, and what was made again and again
