"""Sums that run again, as the first time on tensors alike, and go the usual way where anything is different."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.errors import GraphError
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels, choice_key
from gnnbench.ops.spmm import spmm, spmm_scaled
from tests.support import graphs
from tests.support.kernels import OURS, WIDTHS, check, normal, over_dtypes, over_graphs

pytestmark = pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
TRUTH = Kernels()


def poison(*shape: int, dtype: torch.dtype) -> None:
    """Leave NaN in the memory that a result of this shape is likely to get."""
    torch.full(shape, torch.nan, dtype=dtype)


@over_graphs
@over_dtypes
def test_a_sum_runs_again_on_other_tensors(graph_name: str, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, OURS)
    for width, reduce, weighted in itertools.product(WIDTHS, ("sum", "mean"), (False, True)):
        value = normal(graph.num_edges, dtype=dtype) if weighted else None
        spmm(OURS, graph, normal(graph.num_cols, width, dtype=dtype), value, reduce)
        x, value = normal(width, graph.num_cols, dtype=dtype).t().contiguous(), None if value is None else -value
        poison(graph.num_rows, width, dtype=dtype)
        out = OURS.spmm_again(graph, reduce, (x, value, None, None, None))
        if graph.num_cols == 0:  # where shapes do not tell how wide rows are
            assert out is None
            continue
        assert out is not None
        check(out, TRUTH.spmm(graph, x.double(), None if value is None else value.double(), reduce))
        assert torch.equal(spmm(OURS, graph, x, value, reduce), out)
    if graph.num_cols == 0:
        return
    x, bias = normal(graph.num_cols, 5, dtype=dtype), normal(5, dtype=dtype)
    of_source, scale = normal(graph.num_cols, 1, dtype=dtype), normal(graph.num_rows, 1, dtype=dtype)
    for each in (None, bias):
        spmm_scaled(OURS, graph, -x, -of_source, -scale, each)
        out = OURS.spmm_again(graph, "sum", (x, None, of_source, scale, each))
        assert out is not None
        given = (None if tensor is None else tensor.double() for tensor in (x, of_source, scale, each))
        check(out, TRUTH.spmm_scaled(graph, *given))


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "strided": lambda x: torch.stack([x, x], -1)[..., 0],
    "negated": torch._neg_view,
    "retyped": Tensor.double,
    "of heads": lambda x: x.view(len(x), 2, 3),
    "learned": lambda x: x.clone().requires_grad_(),
    "narrow": lambda x: x[:, :5],
    "zero without memory": lambda x: torch._efficientzerotensor(x.shape),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_tensors_go_the_usual_way(change: str) -> None:
    graph = graphs.graph("hub", OURS)
    x, value = normal(graph.num_cols, 6, dtype=torch.float32), normal(graph.num_edges, dtype=torch.float32)
    spmm(OURS, graph, x, value)
    other, weights = CHANGES[change](x), value.double() if change == "retyped" else value
    assert OURS.spmm_again(graph, "sum", (other, weights, None, None, None)) is None
    out = spmm(OURS, graph, other, weights)
    check(out.detach(), TRUTH.spmm(graph, other.detach().double(), weights.double(), "sum"))
    assert out.requires_grad == (change == "learned")
    for reduce in ("max", "median"):
        assert OURS.spmm_again(graph, reduce, (x, value, None, None, None)) is None
    none = None, None, None
    for inputs in ((x, None, *none), (x, value[1:], *none), (x[1:], value, *none)):
        assert OURS.spmm_again(graph, "sum", inputs) is None


def test_what_watches_is_told_and_inference_is_not_slower() -> None:
    graph = graphs.graph("hub", OURS)
    x = normal(graph.num_cols, 6, dtype=torch.float32)
    truth = spmm(OURS, graph, x)
    assert torch.equal(torch.vmap(lambda x: spmm(OURS, graph, x))(torch.stack([x, x]))[1], truth)
    with torch.profiler.profile() as profile:
        spmm(OURS, graph, x)
    assert "gnnbench::spmm" in {event.key for event in profile.key_averages()}
    with torch.inference_mode():
        out = OURS.spmm_again(graph, "sum", (x, None, None, None, None))
        assert out is not None
        assert out.is_inference()
        assert torch.equal(out, truth)


def test_what_is_tuned_or_edited_meanwhile_counts() -> None:
    graph = Graph.from_edge_index(torch.randint(9, (2, 40)), 9, layout=OURS)
    x = normal(9, 6, dtype=torch.float32)
    inputs = x, None, None, None, None
    truth = spmm(OURS, graph, x)
    assert isplib.IsplibKernels(threads=7).spmm_again(graph, "sum", inputs) is None
    assert isplib.IsplibKernels(isa=0).spmm_again(graph, "sum", inputs) is None
    assert isplib.IsplibKernels(gather="bf16").spmm_again(graph, "sum", inputs) is None
    graph.cache[choice_key("spmm", 6, torch.float32)] = {"algorithm": "row", "prefetch": 4, "threads": 1}
    assert OURS.spmm_again(graph, "sum", inputs) is None
    check(spmm(OURS, graph, x), truth)
    assert OURS.spmm_again(graph, "sum", inputs) is not None
    graph.col[0] = 0
    with pytest.raises(GraphError, match="edited in place"):
        spmm(OURS, graph, x)
