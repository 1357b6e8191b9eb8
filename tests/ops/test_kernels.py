"""Every kernel computes what the float64 specification says, at every instruction set and number of threads."""

from __future__ import annotations

import inspect
import itertools

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.isplib import _compiled
from gnnbench.errors import BackendUnavailable, GraphError, UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.edge import edge_softmax, fusedmm, sddmm
from gnnbench.ops.families import FAMILIES
from gnnbench.ops.kernels import EXTREMA, Kernels
from gnnbench.ops.spmm import spmm, spmm_scaled
from tests.support import graphs
from tests.support.kernels import WIDTHS, check, double, normal, over_dtypes, over_kernels, over_pairs

TRUTH = Kernels()
NAN_WITH_PAYLOAD = torch.tensor(0x7FF8_0000_0000_0001).view(torch.float64)


def test_the_kernels_are_built() -> None:
    assert not isplib.MISSING


@over_dtypes
@over_pairs("width", WIDTHS)
def test_spmm_max_with_ties_and_nan(kernels: Kernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name)
    x = normal(graph.num_cols, width, dtype=dtype).round()
    x[1::4, ::3] = torch.nan
    x[2::4, ::3] = -torch.inf
    grad_out = normal(graph.num_rows, width, dtype=dtype)
    for value, reduce in itertools.product((None, normal(graph.num_edges, dtype=dtype).round()), EXTREMA):
        out, arg_out = kernels.spmm_max(graph, x, value, reduce)
        true_out, true_arg_out = TRUTH.spmm_max(graph, x, value, reduce)
        torch.testing.assert_close(out, true_out, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(arg_out, true_arg_out)
        check(
            kernels.spmm_max_backward(graph, arg_out, grad_out, value),
            TRUTH.spmm_max_backward(graph, arg_out, *double(grad_out, value)),
        )


@over_kernels
def test_exp_over_its_whole_range(kernels: Kernels) -> None:
    graph = Graph.from_csr(torch.tensor([0, 2001]), torch.zeros(2001, dtype=torch.int32), 1)
    for dtype, least in ((torch.float32, -80.0), (torch.float64, -700.0)):
        score = torch.linspace(0, least, 2001, dtype=dtype).unsqueeze(1)
        alpha, truth = kernels.edge_softmax(graph, score), TRUTH.edge_softmax(graph, score.double())
        assert ((alpha - truth).abs() / truth).max() < 8 * torch.finfo(dtype).eps
    score = torch.tensor([0.0, -torch.inf] + [-2000.0] * 1999, dtype=torch.float64).unsqueeze(1)
    assert kernels.edge_softmax(graph, score).flatten().tolist() == [1.0] + [0.0] * 2000


@over_kernels
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, NAN_WITH_PAYLOAD], ids=["nan", "inf", "payload"])
def test_softmax_of_a_row_that_has_none_is_nan(kernels: Kernels, bad: float | Tensor) -> None:
    graph = graphs.graph("power law")
    score = normal(graph.num_edges, 2)
    score[5, 1] = bad
    alpha = kernels.edge_softmax(graph, score)
    truth = TRUTH.edge_softmax(graph, score)
    assert alpha[5, 1].isnan()
    assert torch.equal(alpha[:, 0].isnan(), truth[:, 0].isnan())
    assert not alpha[:, 0].isnan().any()


@over_kernels
def test_infinities_and_nan_pass_through_sums(kernels: Kernels) -> None:
    graph = graphs.graph("power law")
    for width in (5, 41):
        x, a, value = normal(graph.num_cols, width), normal(graph.num_rows, width), normal(graph.num_edges)
        x[3, width - 2], x[7, 0], x[9] = torch.inf, torch.nan, 0.0
        value[::90], value[1::90] = -torch.inf, torch.nan
        for call in (
            lambda by, x=x: by.spmm(graph, x, None, "sum"),
            lambda by, x=x, value=value: by.spmm(graph, x, value, "mean"),
            lambda by, x=x, value=value: by.spmm_max(graph, x, value, "max"),
            lambda by, x=x, a=a: by.sddmm(graph, a, x),
        ):
            torch.testing.assert_close(call(kernels), call(TRUTH), equal_nan=True)


@over_dtypes
def test_bit_for_bit_the_same_on_any_number_of_threads(dtype: torch.dtype) -> None:
    graph = graphs.power_law(500, 20_000)
    x, value = normal(500, 67, dtype=dtype), normal(20_000, dtype=dtype)
    score = normal(20_000, 3, dtype=dtype)
    grad_out = normal(500, 67, dtype=dtype)

    def everything(threads: int) -> list[Tensor]:
        kernels = isplib.IsplibKernels(threads=threads)
        out, arg_out = kernels.spmm_max(graph, x, value, "max")
        alpha = kernels.edge_softmax(graph, score)
        return [
            kernels.spmm(graph, x, value, "sum"),
            kernels.spmm(graph, x, None, "mean"),
            kernels.spmm_scaled(graph, x, x[:, 1:2], grad_out[:, :1], x[0]),
            out,
            arg_out,
            kernels.spmm_max_backward(graph, arg_out, grad_out, value),
            kernels.sddmm(graph, grad_out, x),
            alpha,
            kernels.edge_softmax_backward(graph, alpha, score),
        ]

    alone = everything(1)
    for threads in (2, 3, 5):
        assert all(itertools.starmap(torch.equal, zip(alone, everything(threads), strict=True)))


def test_instruction_set_can_be_forced_down(monkeypatch: pytest.MonkeyPatch) -> None:
    for level in range(isplib.isa_level() + 1):
        monkeypatch.setenv("GNNBENCH_ISA", isplib.ISA[level])
        assert isplib.IsplibKernels().level == level
        assert isplib.report()["isa"] == isplib.ISA[level]
    monkeypatch.setenv("GNNBENCH_ISA", "avx1024")
    with pytest.raises(BackendUnavailable, match=r"'avx1024' is unknown.*avx512"):
        isplib.isa_level()


def test_more_than_the_processor_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNBENCH_ISA", "avx512")
    monkeypatch.setattr(_compiled.layout, "highest_isa", lambda: 0)
    with pytest.raises(BackendUnavailable, match=r"more than this processor has; allowed: baseline"):
        isplib.isa_level()


def test_backends_change_no_signature() -> None:
    for name, method in inspect.getmembers(isplib.IsplibKernels, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(method) == inspect.signature(getattr(Kernels, name)), name
    ops = {name for name in dir(Kernels) if not name.startswith("_")} | {family.op for family in FAMILIES.values()}
    assert isplib.IsplibKernels.accelerated <= ops


@over_kernels
def test_strided_tensors_are_understood(kernels: Kernels) -> None:
    graph = graphs.graph("power law")
    x, value = normal(9, graph.num_cols).t(), normal(graph.num_edges, 2)[:, 1]
    score = normal(3, graph.num_edges).t()
    same = x.contiguous(), value.contiguous(), score.contiguous()
    assert torch.equal(spmm(kernels, graph, x, value), spmm(kernels, graph, *same[:2]))
    assert torch.equal(spmm(kernels, graph, x, value, "max"), spmm(kernels, graph, *same[:2], "max"))
    assert torch.equal(sddmm(kernels, graph, x, x), sddmm(kernels, graph, same[0], same[0]))
    assert torch.equal(edge_softmax(kernels, graph, score), edge_softmax(kernels, graph, same[2]))


@pytest.mark.parametrize(
    ("x", "value", "reduce", "match"),
    [
        (torch.ones(60, 4, dtype=torch.bfloat16), None, "sum", "bfloat16; isplib computes in float32"),
        (torch.ones(60, 4, dtype=torch.int64), None, "sum", "x has type torch.int64"),
        (torch.ones(61, 4), None, "sum", "x has 61 rows, but the graph has 60 sources"),
        (torch.ones(60), None, "sum", r"x has shape \[60\]"),
        (torch.ones(60, 2, 4), None, "max", r"x has shape \[60, 2, 4\]"),
        (torch.ones(60, 4), torch.ones(899), "sum", r"value has shape \[899\], expected \[900\]"),
        (torch.ones(60, 4), torch.ones(900, 2), "sum", r"expected \[900\]"),
        (torch.ones(60, 2, 4), torch.ones(900, 3), "sum", r"expected \[900, 2\]"),
        (torch.ones(60, 4), torch.ones(900).double(), "sum", "value is torch.float64"),
        (torch.ones(60, 4, device="meta"), None, "sum", "x is on meta, the graph on cpu"),
        (torch.ones(60, 4), None, "median", "reduce must be one of sum, mean, min, max"),
    ],
)
def test_misuse_is_a_clear_error(x: Tensor, value: Tensor | None, reduce: str, match: str) -> None:
    graph = graphs.graph("power law")
    with pytest.raises(UnsupportedOp, match=match):
        spmm(isplib.IsplibKernels(), graph, x, value, reduce)


def test_misuse_over_edges_is_a_clear_error() -> None:
    kernels, graph = isplib.IsplibKernels(), graphs.graph("power law")
    with pytest.raises(UnsupportedOp, match=r"score has shape \[899, 1\]"):
        edge_softmax(kernels, graph, torch.ones(899, 1))
    with pytest.raises(UnsupportedOp, match="257 heads; isplib normalises at most 256"):
        edge_softmax(kernels, graph, torch.ones(900, 257))
    with pytest.raises(UnsupportedOp, match=r"a is torch.float32 \[60, 2\], b is torch.float32 \[60, 3\]"):
        sddmm(kernels, graph, torch.ones(60, 2), torch.ones(60, 3))
    with pytest.raises(UnsupportedOp, match="a has 59 rows and b 60"):
        sddmm(kernels, graph, torch.ones(59, 2), torch.ones(60, 2))


def test_an_edited_graph_is_refused() -> None:
    graph = graphs.graph("power law")
    graph.col[0] = 59
    kernels, x = isplib.IsplibKernels(), torch.ones(60, 4)
    for call in (lambda: spmm(kernels, graph, x), lambda: fusedmm(kernels, graph, x, x)):
        with pytest.raises(GraphError, match="edited in place"):
            call()


@over_dtypes
@over_pairs("width", [1, 3, 17, 64], on=["isolated nodes", "hub", "wide", "tall", "power law"])
def test_rows_of_both_ends(kernels: Kernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name)
    source, destination = normal(graph.num_cols, width, dtype=dtype), normal(graph.num_rows, 2, width, dtype=dtype)
    for ends in (
        (source, None),
        (None, destination[:, 1]),
        (source, destination[:, 1]),
        (destination[:, 0], None),
    ):
        if ends[0] is None or len(ends[0]) == graph.num_cols:
            truth = Kernels().gather_rows(graph.rowptr, graph.col, *ends)
            torch.testing.assert_close(kernels.gather_rows(graph.rowptr, graph.col, *ends), truth, rtol=0, atol=0)


@over_dtypes
@over_pairs("width", WIDTHS)
def test_scaled_ends_with_a_bias(kernels: Kernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name)
    x, of_source = normal(graph.num_cols, width, dtype=dtype), normal(graph.num_cols, 1, dtype=dtype)
    scale = normal(graph.num_rows, 1, dtype=dtype)
    learned = x.clone().requires_grad_()
    for bias in (None, normal(width, dtype=dtype), normal(1, dtype=dtype)):  # the last is for torch to expand
        truth = TRUTH.spmm(graph, x.double() * of_source.double(), None, "sum") * scale.double()
        truth = truth if bias is None else truth + bias.double()
        check(spmm_scaled(kernels, graph, x, of_source, scale, bias), truth)
        check(spmm_scaled(kernels, graph, learned, of_source, scale, bias).detach(), truth)
