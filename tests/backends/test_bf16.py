"""Features gathered in bf16: exactly the sums of features rounded to nearest, at the widths that are worth it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.isplib import choices
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels, choice_key
from gnnbench.ops.spmm import spmm
from tests.backends.test_blocked import CROWDED
from tests.support import graphs
from tests.support.kernels import LEVELS, check, double, normal, over_levels, over_pairs


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph of the zoo outgrows it."""
    monkeypatch.setattr(choices, "L2_BYTES", 1e-9)
    monkeypatch.setattr(choices, "EDGES_PER_SOURCE", 0)


def rounded(x: Tensor) -> Tensor:
    return x.bfloat16().float()


BF16 = {isplib.ISA[level]: isplib.IsplibKernels(isa=level, gather="bf16") for level in LEVELS}
ALGORITHMS = {
    "row": {"algorithm": "row", "prefetch": 8, "threads": 1},
    "blocked": {"algorithm": "blocked", "shift": 1},
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@over_pairs("width", [17, 32, 41, 63, 64, 97, 128, 130, 602], BF16, CROWDED)
def test_sum_and_mean(kernels: Kernels, graph_name: str, width: int, algorithm: str) -> None:
    graph = graphs.graph(graph_name)
    x = normal(graph.num_cols, width, dtype=torch.float32)
    graph.cache[choice_key("spmm", width, x.dtype)] = ALGORITHMS[algorithm]
    for value, reduce in itertools.product((None, normal(graph.num_edges, dtype=torch.float32)), ("sum", "mean")):
        found = kernels.spmm(graph, x, value, reduce)
        check(found, Kernels().spmm(graph, *double(rounded(x), value), reduce))
    assert (("blocks", "spmm", 1) in graph.cache) == (algorithm == "blocked")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@over_levels
def test_rows_of_thousands(level: int, algorithm: str) -> None:
    kernels = isplib.IsplibKernels(isa=level, gather="bf16")
    graph = graphs.crowd(kernels, 7000, 800)
    x, value = normal(800, 130, dtype=torch.float32) + 1, normal(graph.num_edges, dtype=torch.float32) + 1
    blocked = {"algorithm": "blocked", "shift": 9}
    graph.cache[choice_key("spmm", 130, x.dtype)] = blocked if algorithm == "blocked" else ALGORITHMS["row"]
    found = kernels.spmm(graph, x, value, "mean")
    assert graphs.relative_error(found, Kernels().spmm(graph, *double(rounded(x), value), "mean")) < 1e-5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@over_levels
def test_rounding_is_to_nearest_even_and_keeps_what_is_no_number(level: int, algorithm: str) -> None:
    bits = torch.arange(1 << 16, dtype=torch.int64) << 16
    near = [(bits + low).to(torch.uint32).view(torch.float32) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    x = torch.cat(near).view(-1, 64)
    nodes = torch.arange(x.size(0))
    graph = Graph.from_edge_index(torch.stack([nodes, nodes]), len(nodes))
    blocked = {"algorithm": "blocked", "shift": 12}
    graph.cache[choice_key("spmm", 64, x.dtype)] = blocked if algorithm == "blocked" else ALGORITHMS["row"]
    found = isplib.IsplibKernels(isa=level, gather="bf16").spmm(graph, x, None, "sum")
    torch.testing.assert_close(found, rounded(x) + 0.0, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("graph_name", graphs.NAMES)
def test_what_is_not_worth_it_stays_exact(graph_name: str) -> None:
    graph, bf16, fp32 = graphs.graph(graph_name), isplib.IsplibKernels(gather="bf16"), isplib.IsplibKernels()
    for dtype, width in ((torch.float32, 16), (torch.float64, 64)):
        x = normal(graph.num_cols, width, dtype=dtype)
        assert torch.equal(bf16.spmm(graph, x, None, "sum"), fp32.spmm(graph, x, None, "sum"))
    x = normal(graph.num_cols, 64, dtype=torch.float32)
    assert all(
        itertools.starmap(
            torch.equal, zip(*(k.spmm_max(graph, x, None, "max") for k in (bf16, fp32)), strict=True)
        )
    )


def test_gradients_are_gathered_in_bf16_too() -> None:
    graph, kernels = graphs.graph("power law"), isplib.IsplibKernels(gather="bf16")
    x, grad_out = normal(60, 64, dtype=torch.float32).requires_grad_(), normal(60, 64, dtype=torch.float32)
    (grad_x,) = torch.autograd.grad(spmm(kernels, graph, x), x, grad_out)
    check(grad_x, Kernels().spmm(graph.transpose, rounded(grad_out).double(), None, "sum"))
