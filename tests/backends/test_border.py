"""The border to compiled code: fields of structs that do not fit, none of which reaches a kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench import registry
from gnnbench.backends import isplib
from gnnbench.backends.isplib import ceiling
from gnnbench.backends.isplib.batch import Positions
from gnnbench.backends.isplib.sample import EDGE, NODE, Neighbors
from gnnbench.graph import Graph
from gnnbench.graph.layout import Members, Picked
from gnnbench.ops.attention import attention
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.kernels import choice_key
from gnnbench.ops.program import Leaf, Program, Sink, Step
from tests.convs.test_linears import lower_limits

MODULES = [
    registry.find("backends.isplib", name)
    for name in ("attention", "batch", "ceiling", "edge", "layers", "layout", "sample", "spmm")
]
BORDERS = [*(Path(__file__).parents[2] / "cython_kernels").glob("*_fields.pxi")]  # which setup.py writes
SAME_SIZE = {"value", "ordered"}  # of a plan of maxima, as vector and column, so that nothing tells them apart
Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Recorder:
    """A compiled module whose calls are noted."""

    def __init__(self, native: Any, calls: list[Call]) -> None:
        self.native, self.calls = native, calls

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.native, name)
        if not callable(function) or name in ("panel", "again"):
            return function

        def run(*args: Any, **fields: Any) -> Any:
            self.calls.append((function, args, fields))
            return function(*args, **fields)

        return run


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """One call at least of the kernels of every struct, as the backend makes them."""
    noted: list[Call] = []
    for module in MODULES:
        for name, native in [*vars(module).items()]:
            if name.startswith("native"):
                monkeypatch.setattr(module, name, Recorder(native, noted))
    lower_limits(monkeypatch)
    torch.manual_seed(0)
    kernels, generator = isplib.IsplibKernels(threads=1), torch.Generator().manual_seed(0)
    edge_index = torch.randint(40, (2, 300), generator=generator)
    graph = Graph.from_edge_index(edge_index, 40, layout=kernels)
    _ = graph.with_self_loops
    x, value, scores = torch.randn(40, 6), torch.randn(300), torch.randn(300, 2)
    kernels.spmm(graph, x, value, "sum")
    out, arg_out = kernels.spmm_max(graph, x, value, "max")
    kernels.spmm_max_backward(graph, arg_out, out, value)
    kernels.sddmm(graph, x, x + 1)
    kernels.edge_softmax_backward(graph, kernels.edge_softmax(graph, scores), scores)
    kernels.fusedmm(graph, x, x + 1, "sigmoid")
    x_heads, att = torch.randn(40, 3, 2), torch.randn(2, 3, 2)
    kernels.head_scores_backward(kernels.head_scores(x_heads, att), x_heads, att)
    kernels.dropout(x, Dropout(0.5, torch.tensor([7])))
    weight, bias = torch.randn(9, 6), torch.randn(9)
    for level in {kernels.isa, kernels.level}:
        by = isplib.IsplibKernels(isa=level, threads=1)
        by.linear_backward(by.linear(x, weight, bias), x, weight, needs_x=True)
    weights = torch.randn(18, 6), torch.randn(18, 6)
    kernels.gru_backward(*kernels.gru(x, x + 1, weights, (None, None), keep=True), x, x + 1, weights)
    kernels.perceptron_backward(kernels.perceptron(x, weight[:8]), x, weight[:8])
    scale, shift = torch.randn(6), torch.randn(6)
    kernels.batch_norm_backward(
        x, *kernels.batch_norm(x, scale, shift, 1e-5, True)[:1], scale, shift, (scale, shift), 1, True
    )
    kernels.normalise(x, scale, shift, scale, shift, 1, True)
    categories, starts = torch.randint(3, (40, 2)), torch.tensor([0, 3, 6])
    kernels.embedding_sum_backward(kernels.embedding_sum(x[:6].clone(), categories, starts), categories, starts)
    of = Program(1, 6, (Leaf("source", 6),), (Step("exp", 0, 0, 0.0, 6),), (Sink(1, "destination"),))
    kernels.program(graph, of, [x], graph.edge_id)
    kernels.is_of(graph.rowptr, graph.col, graph.edge_id, *edge_index)
    kernels.segment_backward(graph.rowptr, kernels.segment(graph.rowptr, x[graph.row], "sum"), "sum")
    kernels.add_rows(kernels.gather_rows(graph.rowptr, graph.col, x, x + 1), graph.col % 2, x[graph.row])
    blocked: dict[str, int | str] = {"algorithm": "blocked", "shift": 4}
    graph.cache |= {choice_key(op, 6, torch.float32): blocked for op in ("spmm", "spmm_max")}
    kernels.spmm(graph, x, value, "sum")
    kernels.spmm_max(graph, x, value, "max")
    for family, inputs in {"gat": (torch.randn(40, 3), torch.randn(40, 3)), "dot": (x_heads, x_heads + 1)}.items():
        given = [tensor.clone().requires_grad_() for tensor in (*inputs, x_heads)]
        attention(kernels, graph, family, given).sum().backward()
    kernels.is_symmetric(graph.rowptr, graph.col)
    kernels.draw_pairs(graph.rowptr, graph.col, 40, torch.arange(9), 9, 3)
    ids, edge_ptr = torch.tensor([2, 0]), graph.rowptr[[0, 10, 25, 40]]
    ptr = torch.tensor([0, 10, 25, 40])
    starts, edge_starts = kernels.starts(ptr, ids), kernels.starts(edge_ptr, ids)
    kernels.take(ptr, ids, starts, int(starts[-1]), x)
    picked = Picked(ids, starts, edge_starts, int(starts[-1]), int(edge_starts[-1]))
    kernels.edge_index(edge_ptr, picked, edge_index.int() % 10)
    members = Members(ptr, edge_ptr, graph.rowptr, graph.col % 10, graph.edge_id, graph.rowptr, graph.col % 10)
    kernels.rows(members, picked, True)
    ceiling.gather(torch.randn(8, 16), torch.arange(8, dtype=torch.int32).view(1, 8))
    neighbors = Neighbors(graph.rowptr, graph.col, graph.edge_id)
    neighbors.sample(torch.arange(4), [3, 2], 7).edges.graph()
    neighbors.typed.sample({NODE: torch.arange(4)}, {EDGE: [3, 2]}, 7, induced=True)
    Positions(40).of(torch.arange(8, dtype=torch.int32))
    return noted


def strided(tensor: Tensor) -> Tensor:
    """Equal in shape and values, but not contiguous."""
    return torch.stack([tensor, tensor], -1)[..., 0]


def retyped(tensor: Tensor) -> Tensor:
    return tensor.to({torch.float32: torch.float64, torch.int64: torch.int32}.get(tensor.dtype, torch.int64))


WRONG: dict[str, Callable[[Tensor], Any]] = {
    "shortened": lambda tensor: tensor[:-1],
    "strided": strided,
    "retyped": retyped,
    "negated": torch._neg_view,
    "elsewhere": lambda tensor: tensor.to("meta"),
    "no tensor": lambda tensor: tensor.tolist(),
}


def structs(args: tuple[Any, ...], fields: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of every struct that a call fills."""
    listed = [each for arg in args for each in (arg if isinstance(arg, list) else [arg])]
    return [fields, *(each for each in listed if isinstance(each, dict))]


def run(call: Call, of: dict[str, Any], **changed: Any) -> None:
    """Run a call with other fields in one of its structs."""
    function, args, fields = call
    other = {**of, **changed}
    given = [
        [other if each is of else each for each in arg] if isinstance(arg, list) else other if arg is of else arg
        for arg in args
    ]
    function(*given, **(other if of is fields else fields))


def test_a_field_that_does_not_fit_is_named_and_reaches_no_kernel(calls: list[Call]) -> None:
    filled = set()
    for call in calls:
        for of in structs(*call[1:]):
            tensors = {name: each for name, each in of.items() if isinstance(each, Tensor) and each.numel() > 1}
            for name, tensor in tensors.items():
                for wrong in WRONG.values():
                    if tensor.dtype == torch.uint16 and wrong is not strided:
                        continue
                    with pytest.raises((TypeError, ValueError), match=rf"\b{name}\b"):
                        run(call, of, **{name: wrong(tensor)})
            for one, other in combinations(tensors, 2):
                a, b = tensors[one], tensors[other]
                if {one, other} != SAME_SIZE and (a.shape != b.shape or a.dtype != b.dtype):
                    with pytest.raises(ValueError, match=rf"\b({one}|{other})\b"):
                        run(call, of, **{one: b, other: a})
            with pytest.raises(TypeError, match="has no field colour") as caught:
                run(call, of, colour=1)
            filled.add(str(caught.value).split()[0])
    assert filled == {name for path in BORDERS for name in re.findall(r"int fill_(\w+)", path.read_text())}


def test_edges_of_a_ceiling_that_are_no_multiple_of_four_reach_no_kernel() -> None:
    with pytest.raises(ValueError, match="share is 6, but must be a multiple of four"):
        ceiling.gather(torch.randn(8, 16), torch.arange(6, dtype=torch.int32).view(1, 6))
