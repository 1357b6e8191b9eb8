"""Outputs and gradients of the differentiable ops: beside plain messages in float64, by gradcheck, as adjoints."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.ops.edge import edge_softmax, sddmm
from gnnbench.ops.kernels import REDUCTIONS, Kernels
from gnnbench.ops.spmm import spmm, spmm_scaled
from tests.support import graphs
from tests.support.kernels import WIDTHS, leaf, over_dtypes, over_kernels, over_pairs

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}  # of gradients


def plain_spmm(graph: Graph, x: Tensor, value: Tensor | None = None, reduce: str = "sum") -> Tensor:
    """Aggregation as messages and `scatter_reduce`, differentiated by torch alone."""
    message = x[graph.col.long()]
    if value is not None:
        message = message * value.reshape(*value.shape, *[1] * (x.dim() - value.dim()))
    index = graph.row.view(-1, *[1] * (x.dim() - 1)).expand_as(message)
    how = {"sum": "sum", "mean": "mean", "min": "amin", "max": "amax"}[reduce]
    out = x.new_zeros(graph.num_rows, *x.shape[1:])
    return out.scatter_reduce(0, index, message, how, include_self=False)


def plain_sddmm(graph: Graph, a: Tensor, b: Tensor) -> Tensor:
    return (a[graph.row] * b[graph.col.long()]).sum(-1)


def plain_softmax(graph: Graph, score: Tensor) -> Tensor:
    rows = [score[start:end].softmax(0) for start, end in itertools.pairwise(graph.rowptr.tolist())]
    return torch.cat(rows) if rows else score * 1


def check(op: Callable[..., Tensor], plain: Callable[..., Tensor], *inputs: Tensor) -> None:
    """Outputs and the gradients of a weighted sum of them with respect to every input."""
    true = [tensor.detach().double().requires_grad_() for tensor in inputs]
    out, truth = op(*inputs), plain(*true)
    assert graphs.relative_error(out.detach(), truth.detach()) < graphs.TOLERANCE[out.dtype]
    weight = torch.randn(truth.shape, dtype=truth.dtype, generator=torch.Generator().manual_seed(1))
    gradients = torch.autograd.grad(out, inputs, weight.to(out.dtype))
    for gradient, expected in zip(gradients, torch.autograd.grad(truth, true, weight), strict=True):
        assert graphs.relative_error(gradient, expected) < TOLERANCE[out.dtype]


@over_dtypes
@over_pairs("width", WIDTHS)
def test_spmm(kernels: Kernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, kernels)
    x, value = leaf(graph.num_cols, width, dtype=dtype), leaf(graph.num_edges, dtype=dtype)
    for reduce, weights in itertools.product(REDUCTIONS, ((), (value,))):
        plain = partial(plain_spmm, graph, reduce=reduce)
        check(partial(spmm, kernels, graph, reduce=reduce), plain, x, *weights)
    of_source, scale = leaf(graph.num_cols, 1, dtype=dtype).detach(), leaf(graph.num_rows, 1, dtype=dtype).detach()
    check(
        lambda x, bias: spmm_scaled(kernels, graph, x, of_source, scale, bias),
        lambda x, bias: plain_spmm(graph, x * of_source.double()) * scale.double() + bias,
        x,
        leaf(width, dtype=dtype),
    )


@over_dtypes
@over_pairs("shape", [(1, 1), (2, 3), (3, 8), (8, 5), (4, 41)])
def test_many_heads(kernels: Kernels, graph_name: str, shape: tuple[int, int], dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, kernels)
    a, b = (leaf(nodes, *shape, dtype=dtype) for nodes in (graph.num_rows, graph.num_cols))
    plain = partial(plain_spmm, graph, reduce="mean")
    for weights in ([], [leaf(graph.num_edges, dtype=dtype)], [leaf(graph.num_edges, shape[0], dtype=dtype)]):
        check(partial(spmm, kernels, graph, reduce="mean"), plain, b, *weights)
    check(partial(sddmm, kernels, graph), partial(plain_sddmm, graph), a, b)


@over_dtypes
@over_pairs("width", WIDTHS)
def test_sddmm(kernels: Kernels, graph_name: str, width: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, kernels)
    inputs = (leaf(nodes, width, dtype=dtype) for nodes in (graph.num_rows, graph.num_cols))
    check(partial(sddmm, kernels, graph), partial(plain_sddmm, graph), *inputs)


@over_dtypes
@over_pairs("heads", [1, 2, 3, 5, 8, 13, 48])
def test_edge_softmax(kernels: Kernels, graph_name: str, heads: int, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, kernels)
    score = leaf(graph.num_edges, heads, dtype=dtype).detach().mul(10).add(300).requires_grad_()
    true, grad_alpha = score.detach().double().requires_grad_(), leaf(graph.num_edges, heads, dtype=dtype).detach()
    alpha, truth = edge_softmax(kernels, graph, score), plain_softmax(graph, true)
    assert graphs.relative_error(alpha.detach(), truth.detach()) < graphs.TOLERANCE[dtype]
    (found,) = torch.autograd.grad(alpha, score, grad_alpha)
    (expected,) = torch.autograd.grad(truth, true, grad_alpha.double())
    # Gradients of a softmax cancel, so their error is measured against what they are made of.
    assert (found - expected).norm() <= graphs.TOLERANCE[dtype] * (truth * grad_alpha).norm()


@over_kernels
def test_gradcheck(kernels: Kernels) -> None:
    graph = graphs.graph("knot", kernels)
    x, heads = leaf(graph.num_cols, 3), leaf(graph.num_cols, 2, 3)
    value, score = leaf(graph.num_edges), leaf(graph.num_edges, 2)
    for reduce in REDUCTIONS:
        assert torch.autograd.gradcheck(partial(spmm, kernels, graph, reduce=reduce), (x, value))
    assert torch.autograd.gradcheck(partial(spmm, kernels, graph), (heads, score))
    ends = (leaf(nodes, 1).detach() for nodes in (graph.num_cols, graph.num_rows))
    assert torch.autograd.gradcheck(partial(spmm_scaled, kernels, graph), (x, *ends, leaf(3)))
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
@given(edges=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=50), width=st.integers(1, 40))
def test_the_transpose_is_the_adjoint(kernels: Kernels, edges: list[tuple[int, int]], width: int) -> None:
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    graph = Graph.from_edge_index(edge_index, 7, 9, kernels)
    x, y, value = leaf(9, width), leaf(7, width), leaf(len(edges))
    with torch.no_grad():
        forward = (spmm(kernels, graph, x, value) * y).sum()
        backward = (spmm(kernels, graph.transpose, y, value[graph.perm.long()]) * x).sum()
    torch.testing.assert_close(forward, backward)
