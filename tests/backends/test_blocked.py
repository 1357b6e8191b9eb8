"""Aggregation over blocks of columns, with caches so small that every graph of the zoo outgrows them."""

from __future__ import annotations

import itertools
import threading
import weakref

import psutil
import pytest
import torch

from gnnbench.backends import isplib
from gnnbench.backends.isplib import choices
from gnnbench.backends.isplib.spmm import native
from gnnbench.backends.isplib.workspace import workspace
from gnnbench.graph import Graph
from gnnbench.ops.kernels import EXTREMA, Choice, Kernels, choice_key
from gnnbench.ops.spmm import spmm
from tests.support import choosing, graphs
from tests.support.kernels import ISPLIB, check, double, normal, over_dtypes, over_levels, over_pairs

CROWDED = ["self loops", "duplicates", "symmetric", "hub", "wide", "tall", "power law"]


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four columns."""
    choosing.use_blocks(monkeypatch, 2)


@over_dtypes
@pytest.mark.usefixtures("small_cache")
@over_pairs("width", [5, 17, 32, 41, 63, 128, 602], ISPLIB, CROWDED)
def test_sum_and_mean(kernels: isplib.IsplibKernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name)
    x = normal(graph.num_cols, width, dtype=dtype)
    for value, reduce in itertools.product((None, normal(graph.num_edges, dtype=dtype)), ("sum", "mean")):
        check(kernels.spmm(graph, x, value, reduce), Kernels().spmm(graph, *double(x, value), reduce))
    assert len(graph.cache["blocks", "spmm", 2].start) == -(-graph.num_cols >> 2)


@over_dtypes
@pytest.mark.usefixtures("small_cache")
@over_pairs("width", [1, 17, 41, 128], ISPLIB, CROWDED)
def test_extrema_with_ties_and_nan(kernels: Kernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name)
    x = normal(graph.num_cols, width, dtype=dtype).round()
    x[1::4, ::3] = torch.nan
    x[2::4, ::3] = -torch.inf
    for value, reduce in itertools.product((None, normal(graph.num_edges, dtype=dtype).round()), EXTREMA):
        found = kernels.spmm_max(graph, x, value, reduce)
        truth = Kernels().spmm_max(graph, x, value, reduce)
        torch.testing.assert_close(found[0], truth[0], rtol=0, atol=0, equal_nan=True)
        assert torch.equal(found[1], truth[1])
    assert ("blocks", "spmm_max", 2) in graph.cache


@over_dtypes
@over_levels
@pytest.mark.parametrize("algorithm", ["row", "blocked"])
def test_extrema_where_sources_are_looked_at_first(algorithm: str, level: int, dtype: torch.dtype) -> None:
    """They have so many edges that it pays to know of no NaN, where other instructions compare."""
    row: Choice = {"algorithm": "row", "prefetch": 16, "threads": 2}
    blocked: Choice = {"algorithm": "blocked", "shift": 2}
    graph = Graph(torch.arange(0, 2001, 20), torch.arange(20, dtype=torch.int32).repeat(100), 20)
    kernels = isplib.IsplibKernels(isa=level)
    for width, reduce, weighted in itertools.product((1, 17, 41, 128), EXTREMA, (False, True)):
        graph.cache[choice_key("spmm_max", width, dtype)] = row if algorithm == "row" else blocked
        value = normal(graph.num_edges, dtype=dtype).round() if weighted else None
        for other in (0.0, torch.inf, -torch.inf, torch.nan):
            x = normal(graph.num_cols, width, dtype=dtype).round()
            x[13, -1] = other
            found, truth = (each.spmm_max(graph, x, value, reduce) for each in (kernels, Kernels()))
            torch.testing.assert_close(found[0], truth[0], rtol=0, atol=0, equal_nan=True)
            assert torch.equal(found[1], truth[1])
    value = torch.ones(graph.num_edges, dtype=dtype)
    value[777] = torch.inf  # times zero
    found, truth = (each.spmm_max(graph, x.nan_to_num().mul(0), value, "max") for each in (kernels, Kernels()))
    assert found[0].isnan().sum() == 128
    assert torch.equal(found[1], truth[1])


@pytest.mark.usefixtures("small_cache")
def test_weights_are_ordered_again_only_where_they_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, kernels = graphs.graph("power law"), isplib.IsplibKernels()
    x, value = normal(60, 20), normal(900)
    orders = []
    order = native.order
    monkeypatch.setattr(native, "order", lambda *args, **fields: orders.append(order(*args, **fields)))

    def checked(value: torch.Tensor) -> int:
        check(kernels.spmm(graph, x, value, "sum"), Kernels().spmm(graph, x, value, "sum"))
        return len(orders)

    assert [checked(value), checked(value), checked(value.clone()), checked(value)] == [1, 1, 2, 3]
    value.mul_(2)
    assert checked(value) == 4
    check(
        kernels.spmm(graph, x.float(), value.float(), "sum"),
        Kernels().spmm(graph, x, value.float().double(), "sum"),
    )
    assert checked(value) == 6
    value.data.mul_(2)  # as torch does not count
    assert checked(value) == 7
    value.numpy()[:] = 1
    assert checked(value) == 8
    value.data = normal(900).flip(0)
    assert checked(value) == 9
    with torch.inference_mode():
        unversioned = value.clone()
        assert [checked(unversioned), checked(unversioned.mul_(2)), checked(value)] == [10, 11, 11]


@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_weights_are_those_of_the_call_whatever_another_thread_asks_for(
    monkeypatch: pytest.MonkeyPatch, reduce: str
) -> None:
    """All of another call runs between the moments when a call has ordered its weights and when it reads them."""
    graph, kernels, x = graphs.graph("power law"), isplib.IsplibKernels(), normal(60, 20)
    mine, theirs = normal(900), normal(900).flip(0)

    def outcome(by: Kernels, value: torch.Tensor) -> torch.Tensor:
        return by.spmm_max(graph, x, value, reduce)[0] if reduce in EXTREMA else by.spmm(graph, x, value, reduce)

    kernel = "blocked_extremum" if reduce == "max" else "blocked_sum"
    read, others = getattr(native, kernel), []

    def interrupted(*args: int, **fields: torch.Tensor | int | None) -> None:
        monkeypatch.setattr(native, kernel, read)
        thread = threading.Thread(target=lambda: others.append(outcome(kernels, theirs)))
        thread.start()
        thread.join()
        read(*args, **fields)

    monkeypatch.setattr(native, kernel, interrupted)
    check(outcome(kernels, mine), outcome(Kernels(), mine))
    check(others[0], outcome(Kernels(), theirs))


@pytest.mark.usefixtures("small_cache")
def test_the_plan_holds_every_edge_once() -> None:
    graph = graphs.graph("power law")
    for op in choices.TUNED:
        graph.cache[choice_key(op, 5, torch.float32)] = {"algorithm": "blocked", "shift": 2}
    isplib.IsplibKernels(threads=3).plan(graph)
    for op in choices.TUNED:
        start, local, shift = graph.cache["blocks", op, 2]
        found = [
            (row, (block << shift) + int(column) - 1)
            for block in range(len(start))
            for row in range(graph.num_rows)
            for column in local[start[block, row] : start[block, row + 1]].flatten()
            if column
        ]
        assert sorted(found) == list(zip(graph.row.tolist(), graph.col.tolist(), strict=True))


def test_bit_for_bit_the_same_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "L2_BYTES", 1e-9)  # so that bf16 is worth its conversion
    choosing.use_blocks(monkeypatch, 5)
    graph = graphs.power_law(500, 20_000)
    x, value = normal(500, 67, dtype=torch.float32), normal(20_000, dtype=torch.float32)
    alone, *others = (
        [
            *(isplib.IsplibKernels(threads=threads).spmm(graph, x, weight, "mean") for weight in (None, value)),
            *isplib.IsplibKernels(threads=threads).spmm_max(graph, x, value, "min"),
            isplib.IsplibKernels(threads=threads, gather="bf16").spmm(graph, x, value, "mean"),
        ]
        for threads in (1, 2, 3, 5)
    )
    assert len(graph.cache["blocks", "spmm", 5].start) == 16
    assert all(torch.equal(*pair) for other in others for pair in zip(alone, other, strict=True))


@pytest.mark.usefixtures("small_cache")
def test_gradients_take_the_same_way() -> None:
    graph, kernels = graphs.graph("power law"), isplib.IsplibKernels()
    x, value = normal(60, 41).requires_grad_(), normal(900).requires_grad_()
    loss = (spmm(kernels, graph, x, value, "mean") * normal(60, 41)).sum()
    true = (spmm(Kernels(), graph, x, value, "mean") * normal(60, 41)).sum()
    pairs = zip(torch.autograd.grad(loss, (x, value)), torch.autograd.grad(true, (x, value)), strict=True)
    assert all(graphs.relative_error(*pair) < 1e-13 for pair in pairs)
    assert ("blocks", "spmm", 2) in graph.cache
    assert ("blocks", "spmm", 2) in graph.transpose.cache


@pytest.mark.parametrize("graph_name", ["no edges", "no nodes", "no sources"])
@over_levels
def test_rows_without_edges_are_zero_whatever_was_chosen(level: int, graph_name: str) -> None:
    kernels = isplib.IsplibKernels(isa=level)
    graph = graphs.graph(graph_name, kernels)
    for on, op in itertools.product((graph, graph.transpose), choices.TUNED):
        on.cache[choice_key(op, 41, torch.float32)] = {"algorithm": "blocked", "shift": 2}
        x = normal(on.num_cols, 41, dtype=torch.float32)
        for value in (None, normal(0, dtype=torch.float32)):
            if op == "spmm":
                assert not any(kernels.spmm(on, x, value, reduce).count_nonzero() for reduce in ("sum", "mean"))
                continue
            out, arg_out = kernels.spmm_max(on, x, value, "max")
            assert not out.count_nonzero()
            assert (arg_out == -1).all()


def test_sparse_rows_are_not_worth_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    choosing.use_blocks(monkeypatch, 2)
    monkeypatch.setattr(choices, "PLAN", 1)
    for name in graphs.NAMES:
        graph = graphs.graph(name)
        isplib.IsplibKernels().plan(graph)
        crowded = graph.num_edges >= graph.num_rows * -(-graph.num_cols // 4) > 0
        assert (("blocks", "spmm", 2) in graph.cache) == crowded


@pytest.mark.usefixtures("small_cache")
def test_a_workspace_is_kept_with_its_graph_and_goes_with_it() -> None:
    kernels = isplib.IsplibKernels()
    graph = graphs.graph("power law")
    x, before = normal(graph.num_cols, 20), graph.nbytes

    def kept(graph: Graph) -> torch.Tensor:
        kernels.spmm(graph, x, None, "sum")
        kernels.spmm_max(graph, x, None, "max")
        (whole,) = graph.cache["workspace"]
        return whole

    first = kept(graph)
    assert kept(graph) is first
    assert graph.nbytes >= before + first.nbytes
    with workspace(graph, 3) as (one,), workspace(graph, 3, 5) as (two, three):  # as two threads have them
        spans = sorted((part.data_ptr(), part.data_ptr() + part.nbytes) for part in (one, two, three))
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
        assert not graph.cache["workspace"]
    assert len(graph.cache["workspace"]) == 1
    storage = weakref.ref(kept(graph).untyped_storage())
    del first, one, two, three, graph
    assert storage() is None


@pytest.mark.usefixtures("small_cache")
def test_memory_does_not_grow_with_graphs() -> None:
    """Build graphs, sum over their blocks, with a transpose and with weights kept in order, and drop them."""
    kernels, graph = isplib.IsplibKernels(), graphs.power_law(100, 1000)
    edge_index, x, value = torch.stack([graph.col, graph.row]), normal(100, 16), normal(graph.num_edges)
    sizes = []
    for _ in range(4):
        for _ in range(750):
            built = Graph.from_edge_index(edge_index, 100, layout=kernels)
            kernels.spmm(built, x, value, "sum")
            kernels.spmm_max(built.transpose, x, None, "max")
        sizes.append(psutil.Process().memory_info().rss)
    assert sizes[-1] - sizes[0] < 64 << 20  # of about 240 MiB that 2,250 graphs take
