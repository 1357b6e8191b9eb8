"""Every Triton kernel computes what the float64 specification says, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnbench.backends.cuda import _base
from gnnbench.graph import Graph
from gnnbench.ops.families import FAMILIES, Attention
from gnnbench.ops.kernels import Kernels
from tests.support import graphs, kernels
from tests.support.gpu import DEVICE, KERNELS, TOLERANCE, graph, needs_triton
from tests.support.kernels import double

TRUTH = Kernels()
DTYPES = list(TOLERANCE)
pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")]


@pytest.fixture(autouse=True)
def several_rows_to_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as large graphs of few edges are."""
    monkeypatch.setattr(_base, "PROGRAMS", 4)


normal = partial(kernels.normal, dtype=torch.float32, device=DEVICE)


def over_graphs(argument: str, cases: list[Any]) -> pytest.MarkDecorator:
    """Every graph in every case; the largest in the last one only, as Triton's interpreter is slow."""
    pairs = [(name, case) for name in graphs.NAMES for case in (cases[-1:] if name == "power law" else cases)]
    return pytest.mark.parametrize(("name", argument), pairs)


def check(found: Tensor, truth: Tensor) -> None:
    assert graphs.relative_error(found, truth) < TOLERANCE[found.dtype]


@over_graphs("case", [((41,), 0), ((5,), 1), ((3, 7), 1), ((3, 7), 2)])
def test_spmm(name: str, case: tuple[tuple[int, ...], int]) -> None:
    on, (shape, weights) = graph(name), case
    x = normal(on.num_cols, *shape)
    value = normal(on.num_edges, *shape[: weights - 1]) if weights else None
    for reduce in ("sum", "mean"):
        check(KERNELS.spmm(on, x, value, reduce), TRUTH.spmm(on, *double(x, value), reduce))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (16,), (200,), (8, 16), (40, 2)])
def test_spmm_of_every_width_and_type(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    on = graph("duplicates")
    x, value = normal(on.num_cols, *shape, dtype=dtype), normal(on.num_edges, *shape[:-1], dtype=dtype)
    check(KERNELS.spmm(on, x, value, "sum"), TRUTH.spmm(on, *double(x, value), "sum"))


@pytest.mark.parametrize(
    ("name", "width"), [(name, 3) for name in graphs.NAMES] + [("duplicates", 70), ("wide", 70)]
)
def test_spmm_max_with_ties_and_nan(name: str, width: int) -> None:
    on = graph(name)
    x = normal(on.num_cols, width).round()
    x[1::4, ::3] = torch.nan
    x[2::4, ::3] = -torch.inf
    grad_out = normal(on.num_rows, width)
    for value, reduce in ((None, "max"), (normal(on.num_edges).round(), "min")):
        out, arg_out = KERNELS.spmm_max(on, x, value, reduce)
        true_out, true_arg_out = TRUTH.spmm_max(on, x, value, reduce)
        torch.testing.assert_close(out, true_out, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(arg_out, true_arg_out)
        found = KERNELS.spmm_max_backward(on, arg_out, grad_out, value)
        check(found, TRUTH.spmm_max_backward(on, arg_out, *double(grad_out, value)))


def test_infinities_and_nan_pass_through_sums() -> None:
    """Leave out what lanes beyond a row or its channels hold, zeros times infinite weights."""
    on = graph("hub")
    x, value = normal(on.num_cols, 5), normal(on.num_edges)
    x[3, 2], x[7, 0], x[9] = torch.inf, torch.nan, 0.0
    value[::90], value[1::90] = -torch.inf, torch.nan
    for weight, reduce in ((None, "sum"), (value, "mean")):
        torch.testing.assert_close(
            KERNELS.spmm(on, x, weight, reduce),
            TRUTH.spmm(on, x, weight, reduce),
            equal_nan=True,
            rtol=1e-5,
            atol=1e-4,
        )
    found, truth = (by.spmm_max(on, x, value, "max") for by in (KERNELS, TRUTH))
    torch.testing.assert_close(found, truth, equal_nan=True)
    torch.testing.assert_close(KERNELS.sddmm(on, x, x), TRUTH.sddmm(on, x, x), equal_nan=True)


@over_graphs("shape", [(1,), (130,), (3, 7)])
def test_sddmm(name: str, shape: tuple[int, ...]) -> None:
    on = graph(name)
    a, b = normal(on.num_rows, *shape), normal(on.num_cols, *shape)
    check(KERNELS.sddmm(on, a, b), TRUTH.sddmm(on, *double(a, b)))


@over_graphs("width", [1, 70, 5])
def test_segments_with_ties_and_nan(name: str, width: int) -> None:
    on = graph(name)
    x, grad_out = normal(on.num_edges, width).round(), normal(on.num_rows, width)
    x[1::9, ::3] = torch.nan
    x[2::9, ::3] = -torch.inf
    for reduce in ("max", "min"):
        out = KERNELS.segment(on.rowptr, x, reduce)
        torch.testing.assert_close(out, TRUTH.segment(on.rowptr, x, reduce), rtol=0, atol=0, equal_nan=True)
        found = KERNELS.segment_backward(on.rowptr, grad_out, reduce, x, out)
        check(found, TRUTH.segment_backward(on.rowptr, grad_out.double(), reduce, x.double(), out.double()))
    x = normal(on.num_edges, width)
    for reduce in ("sum", "mean"):
        check(KERNELS.segment(on.rowptr, x, reduce), TRUTH.segment(on.rowptr, x.double(), reduce))
    found = normal(on.num_cols, width)
    truth = found.double()
    KERNELS.add_rows(found, on.col, x)
    TRUTH.add_rows(truth, on.col, x.double())
    check(found, truth)


@over_graphs("heads", [1, 8, 3])
def test_edge_softmax(name: str, heads: int) -> None:
    on = graph(name)
    score, grad_alpha = 10 * normal(on.num_edges, heads) + 300, normal(on.num_edges, heads)
    alpha = KERNELS.edge_softmax(on, score)
    check(alpha, TRUTH.edge_softmax(on, score.double()))
    found = KERNELS.edge_softmax_backward(on, alpha, grad_alpha)
    truth = TRUTH.edge_softmax_backward(on, *double(alpha, grad_alpha))
    # Gradients of a softmax cancel, so their error is measured against what they are made of.
    assert (found - truth).norm() <= TOLERANCE[found.dtype] * (alpha * grad_alpha).double().norm()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_in_every_type(dtype: torch.dtype) -> None:
    on = graph("hub")
    x, value = normal(on.num_cols, 9, dtype=dtype), normal(on.num_edges, dtype=dtype)
    out, arg_out = KERNELS.spmm_max(on, x, value, "max")
    check(out, TRUTH.spmm_max(on, *double(x, value), "max")[0])
    found = KERNELS.spmm_max_backward(on, arg_out, x, value)
    check(found, TRUTH.spmm_max_backward(on, arg_out, *double(x, value)))
    check(KERNELS.sddmm(on, x, x), TRUTH.sddmm(on, *double(x, x)))
    check(KERNELS.spmm(on, x, value, "mean"), TRUTH.spmm(on, *double(x, value), "mean"))
    score = value.unsqueeze(1)
    alpha = KERNELS.edge_softmax(on, score)
    check(alpha, TRUTH.edge_softmax(on, score.double()))
    check(KERNELS.edge_softmax_backward(on, alpha, score), TRUTH.edge_softmax_backward(on, *double(alpha, score)))
    edges = value.unsqueeze(1).contiguous()
    out = KERNELS.segment(on.rowptr, edges, "max")
    check(out, TRUTH.segment(on.rowptr, edges.double(), "max"))
    found = KERNELS.segment_backward(on.rowptr, out, "max", edges, out)
    check(found, TRUTH.segment_backward(on.rowptr, out.double(), "max", edges.double(), out.double()))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", ["power law", "tall"])
def test_softmax_of_a_row_that_has_none_is_nan(name: str, bad: float) -> None:
    on = graph(name)
    score = normal(on.num_edges, 2)
    score[5, 1] = bad
    score[: on.num_edges // 2, 0] = -torch.inf  # whole rows, and parts of rows
    torch.testing.assert_close(KERNELS.edge_softmax(on, score), TRUTH.edge_softmax(on, score), equal_nan=True)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="only a CPU gives memory when it is touched")
def test_offsets_beyond_32_bits() -> None:
    width, last = 1 << 7, (1 << 24) + 5
    x = torch.from_numpy(np.zeros((last + 1, width), dtype=np.float16))  # whose zeros take no memory
    x[last] = normal(width).half()
    on = Graph.from_csr(torch.tensor([0, 1]), torch.tensor([last]), last + 1, KERNELS)
    assert torch.equal(KERNELS.spmm(on, x, None, "sum")[0], x[last])
    assert torch.equal(KERNELS.spmm_max(on, x, None, "max")[0][0], x[last])
    one = torch.ones(1, width).half()
    check(KERNELS.sddmm(on, one, x), x[last].double().sum().view(1))
    inputs = one.unsqueeze(1), *[x.unsqueeze(1)] * 2
    out, _ = KERNELS.attention(on, Attention(FAMILIES["dot"], inputs, 0.2, None), False)
    assert torch.equal(out[0, 0], x[last])
