"""What a tuner may try: every choice computes the same, and one that cannot run is ignored."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.isplib import choices, edge_choices, machine
from gnnbench.benchmarks.ops import Case
from gnnbench.ops.kernels import Kernels, choice_key
from tests.support import graphs, machines
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
        graph.plans[choice_key(op, 41, x.dtype)] = choice
        assert kernels.chosen(op, graph, 41, x.dtype) == choice
        if op == "spmm":
            check(kernels.spmm(graph, x, None, "mean"), Kernels().spmm(graph, x, None, "mean"))
        else:
            found, truth = (one.spmm_max(graph, x, None, "max") for one in (kernels, Kernels()))
            assert all(torch.equal(*pair) for pair in zip(found, truth, strict=True))


@pytest.mark.parametrize("name", ["sddmm", *(f"{family}_attention" for family in edge_choices.FAMILIES)])
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
                on.plans[choice_key(op, 24, torch.float64, 2)] = choice
                assert kernels.chosen(op, on, 24, torch.float64, 2) == choice
        found = outcome(kernels)
        torch.testing.assert_close(found, truth)
        same = bits.setdefault(choice.get("chunk"), found)  # whatever the threads and the prefetch distance
        assert all(torch.equal(*pair) for pair in zip(found, same, strict=True))
    graph.plans[choice_key(ops[0], 24, torch.float64, 2)] = {**choices[0], "threads": 3}
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
    graph.plans[key := choice_key("spmm", 4, torch.float32)] = choice
    assert kernels.chosen("spmm", graph, 4, torch.float32) == kernels.choices("spmm", untuned, 4, torch.float32)[0]
    kernels.plan(graph)
    kernels.plan(untuned)
    assert graph.plans.keys() - {key} == untuned.plans.keys()


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
@pytest.mark.parametrize(("row_ns", "algorithm"), [(1.9, "row"), (2.1, "blocked")])
def test_the_choice_is_what_the_machine_is_fast_at(
    monkeypatch: pytest.MonkeyPatch, op: str, row_ns: float, algorithm: str
) -> None:
    """At width 32, where sums walk both lines of a row at once, and extrema one after the other."""
    model = machines.figures(row_ns, 2.0 if op == "spmm" else 1.0)
    monkeypatch.setattr(machine, "current", lambda: model)
    monkeypatch.setattr(choices, "SHIFTS", (0,))
    monkeypatch.setattr(choices, "SHIFT", 9)
    for threads in (1, 2):  # on which the order of summation must not depend
        kernels, graph = isplib.IsplibKernels(threads=threads), graphs.power_law(500, 20_000)
        first = kernels.chosen(op, graph, 32, torch.float32)
        assert first["algorithm"] == algorithm
        assert first.get("shift", 9) == 9


def test_gathers_are_as_far_apart_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "WINDOWS", [1 << bits for bits in range(4, 14)])
    monkeypatch.setattr(choices, "COUNTED", 0)
    generator = torch.Generator().manual_seed(0)
    row = torch.arange(40_000) // 40
    anywhere, nearby = (torch.randint(width, row.shape, generator=generator) for width in (1000, 20))
    shares = []
    for col in (anywhere, (row + nearby) % 1000):
        graph = graphs.Graph.from_edge_index(torch.stack([col, row]), 1000)
        distances = choices.Size.of(graph).distances
        assert sum(distance.share for distance in distances) == pytest.approx(1)
        shares += [sum(each.share for each in distances if each.columns <= most) for most in (40, 700)]
    assert shares == pytest.approx([0.04, 0.7, 1.0, 1.0], abs=0.1)
