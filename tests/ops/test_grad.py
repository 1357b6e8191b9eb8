"""Gradients of the differentiable ops: against autograd through plain messages, by gradcheck, and as adjoints."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.graph import Graph
from gnnbench.ops.edge import edge_softmax, sddmm
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm
from tests.support import graphs

WIDTHS = [1, 3, 16, 41, 63, 128, 602]
KERNELS: dict[str, Kernels] = {"torch": Kernels()} | ({} if isplib.MISSING else {"isplib": isplib.IsplibKernels()})
over_graphs = pytest.mark.parametrize("graph_name", graphs.NAMES)
over_kernels = pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS.keys())
over_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()


def plain_spmm(graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
    """Aggregation as messages and `scatter_reduce`, differentiated by torch alone."""
    message = x[graph.col.long()]
    if value is not None:
        message = message * value.reshape(*value.shape, *[1] * (x.dim() - value.dim()))
    index = graph.row.view(-1, *[1] * (x.dim() - 1)).expand_as(message)
    how = {"sum": "sum", "mean": "mean", "min": "amin", "max": "amax"}[reduce]
    out = x.new_zeros(graph.num_rows, *x.shape[1:])
    return out.scatter_reduce(0, index, message, how, include_self=False)


def plain_softmax(graph: Graph, score: Tensor) -> Tensor:
    rows = [score[start:end].softmax(0) for start, end in zip(graph.rowptr, graph.rowptr[1:], strict=False)]
    return torch.cat(rows) if rows else score * 1


def check_gradients(found: Tensor, truth: Tensor, inputs: list[Tensor], true_inputs: list[Tensor]) -> None:
    """Outputs and the gradients of a weighted sum of them with respect to every input."""
    assert graphs.relative_error(found, truth) < TOLERANCE[found.dtype]
    weight = torch.randn(truth.shape, dtype=truth.dtype, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad(found, inputs, weight.to(found.dtype))
    for gradient, true in zip(gradients, torch.autograd.grad(truth, true_inputs, weight), strict=True):
        assert graphs.relative_error(gradient, true) < TOLERANCE[found.dtype]


@over_dtypes
@over_graphs
@over_kernels
@pytest.mark.parametrize("width", WIDTHS)
def test_spmm(kernels: Kernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, kernels)
    for reduce in ("sum", "mean", "min", "max"):
        for weighted in (False, True):
            inputs = [leaf(graph.num_cols, width, dtype=dtype)]
            inputs += [leaf(graph.num_edges, dtype=dtype)] if weighted else []
            true = [tensor.detach().double().requires_grad_() for tensor in inputs]
            value, true_value = (inputs[1], true[1]) if weighted else (None, None)
            check_gradients(
                spmm(kernels, graph, inputs[0], value, reduce),
                plain_spmm(graph, true[0], true_value, reduce),
                inputs,
                true,
            )


@over_dtypes
@over_graphs
@over_kernels
def test_spmm_of_many_heads(kernels: Kernels, graph_name: str, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, kernels)
    for heads in ([], [3]):
        inputs = [leaf(graph.num_cols, 3, 5, dtype=dtype), leaf(graph.num_edges, *heads, dtype=dtype)]
        true = [tensor.detach().double().requires_grad_() for tensor in inputs]
        check_gradients(
            spmm(kernels, graph, inputs[0], inputs[1], "mean"),
            plain_spmm(graph, true[0], true[1], "mean"),
            inputs,
            true,
        )


@over_dtypes
@over_graphs
@over_kernels
@pytest.mark.parametrize("width", WIDTHS)
def test_sddmm(kernels: Kernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, kernels)
    for heads in ([], [2]):
        inputs = [leaf(nodes, *heads, width, dtype=dtype) for nodes in (graph.num_rows, graph.num_cols)]
        a, b = true = [tensor.detach().double().requires_grad_() for tensor in inputs]
        score = (a[graph.row] * b[graph.col.long()]).sum(-1)
        check_gradients(sddmm(kernels, graph, *inputs), score, inputs, true)


@over_dtypes
@over_graphs
@over_kernels
@pytest.mark.parametrize("heads", [1, 4, 5])
def test_edge_softmax(kernels: Kernels, graph_name: str, heads: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, kernels)
    score = leaf(graph.num_edges, heads, dtype=dtype)
    true = score.detach().double().requires_grad_()
    alpha, truth = edge_softmax(kernels, graph, score), plain_softmax(graph, true)
    if (graph.degree <= 1).all():  # where every alpha is one its gradient is nothing but rounding
        return torch.testing.assert_close(alpha.double(), truth)
    check_gradients(alpha, truth, [score], [true])


@over_kernels
@pytest.mark.parametrize("graph_name", ["isolated nodes", "duplicates", "wide", "tall"])
def test_gradcheck(kernels: Kernels, graph_name: str) -> None:
    graph = graphs.graph(graph_name, kernels)
    x, heads = leaf(graph.num_cols, 3), leaf(graph.num_cols, 2, 3)
    value, score = leaf(graph.num_edges), leaf(graph.num_edges, 2)
    for reduce in ("sum", "mean", "min", "max"):
        assert torch.autograd.gradcheck(partial(spmm, kernels, graph, reduce=reduce), (x, value))
    assert torch.autograd.gradcheck(partial(spmm, kernels, graph), (heads, score))
    assert torch.autograd.gradcheck(partial(sddmm, kernels, graph), (leaf(graph.num_rows, 3), x))
    assert torch.autograd.gradcheck(partial(edge_softmax, kernels, graph), (score,))


@over_kernels
def test_only_what_is_asked_for_is_differentiated(kernels: Kernels) -> None:
    graph = graphs.graph("power law", kernels)
    x, value = leaf(60, 5), leaf(900)
    for inputs in ((x.detach(), value), (x, value.detach())):
        for reduce in ("sum", "max"):
            spmm(kernels, graph, *inputs, reduce).sum().backward()
        sddmm(kernels, graph, x, x.detach()).sum().backward()


@over_kernels
@settings(max_examples=40, deadline=None)
@given(
    edges=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=50),
    width=st.integers(1, 40),
)
def test_the_transpose_is_the_adjoint(kernels: Kernels, edges: list[tuple[int, int]], width: int) -> None:
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    graph = Graph.from_edge_index(edge_index, 7, 9, kernels)
    x, y, value = leaf(9, width), leaf(7, width), leaf(len(edges))
    with torch.no_grad():
        forward = (spmm(kernels, graph, x, value) * y).sum()
        backward = (spmm(kernels, graph.transpose, y, value[graph.perm.long()]) * x).sum()
    torch.testing.assert_close(forward, backward)
