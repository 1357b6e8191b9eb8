"""Our ops as torch custom ops: registration, handles that die with their objects, profiler, compilation."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import opcheck
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from gnnbench.backends import isplib
from gnnbench.errors import GnnbenchError, UnsupportedOp
from gnnbench.graph import Graph, handles
from gnnbench.ops import dense, features  # noqa: F401 - which register theirs
from gnnbench.ops.attention import attention
from gnnbench.ops.edge import edge_softmax, fusedmm, sddmm
from gnnbench.ops.families import FAMILIES
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm, spmm_linear
from tests.support import graphs
from tests.support.attention import inputs as attended
from tests.support.kernels import KERNELS, OURS, leaf, over_kernels

ATTENTION = {family.op: name for name, family in FAMILIES.items()}
OPS = ("spmm", "spmm_max", "sddmm", "edge_softmax", "fusedmm", *ATTENTION)
WITHOUT_GRAPH = ("dropout", "dropout_backward")


def samples(graph: Graph) -> dict[str, list[tuple[Any, ...]]]:
    """Op -> arguments before the handles, then what follows those."""
    x, heads, out = leaf(graph.num_cols, 5), leaf(graph.num_cols, 2, 3), leaf(graph.num_rows, 5)
    value, score = leaf(graph.num_edges), leaf(graph.num_edges, 2)
    grad, grad_heads = out.detach(), leaf(graph.num_rows, 2, 3).detach()
    constant = x.detach(), value.detach()
    ends = leaf(graph.num_cols, 1).detach(), leaf(graph.num_rows, 1).detach()
    seed = torch.tensor([5])
    attention = {op: attended(family, graph, 2, 3) for op, family in ATTENTION.items()}
    return {
        **{
            op: [(*inputs, seed, 0.5, 0.2, True), (*(t.detach() for t in inputs), None, 0.0, 0.2, False)]
            for op, inputs in attention.items()
        },
        "spmm": [(x, None, "sum"), (x, value, "mean"), (heads, score, "sum"), (constant[0], value, "sum")],
        "spmm_grad_x": [(grad, None, "mean"), (grad, constant[1], "sum"), (grad_heads, score.detach(), "sum")],
        "spmm_grad_value": [(grad, *constant, "mean"), (grad_heads, heads.detach(), score.detach(), "sum")],
        "spmm_scaled": [(x, *ends, None), (x, *ends, x.detach()[0]), (constant[0], *ends, None)],
        "spmm_scaled_grad_x": [(grad, *ends)],
        "spmm_max": [(x, None, "max"), (x, value, "min")],
        "fusedmm": [(out, x, "sigmoid"), (leaf(graph.num_rows, 2, 3), heads, "tanh")],
        "fusedmm_grad_x": [(grad, constant[0], grad, "exp")],
        "fusedmm_grad_y": [(grad, constant[0], grad, "exp")],
        "sddmm": [(out, x), (leaf(graph.num_rows, 2, 3), heads)],
        "edge_softmax": [(score,)],
        "edge_softmax_backward": [(score.detach().softmax(0), score.detach())],
    }


def called(graph: Graph, kernels: Kernels, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with the handles before what is not a tensor."""
    split = len(arguments) - isinstance(arguments[-1], str)
    return *arguments[:split], graph.handle, kernels.handle, *arguments[split:]


RESULTS = ("test_schema", "test_faketensor")


@pytest.mark.parametrize(
    ("kernels", "graph_name", "tests"),
    [
        (OURS, "wide", (*RESULTS, "test_autograd_registration", "test_aot_dispatch_dynamic")),
        (OURS, "no edges", RESULTS),
        (KERNELS["torch"], "wide", RESULTS),
    ],
)
def test_every_op_is_registered_as_torch_wants_it(
    kernels: Kernels, graph_name: str, tests: tuple[str, ...]
) -> None:
    """Schema and fake function; once also autograd and AOT dispatch, in which kernels and graphs have no part."""
    check = partial(opcheck, test_utils=tests)
    graph = graphs.graph(graph_name, kernels)
    for name, cases in samples(graph).items():
        for arguments in cases:
            check(getattr(torch.ops.gnnbench, name).default, called(graph, kernels, arguments))
    x, value = leaf(graph.num_cols, 5).detach(), leaf(graph.num_edges).detach()
    out, arg_out = torch.ops.gnnbench.spmm_max(x, value, graph.handle, kernels.handle, "max")
    extremum = torch.ops.gnnbench.spmm_max_grad_x.default
    for weights in (None, value):
        check(extremum, (out, arg_out, weights, graph.handle, kernels.handle))
    check(torch.ops.gnnbench.spmm_max_grad_value.default, (out, arg_out, x, value, graph.handle))
    for name, tensor in zip(WITHOUT_GRAPH, (leaf(7, 3), x), strict=True):
        check(getattr(torch.ops.gnnbench, name).default, (tensor, torch.tensor([5]), 0.4, 3, kernels.handle))
    looked_up = torch.tensor([[1, 0], [0, 3]]), torch.tensor([0, 2, 6])
    check(torch.ops.gnnbench.embedding_sum.default, (leaf(6, 3), *looked_up, kernels.handle))
    check(torch.ops.gnnbench.embedding_sum_backward.default, (leaf(2, 3).detach(), *looked_up, 6, kernels.handle))
    for op in ATTENTION:
        for arguments in samples(graph)[op]:
            tensors, keep = [tensor.detach() for tensor in arguments[:3]], op == "gat_attention"
            how = *arguments[4:-1], keep, graph.handle, kernels.handle
            out, _, *kept = getattr(torch.ops.gnnbench, op).default(*tensors, arguments[3], *how)
            backward = getattr(torch.ops.gnnbench, f"{op}_backward").default
            check(backward, (torch.ones_like(out), *tensors, arguments[3], out, *kept, *how))


@pytest.mark.parametrize("op", ATTENTION)
def test_attention_in_bfloat16_keeps_what_its_fake_says(op: str) -> None:
    """An output more than in wider types: what `out` was before it was rounded."""
    kernels = KERNELS["torch"]
    graph = graphs.graph("wide", kernels)
    forward = getattr(torch.ops.gnnbench, op).default
    for arguments in samples(graph)[op]:
        narrow = [tensor.detach().bfloat16().requires_grad_() for tensor in arguments[:3]]
        given = called(graph, kernels, (*narrow, *arguments[3:]))
        out, exact, *_ = forward(*given)
        assert (out.dtype, exact.dtype, exact.shape) == (torch.bfloat16, torch.float32, out.shape)
        opcheck(forward, given)


def test_every_op_is_covered_above() -> None:
    registered = {
        schema.name.partition("::")[2]
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("gnnbench::")
    }
    checked = {*samples(graphs.graph("hub")), "spmm_max_grad_x", "spmm_max_grad_value", *WITHOUT_GRAPH}
    checked |= {f"{op}_backward" for op in (*ATTENTION, "embedding_sum")} | {"embedding_sum"}
    assert registered == checked


def uses(kernels: Kernels, graph: Graph) -> dict[str, tuple[Callable[..., Tensor], Sequence[Tensor]]]:
    x, value, score = leaf(graph.num_cols, 5), leaf(graph.num_edges), leaf(graph.num_edges, 2)
    return {
        "spmm": (lambda x, value: spmm(kernels, graph, x, value, "mean"), [x, value]),
        "spmm_max": (lambda x, value: spmm(kernels, graph, x, value, "max"), [x, value]),
        "fusedmm": (partial(fusedmm, kernels, graph, edge_fn="tanh"), [leaf(graph.num_rows, 5), x]),
        "sddmm": (lambda a, b: sddmm(kernels, graph, a, b), [leaf(graph.num_rows, 5), x]),
        "edge_softmax": (lambda score: edge_softmax(kernels, graph, score), [score]),
        **{
            op: (
                lambda *inputs, family=family: attention(kernels, graph, family, inputs),
                attended(family, graph, 2, 3),
            )
            for op, family in ATTENTION.items()
        },
    }


@over_kernels
@pytest.mark.parametrize("op", OPS)
def test_the_profiler_shows_our_names(kernels: Kernels, op: str) -> None:
    function, inputs = uses(kernels, graphs.graph("hub", kernels))[op]
    with torch.profiler.profile() as profile:
        function(*inputs).sum().backward()
    assert f"gnnbench::{op}" in {event.key for event in profile.key_averages()}


def test_the_dispatcher_is_left_out_where_nothing_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    def dispatched(*_: Any) -> None:
        raise RuntimeError("dispatched")

    def gradient(x: Tensor) -> Tensor:
        return torch.autograd.grad(spmm(OURS, graph, x).square().sum(), x)[0]

    graph = graphs.graph("hub", OURS)
    x = leaf(graph.num_cols, 5)
    with torch.profiler.profile():
        expected = gradient(x)
    out = spmm(OURS, graph, x)
    grad_out = torch.rand(2, *out.shape)
    (batched,) = torch.autograd.grad(out, x, grad_out, is_grads_batched=True, retain_graph=True)
    apart = [torch.autograd.grad(out, x, each, retain_graph=True)[0] for each in grad_out]
    assert torch.equal(batched, torch.stack(apart))
    monkeypatch.setattr(spmm_linear, "overload", dispatched)
    assert torch.equal(gradient(x), expected)
    for watching in (
        torch.profiler.profile(),
        FlopCounterMode(display=False),
        TorchFunctionMode(),
        torch.autocast("cpu"),
        forward_ad.dual_level(),
    ):
        with watching, pytest.raises(RuntimeError, match="dispatched"):
            spmm(OURS, graph, x)
    with torch.inference_mode(), pytest.raises(RuntimeError, match="dispatched"):
        spmm(OURS, graph, x[:, :4])  # of a shape that did not run before
    with pytest.raises(RuntimeError, match="dispatched"):
        torch.func.grad(lambda x: spmm(OURS, graph, x).sum())(x)
    with pytest.raises(RuntimeError, match="dispatched"):
        spmm(OURS, graph, x.detach()._neg_view())


@over_kernels
def test_inference_mode_and_results_that_are_no_views(kernels: Kernels) -> None:
    graph = graphs.graph("hub", kernels)
    for function, inputs in uses(kernels, graph).values():
        with torch.inference_mode():
            found = function(*inputs)
        expected = function(*inputs)
        assert torch.equal(found, expected)
        storages = {tensor.untyped_storage().data_ptr() for tensor in (*inputs, graph.rowptr, graph.col)}
        assert expected.untyped_storage().data_ptr() not in storages


def test_handles_are_never_given_twice_and_keep_nothing_alive() -> None:
    graph = graphs.graph("hub")
    handle = graph.handle
    assert handles.find(handle) is graph
    for twin in (copy.copy(graph), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert twin.handle != handle
        assert handles.find(twin.handle) is twin
    del graph, twin
    gc.collect()
    assert int(graphs.graph("hub").handle) > int(handle)
    with pytest.raises(GnnbenchError, match=f"the Graph or Kernels with handle {handle} no longer exists"):
        handles.find(handle)


def test_handles_from_many_threads_are_distinct() -> None:
    made: list[Kernels] = []
    threads = [threading.Thread(target=lambda: made.extend(Kernels() for _ in range(500))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({kernels.handle for kernels in made}) == 4000
    assert all(handles.find(kernels.handle) is kernels for kernels in made)


def test_backward_keeps_its_graph_and_kernels() -> None:
    x, kernels = leaf(30, 5), Kernels()
    out = spmm(kernels, graphs.graph("hub", kernels), x)
    del kernels
    gc.collect()
    out.sum().backward()
    assert x.grad is not None


@pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
def test_lower_precision_is_declined_in_a_sentence_but_not_in_autocast() -> None:
    kernels = isplib.IsplibKernels()
    graph = graphs.graph("hub", kernels)
    with torch.autocast("cpu", torch.bfloat16):
        x = leaf(30, 5, dtype=torch.float32) @ torch.eye(5)
        assert spmm(kernels, graph, x).dtype == torch.float32
    with pytest.raises(UnsupportedOp, match=r"type torch\.bfloat16; isplib computes in float32, float64"):
        spmm(kernels, graph, x)
