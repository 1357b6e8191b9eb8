"""Programs over edges: kernels run what the specification says, and gradients are those of the function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.backends.isplib import edge as border
from gnnbench.graph import Graph
from gnnbench.ops.fused import run
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.program import OPS, Leaf, Place, Program, Sink, Step, Writer
from tests.support import graphs
from tests.support.kernels import OURS, check, leaf, normal, over_dtypes, over_kernels, over_pairs

TRUTH = Kernels()
SHAPES = [(1, 1), (1, 3), (2, 4), (1, 64), (3, 37)]  # heads and their width


@functools.cache
def program(heads: int, width: int, reduce: str = "sum") -> Program:
    """A gate at every edge, times a number of the edge and head, with scores of the heads, by every operation."""
    wide = heads * width
    writer = Writer(
        Program(
            heads,
            width,
            (Leaf("source", wide), Leaf("destination", wide), Leaf("edge", heads), Leaf("edge", wide)),
            (),
            (),
        ),
        (),
    )
    write = writer.write
    gate = write("sigmoid", write("add", 0, 1))
    score = write("leaky_relu", write("shift", write("total", write("mul", 0, 1)), None, 0.3), None, 0.2)
    score = write("exp", write("scale", write("tanh", score), None, 0.5))
    out = write("mul", write("mul", gate, write("softplus", 0)), score)
    out = write("sub", write("relu", write("sub", out, 2)), write("div", 3, write("shift", gate, None, 1.0)))
    sinks = [Sink(write("add", out, write("spread", 2)), "destination", reduce)]
    return writer.program(sinks)[0]


def inputs(graph: Graph, heads: int, width: int, make: Callable[..., Tensor]) -> list[Tensor]:
    rows: dict[Place, int] = {"source": graph.num_cols, "destination": graph.num_rows, "edge": graph.num_edges}
    found = [make(rows[each.place], each.width) for each in program(heads, width).leaves]
    return [each.detach().requires_grad_() if each.requires_grad else each for each in found]


def everything(kernels: Kernels, graph: Graph, of: Program, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return its result and the gradients of all leaves."""
    (out,) = run(kernels, graph, of, tensors)
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
    return [out, *torch.autograd.grad((out * weight).sum(), tensors)]


@over_dtypes
@over_pairs("shape", SHAPES)
def test_a_program_with_its_gradients(
    kernels: Kernels, graph_name: str, shape: tuple[int, int], dtype: torch.dtype
) -> None:
    graph = graphs.graph(graph_name)
    tensors = inputs(graph, *shape, functools.partial(leaf, dtype=dtype))
    doubled = [each.detach().double().requires_grad_() for each in tensors]
    for reduce in ("sum", "max"):
        of = program(*shape, reduce)
        truths = everything(TRUTH, graph, of, doubled)
        if reduce == "sum" or dtype == torch.float64:
            for found, truth in zip(everything(kernels, graph, of, tensors), truths, strict=True):
                check(found, truth)


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("graph_name", graphs.SMALL)
def test_numerical_derivatives(graph_name: str, reduce: str) -> None:
    graph = graphs.graph(graph_name)
    tensors = inputs(graph, 2, 2, leaf)
    call = lambda *given: run(OURS, graph, program(2, 2, reduce), given)  # noqa: E731
    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


@over_kernels
@over_dtypes
@pytest.mark.parametrize("largest", [1e-4, 1.0, 10.0, 60.0])
def test_functions_are_accurate_near_and_far_from_zero(
    kernels: Kernels, dtype: torch.dtype, largest: float
) -> None:
    graph = Graph.from_csr(torch.arange(1001), torch.arange(1000, dtype=torch.int32))
    x = torch.linspace(-largest, largest, 7000, dtype=dtype).view(1000, 7)
    for op in ("exp", "sigmoid", "tanh", "softplus", "relu", "leaky_relu", "slope"):
        of = Program(1, 7, (Leaf("source", 7),), (Step(op, 0, 0, 0.1, 7),), (Sink(1, "destination"),))
        (found,), (truth,) = (
            by.program(graph, of, [x.to(t)], None) for by, t in ((kernels, dtype), (TRUTH, x.double().dtype))
        )
        off = (found.double() - truth).abs() / truth.abs().clamp(min=1e-300)
        assert off.max() < (4 * torch.finfo(dtype).eps if op != "softplus" else 1e-9 + 4 * torch.finfo(dtype).eps)


@over_kernels
def test_nan_and_infinities_pass_through(kernels: Kernels) -> None:
    graph = Graph.from_csr(torch.arange(5), torch.arange(4, dtype=torch.int32))
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0]).repeat(9, 1).t().contiguous()
    for op in OPS:
        if op not in ("total", "spread"):
            of = Program(1, 9, (Leaf("source", 9),), (Step(op, 0, 0, 0.1, 9),), (Sink(1, "destination", "max"),))
            found, truth = (by.program(graph, of, [x], None)[0] for by in (kernels, TRUTH))
            torch.testing.assert_close(found, truth, equal_nan=True)


@over_dtypes
def test_bit_for_bit_the_same_on_any_number_of_threads(dtype: torch.dtype) -> None:
    graph = graphs.power_law(500, 20_000)
    tensors = inputs(graph, 2, 33, functools.partial(leaf, dtype=dtype))
    alone = everything(isplib.IsplibKernels(threads=1), graph, program(2, 33), tensors)
    for threads in (2, 3, 5):
        found = everything(isplib.IsplibKernels(threads=threads), graph, program(2, 33), tensors)
        assert all(map(torch.equal, alone, found))


def test_every_number_of_a_result_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **how: empty(*size, **how).fill_(torch.nan))
    graph = graphs.graph("isolated nodes")
    found = everything(OURS, graph, program(2, 4), inputs(graph, 2, 4, leaf))
    assert not any(each.isnan().any() for each in found)


def test_what_no_kernel_can_run_is_refused_at_the_border() -> None:
    graph = graphs.graph("hub")
    of = program(2, 4)
    tensors = inputs(graph, 2, 4, normal)
    kernels = isplib.IsplibKernels()
    wrong = {
        "leaf 0 has width 7": of._replace(leaves=(Leaf("source", 7), *of.leaves[1:])),
        "step 0 reads a register": of._replace(steps=(of.steps[0]._replace(a=40), *of.steps[1:])),
    }
    for reason, each in wrong.items():
        given = [normal(30, 7), *tensors[1:]] if "leaf" in reason else tensors
        with pytest.raises(ValueError, match=reason):
            kernels.program(graph, each, given, graph.edge_id)
    with pytest.raises(ValueError, match="x is"):
        kernels.program(graph, of, [tensors[0][1:], *tensors[1:]], graph.edge_id)
    with pytest.raises(ValueError, match="x is"):
        kernels.program(graph, of, [tensors[0].t().contiguous().t(), *tensors[1:]], graph.edge_id)
    assert set(border.native_program.OPS) == set(OPS)
