"""FusedMM: every function and gradient against plain torch, for all instruction sets, widths and threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.edge import fusedmm
from gnnbench.ops.kernels import EDGE_FNS, Kernels
from tests.support import graphs
from tests.support.kernels import normal, over_kernels

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
PLAIN = {
    "identity": lambda s: s,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "leaky_relu": lambda s: torch.nn.functional.leaky_relu(s, 0.2),
    "tanh": torch.tanh,
}

over_functions = pytest.mark.parametrize("edge_fn", EDGE_FNS)


def plain(graph: Graph, x: Tensor, y: Tensor, edge_fn: str) -> Tensor:
    """Compute it as messages, differentiated by torch alone."""
    source = y[graph.col.long()]
    weight = PLAIN[edge_fn]((x[graph.row] * source).sum(-1, keepdim=True))
    return torch.zeros_like(x).index_add(0, graph.row, weight * source)


def check(kernels: Kernels, graph: Graph, edge_fn: str, dtype: torch.dtype, *shape: int) -> None:
    """Result and gradients; scores of about one whatever the width."""
    scale = max(shape[-1], 1) ** -0.25
    inputs = [scale * normal(nodes, *shape, dtype=dtype) for nodes in (graph.num_rows, graph.num_cols)]
    true = [tensor.double().requires_grad_() for tensor in inputs]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    found, truth = fusedmm(kernels, graph, *inputs, edge_fn), plain(graph, *true, edge_fn)
    grad_out = normal(graph.num_rows, *shape, dtype=dtype)
    gradients = torch.autograd.grad(found, inputs, grad_out)
    truths = torch.autograd.grad(truth, true, grad_out.double())
    for one, other in zip((found, *gradients), (truth, *truths), strict=True):
        assert graphs.relative_error(one.detach(), other.detach()) < TOLERANCE[dtype]


@over_functions
@over_kernels
@pytest.mark.parametrize("graph_name", graphs.NAMES)
def test_on_every_graph(kernels: Kernels, graph_name: str, edge_fn: str) -> None:
    graph = graphs.graph(graph_name, kernels)
    for dtype in TOLERANCE:
        check(kernels, graph, edge_fn, dtype, 17)
        check(kernels, graph, edge_fn, dtype, 3, 5)


@over_kernels
def test_every_width_and_number_of_heads(kernels: Kernels) -> None:
    graph = graphs.graph("wide", kernels)
    for dtype in TOLERANCE:
        for width in (*range(71), 127, 129, 257, 602):
            check(kernels, graph, "sigmoid", dtype, width)
        for heads in range(1, 9):
            check(kernels, graph, "tanh", dtype, heads, 7)


@over_kernels
def test_rows_of_many_chunks(kernels: Kernels) -> None:
    """The row of a hub, whose edges do not fit one chunk, with a rest that fills no vector."""
    graph = graphs.graph("hub", kernels)
    assert graph.degree.max() > 4 * 64
    for width in (1, 16, 40, 300):
        check(kernels, graph, "exp", torch.float64, width)


@over_functions
@over_kernels
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_functions_over_their_whole_range(kernels: Kernels, edge_fn: str, dtype: torch.dtype) -> None:
    """Relative accuracy wherever the result is no subnormal: one edge per node, so that no sum hides it."""
    if edge_fn == "identity":
        return
    most = 80.0 if dtype == torch.float32 else 700.0
    far, near = torch.linspace(-most, most, 801, dtype=dtype), torch.logspace(-20, 1, 400, dtype=dtype)
    x = torch.cat([far, near, -near, torch.zeros(1, dtype=dtype)]).unsqueeze(1).requires_grad_()
    nodes = torch.arange(len(x))
    graph = Graph.from_edge_index(torch.stack([nodes, nodes]), len(x), layout=kernels)
    one = torch.ones_like(x)
    out = fusedmm(kernels, graph, x, one, edge_fn)
    (derivative,) = torch.autograd.grad(out, x, one)
    s = x.detach().double()
    truth = EDGE_FNS[edge_fn].value(s), EDGE_FNS[edge_fn].derivative(s)
    for found, true in zip((out, derivative), truth, strict=True):
        normal_range = true.abs() > torch.finfo(dtype).tiny * 8
        wrong = (found - true).abs()[normal_range] / true.abs()[normal_range]
        # Next to the ends exp(s) magnifies the rounding of s itself in torch's reference too.
        assert wrong.max() < 16 * torch.finfo(dtype).eps


@over_kernels
def test_what_is_not_finite_passes_through(kernels: Kernels) -> None:
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 3], [0, 1, 2, 3]]), 4, layout=kernels)
    x, one = torch.tensor([[torch.inf], [-torch.inf], [torch.nan], [1e30]]), torch.ones(4, 1)
    for edge_fn, function in PLAIN.items():
        torch.testing.assert_close(fusedmm(kernels, graph, x, one, edge_fn), function(x), equal_nan=True)


@over_functions
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_bit_for_bit_the_same_on_any_number_of_threads(edge_fn: str, dtype: torch.dtype) -> None:
    graph = graphs.power_law(500, 20_000)
    x, y, grad_out = (0.3 * normal(500, 2, 21 + seed, dtype=dtype)[..., :21] for seed in range(3))

    def everything(threads: int) -> list[Tensor]:
        kernels = isplib.IsplibKernels(threads=threads)
        return [
            kernels.fusedmm(graph, x, y, edge_fn),
            kernels.fusedmm_grad_x(graph, x, y, edge_fn, grad_out),
            kernels.fusedmm_grad_y(graph, x, y, edge_fn, grad_out),
        ]

    alone = everything(1)
    for threads in (2, 3):
        assert all(torch.equal(a, b) for a, b in zip(alone, everything(threads), strict=True))


@over_functions
@over_kernels
@settings(max_examples=15, deadline=None)
@given(edges=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=200), width=st.integers(0, 40))
def test_on_any_graph(kernels: Kernels, edge_fn: str, edges: list[tuple[int, int]], width: int) -> None:
    edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    check(kernels, Graph.from_edge_index(edge_index, 7, 9, kernels), edge_fn, torch.float64, width)


@over_functions
@over_kernels
def test_gradcheck(kernels: Kernels, edge_fn: str) -> None:
    graph = graphs.graph("duplicates", kernels)
    x, y = normal(4, 3).requires_grad_(), (0.5 * normal(4, 3)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: fusedmm(kernels, graph, x, y, edge_fn), (x, y))


@over_kernels
def test_strided_tensors_and_gradients_are_understood(kernels: Kernels) -> None:
    graph = graphs.graph("power law", kernels)
    x, y = normal(9, 60).t().requires_grad_(), normal(60, 18)[:, ::2]
    same = x.detach().contiguous().requires_grad_()
    out, expected = fusedmm(kernels, graph, x, y, "tanh"), fusedmm(kernels, graph, same, y.contiguous(), "tanh")
    assert torch.equal(out, expected)
    ones = torch.ones(1).expand(60, 9).double()
    assert torch.equal(torch.autograd.grad(out, x, ones)[0], torch.autograd.grad(expected, same, ones)[0])


@pytest.mark.parametrize(
    ("x", "y", "edge_fn", "match"),
    [
        (
            torch.ones(60, 4),
            torch.ones(60, 5),
            "exp",
            r"x is torch.float32 \[60, 4\], y is torch.float32 \[60, 5\]",
        ),
        (torch.ones(60, 4), torch.ones(60, 4).double(), "exp", r"y is torch.float64"),
        (torch.ones(60), torch.ones(60), "exp", r"x is torch.float32 \[60\]"),
        (torch.ones(59, 4), torch.ones(60, 4), "exp", "x has 59 rows and y 60, the graph is 60 x 60"),
        (torch.ones(60, 4), torch.ones(60, 4), "relu", "edge_fn is 'relu', but must be one of identity, sigmoid"),
        (torch.ones(60, 4).half(), torch.ones(60, 4).half(), "exp", "float16; isplib computes in float32"),
    ],
)
def test_misuse_is_a_clear_error(x: Tensor, y: Tensor, edge_fn: str, match: str) -> None:
    with pytest.raises(UnsupportedOp, match=match):
        fusedmm(isplib.IsplibKernels(), graphs.graph("power law"), x, y, edge_fn)
