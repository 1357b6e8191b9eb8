"""Try every choice of a tuner: all compute the same, and one that cannot run is ignored."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.isplib import choices
from gnnbench.benchmarks.ops import Case
from gnnbench.ops.kernels import Kernels, choice_key
from tests.support import graphs
from tests.support.kernels import check, normal


@pytest.mark.parametrize("op", ["spmm", "spmm_max"])
def test_every_choice_runs_and_computes_the_same(op: str) -> None:
    kernels, graph = isplib.IsplibKernels(threads=2), graphs.power_law(500, 20_000)
    x = normal(500, 41)
    choices = kernels.choices(op, graph, 41, x.dtype)
    assert kernels.chosen(op, graph, 41, x.dtype) == choices[0]
    assert {choice["algorithm"] for choice in choices} == {"row", "blocked"}
    assert len(choices) == len({tuple(choice.items()) for choice in choices}) <= 13
    for choice in choices:
        graph.cache[choice_key(op, 41, x.dtype)] = choice
        assert kernels.chosen(op, graph, 41, x.dtype) == choice
        if op == "spmm":
            check(kernels.spmm(graph, x, None, "mean"), Kernels().spmm(graph, x, None, "mean"))
        else:
            found, truth = (one.spmm_max(graph, x, None, "max") for one in (kernels, Kernels()))
            assert all(torch.equal(*pair) for pair in zip(found, truth, strict=True))


@pytest.mark.parametrize("name", ["sddmm", *(f"{family}_attention" for family in choices.FAMILIES)])
def test_passes_over_edges_compute_the_same_by_every_choice(name: str) -> None:
    kernels, graph = isplib.IsplibKernels(threads=2), graphs.power_law(200, 10_000)  # the longest row has 900
    case = Case(name, graph, 24, heads=2, dtype=torch.float64)

    def outcome(by: Kernels) -> list[Tensor]:
        out = case.op.call(by, graph, **case.inputs)
        return [out.detach(), *torch.autograd.grad(out, list(case.inputs.values()), case.grad_out)]

    ops = ["sddmm"] if name == "sddmm" else [name, f"{name}_backward"]
    truth, bits = outcome(Kernels()), {}
    choices = kernels.choices(ops[0], graph, 24, torch.float64, 2)
    assert len(choices) == 8
    for choice in choices:
        for op in ops:
            assert choice in kernels.choices(op, graph, 24, torch.float64, 2)
            for on in (graph, graph.transpose):
                on.cache[choice_key(op, 24, torch.float64, 2)] = choice
                assert kernels.chosen(op, on, 24, torch.float64, 2) == choice
        found = outcome(kernels)
        torch.testing.assert_close(found, truth)
        same = bits.setdefault(choice.get("chunk"), found)  # whatever the threads and the prefetch distance
        assert all(torch.equal(*pair) for pair in zip(found, same, strict=True))
    graph.cache[choice_key(ops[0], 24, torch.float64, 2)] = {**choices[0], "threads": 3}
    assert kernels.chosen(ops[0], graph, 24, torch.float64, 2) == choices[0]


@pytest.mark.parametrize(
    "choice",
    [
        {},
        None,
        "blocked",
        {"algorithm": "magic"},
        {"algorithm": "row", "prefetch": 1 << 40, "threads": 1},
        {"algorithm": "row", "prefetch": 8, "threads": 3},
        {"algorithm": "row", "prefetch": 8, "threads": 0},
        {"algorithm": "row", "prefetch": 8, "threads": 1, "shift": -1},
        {"algorithm": "blocked", "shift": 17},
        {"algorithm": "blocked", "shift": -1},
        {"algorithm": "blocked", "shift": 0},
        {"algorithm": "blocked", "shift": "8"},
    ],
)
def test_a_choice_that_cannot_run_is_ignored(choice: object) -> None:
    kernels, graph, untuned = isplib.IsplibKernels(threads=2), *(graphs.power_law(500, 20_000) for _ in range(2))
    graph.cache[key := choice_key("spmm", 4, torch.float32)] = choice
    assert kernels.chosen("spmm", graph, 4, torch.float32) == kernels.choices("spmm", untuned, 4, torch.float32)[0]
    kernels.plan(graph)
    kernels.plan(untuned)
    assert graph.cache.keys() - {key} == untuned.cache.keys()


def test_kernels_without_knobs_have_one_choice() -> None:
    graph = graphs.graph("power law")
    for kernels in (Kernels(), isplib.IsplibKernels()):
        assert kernels.choices("edge_softmax", graph, 4, torch.float32) == [{}]
        assert kernels.chosen("edge_softmax", graph, 4, torch.float32) == {}


def test_small_work_takes_one_thread() -> None:
    for name in graphs.NAMES:
        graph = graphs.graph(name)
        first = isplib.IsplibKernels(threads=2).chosen("spmm", graph, 4, torch.float32)
        assert (first["algorithm"], first["threads"]) == ("row", 1)


@pytest.mark.parametrize("op", choices.TUNED)
@pytest.mark.parametrize(
    ("limits", "algorithm"),
    [
        ({}, "row"),  # 40 edges a row, and features that a cache holds
        ({"LARGE": 0}, "row"),
        ({"LARGE": 0, "CROWDED": 40}, "blocked"),
        ({"FULL": 40}, "blocked"),
        ({"FULL": 40, "SHARED": 41, "LEAST": 40}, "blocked"),
        ({"FULL": 40, "SHARED": 41, "LEAST": 41}, "row"),
    ],
)
def test_blocks_are_walked_where_many_edges_share_them(
    monkeypatch: pytest.MonkeyPatch, op: str, limits: dict[str, int], algorithm: str
) -> None:
    for name, value in {"SHIFTS": (0,), "SHIFT": 9, **limits}.items():
        monkeypatch.setattr(choices, name, value)
    for threads in (1, 2):  # on which the order of summation must not depend
        kernels, graph = isplib.IsplibKernels(threads=threads), graphs.power_law(500, 20_000)
        first = kernels.chosen(op, graph, 32, torch.float32)
        assert first["algorithm"] == algorithm
        assert first.get("shift", 9) == 9


def test_features_that_no_cache_holds_are_prefetched(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, graph = isplib.IsplibKernels(), graphs.power_law(500, 20_000)
    distances = []
    monkeypatch.setattr(choices, "LARGE", 1 << 20)
    for size, width in ((choices.L2_BYTES, 32), (1 << 10, 16), (1 << 10, 32), (1 << 10, 65)):
        monkeypatch.setattr(choices, "L2_BYTES", size)
        distances.append(kernels.chosen("spmm", graph, width, torch.float32)["prefetch"])
        graph.cache.clear()
    assert distances == [0, 32, 16, 8]


@pytest.mark.parametrize(
    ("machine", "l2_bytes", "shift", "count", "mean", "most"),
    [("amd-epyc", 1 << 20, 13, 180, 1.05, 1.45), ("intel-xeon", 2 << 20, 14, 135, 1.065, 1.6)],
)
def test_what_is_chosen_is_near_the_best_of_what_was_measured(
    machine: str, l2_bytes: int, shift: int, count: int, mean: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the times of all candidates, on processors whose second-level caches are of these sizes."""
    monkeypatch.setattr(choices, "L2_BYTES", l2_bytes)
    monkeypatch.setattr(choices, "SHIFT", shift)
    cells = json.loads((Path(__file__).parents[2] / "results" / "regret" / f"{machine}.json").read_text())["cells"]
    kernels, regrets = isplib.IsplibKernels(threads=2), []
    for cell in cells:
        rows, edges = cell["nodes"], cell["edges"]
        graph: Any = SimpleNamespace(num_rows=rows, num_cols=rows, num_edges=edges, once=lambda _, make: make())
        chosen = kernels._heuristic(graph, cell["width"], torch.float32)
        (time,) = (time for candidate, time in cell["candidates"] if candidate == chosen)
        regrets.append(time / min(time for _, time in cell["candidates"]))
    assert len(regrets) == count
    assert statistics.geometric_mean(regrets) < mean
    assert max(regrets) < most
