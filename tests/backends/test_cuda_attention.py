"""Fused attention in Triton: outputs and gradients are those of the float64 specification, however it runs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gnnbench.backends.cuda import CudaKernels, choices
from gnnbench.backends.cuda.families import ON_DEVICE
from gnnbench.benchmarks.ops import Case, Reference
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.families import FAMILIES, Attention
from gnnbench.ops.kernels import Choice, Kernels, choice_key
from tests.support import distance, graphs
from tests.support.attention import Largest, assert_as_precise, inputs, over_families, scaled
from tests.support.gpu import DEVICE, KERNELS, TOLERANCE, graph, needs_triton
from tests.support.kernels import normal

BIG: Choice = {"strategy": "sliced", "lane": 32, "warps": 4}  # few programs, for the interpreter's sake
TRUTH = Kernels()
SEED = 0x1234567890ABCDEF

pytestmark = needs_triton


def results(
    kernels: Kernels, family: str, on: Graph, tensors: tuple[Tensor, ...], p: float, slope: float = 0.2
) -> list[Tensor]:
    """out, what is kept for backward, and the gradients."""
    inputs = tuple(tensor.detach() for tensor in tensors)
    dropout = Dropout(p, torch.tensor([SEED], device=DEVICE)) if p else None
    given = Attention(FAMILIES[family], inputs, slope, dropout)
    kept = kernels.attention(on, given, given.family.keeps_positive)
    grad_out = normal(*kept[0].shape, dtype=tensors[0].dtype, device=DEVICE)
    return [*kept, *kernels.attention_backward(on, given, kept, grad_out)]


def check(family: str, on: Graph, tensors: tuple[Tensor, ...], p: float = 0.0, slope: float = 0.2) -> None:
    """A softmax's gradients cancel, so an error is measured against at least one per entry."""
    dtype = tensors[0].dtype
    truths = results(TRUTH, family, on, tuple(tensor.double() for tensor in tensors), p, slope)
    for found, truth in zip(results(KERNELS, family, on, tensors, p, slope), truths, strict=True):
        assert found.shape == truth.shape
        assert found.dtype in (dtype, torch.promote_types(dtype, torch.float32))
        finite = truth.isfinite()
        assert torch.equal(found.double()[~finite], truth[~finite])
        difference = (found.double() - truth)[finite].norm()
        assert difference <= 2 * TOLERANCE[dtype] * (truth[finite].norm() + truth.numel() ** 0.5)


def run_by(on: Graph, family: str, tensors: tuple[Tensor, ...], choice: Choice) -> None:
    heads, channels = FAMILIES[family].roles(tensors)[2].shape[1:]
    for op in (f"{family}_attention", f"{family}_attention_backward"):
        for adjacency in (on, on.transpose):
            adjacency.cache[choice_key(op, heads * channels, tensors[0].dtype, heads)] = choice


@over_families
@pytest.mark.parametrize(
    ("name", "heads", "channels", "p"),
    [
        ("no edges", 2, 3, 0.0),
        ("no nodes", 2, 3, 0.5),
        ("one node", 1, 1, 0.0),
        ("no sources", 1, 4, 0.5),
        ("isolated nodes", 8, 8, 0.5),
        ("self loops", 3, 7, 0.5),
        ("duplicates", 4, 8, 0.75),
        ("symmetric", 1, 41, 0.0),
        ("hub", 2, 5, 0.5),
        ("wide", 1, 130, 0.0),
        ("tall", 5, 2, 0.5),
        ("power law", 1, 3, 0.5),
    ],
)
def test_outputs_and_gradients(family: str, name: str, heads: int, channels: int, p: float) -> None:
    on = graph(name)
    tensors = inputs(family, on, heads, channels)
    for strategy in ("sliced", "edge"):
        run_by(on, family, tensors, {**BIG, "strategy": strategy})
        check(family, on, tensors, p)


@over_families
def test_every_way_to_run(family: str) -> None:
    on = graph("duplicates")
    tensors = inputs(family, on, 2, 6)
    ops = f"{family}_attention", f"{family}_attention_backward"
    choices = [choice for op in ops for choice in KERNELS.choices(op, on, 12, torch.float64, 2)]
    assert {choice["strategy"] for choice in choices} == {"sliced", "fused", "edge"}
    for choice in [choice for place, choice in enumerate(choices) if choice not in choices[:place]]:
        run_by(on, family, tensors, choice)
        check(family, on, tensors, 0.4)  # 1 / 0.6 is no float32


@pytest.mark.parametrize("strategy", ["fused", "sliced", "edge"])
def test_a_family_needs_its_score_and_gradient_only(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that differs in kind: of numbers, with a pass over the edges for the gradient of query."""
    monkeypatch.setitem(FAMILIES, "distance", distance.FAMILY)
    monkeypatch.setitem(ON_DEVICE, "distance", distance.ON_DEVICE)
    ops = "distance_attention", "distance_attention_backward"
    monkeypatch.setattr(choices, "ATTENTION", {*choices.ATTENTION, *ops})
    on = graph("hub")
    tensors = inputs("distance", on, 2, 3)
    run_by(on, "distance", tensors, {**BIG, "strategy": strategy})
    check("distance", on, tensors, 0.5)


@pytest.mark.parametrize(
    ("family", "dtype"), [("gat", torch.float32), ("gatv2", torch.bfloat16), ("dot", torch.float16)]
)
def test_every_type(family: str, dtype: torch.dtype) -> None:
    """Run as untuned on a graph with a hub: "edge" (or "sliced") over its rows, "fused" over the transpose's."""
    on = graph("hub")
    check(family, on, inputs(family, on, 2, 4, dtype), 0.5)


@over_families
def test_gradients_in_bfloat16_are_rounded_once(family: str) -> None:
    """Check that what is left of large terms is not less precise than they are."""
    case = Case(f"{family}_attention", graph("duplicates"), width=8, heads=2, dtype=torch.bfloat16)
    truth = Reference(case)
    inputs = [case.inputs[name] for name in case.op.grads]
    gradients = torch.autograd.grad(
        case.op.call(KERNELS, **{"graph": case.graph, **case.inputs}), inputs, case.grad_out
    )
    assert truth.error("backward", list(gradients)) < 2**-6


@pytest.mark.parametrize("family", ["gat", "gatv2"])
@pytest.mark.parametrize("slope", [-0.1, 0.0, 1.5])
def test_any_slope(family: str, slope: float) -> None:
    on = graph("self loops")
    check(family, on, inputs(family, on, 2, 5), 0.0, slope)


@over_families
@pytest.mark.parametrize("strategy", ["fused", "sliced", "edge"])
def test_gradients_are_as_precise_as_plain_torchs_at_any_score(family: str, strategy: str) -> None:
    """Plain torch is the specification in float32. Every edge is there twice, as `each_twice` explains."""
    src, dst = torch.arange(40).repeat(12), torch.arange(12).repeat_interleave(40)
    kept = (dst == 3) | (src % 12 == dst)  # a row of slices; the others have a few edges
    on = Graph.from_edge_index(torch.stack([src, dst])[:, kept].repeat(1, 2).to(DEVICE), 12, 40, KERNELS)
    for size in (1.0, 1e2, 1e4, 1e6):
        tensors = scaled(family, inputs(family, on, 2, 4, torch.float32), size)
        run_by(on, family, tensors, {**BIG, "strategy": strategy})
        ours, theirs = (results(kernels, family, on, tensors, 0.0) for kernels in (KERNELS, TRUTH))
        exact = results(TRUTH, family, on, tuple(tensor.double() for tensor in tensors), 0.0)
        for place in (0, -3, -2, -1):
            assert_as_precise(ours[place], theirs[place], exact[place])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of NumPy, in the interpreter
def test_nan_stays_in_its_rows() -> None:
    """Give NaN for nothing but -inf too; among others -inf is no weight, even if it fills a slice."""
    on = graph("hub")
    tensors = query, key, _ = tuple(tensor.detach() for tensor in inputs("gat", on, 2, 5))
    hub, other = on.degree.argsort(descending=True)[:2].tolist()
    query[hub, 1], query[other, 0], key[:5] = torch.nan, -torch.inf, -torch.inf
    found, truth = (attention(kernels, on, "gat", tensors) for kernels in (KERNELS, TRUTH))
    assert truth[hub, 1].isnan().all()
    assert truth[other, 0].isnan().all()
    assert not truth[hub, 0].isnan().any()
    torch.testing.assert_close(found, truth, equal_nan=True)


@over_families
def test_gradients_through_autograd_of_strided_tensors(family: str) -> None:
    on = graph("self loops")
    tensors = inputs(family, on, 2, 3)
    strided = tuple(tensor.detach().mT.contiguous().mT.requires_grad_() for tensor in tensors)
    found, truth = (
        torch.autograd.grad(attention(kernels, on, family, strided).square().sum(), strided)
        for kernels in (KERNELS, TRUTH)
    )
    torch.testing.assert_close(found, truth)


@over_families
def test_nothing_is_kept_per_edge(family: str) -> None:
    given = graphs.power_law(50, 700)
    on = Graph.from_csr(given.rowptr.to(DEVICE), given.col.to(DEVICE))
    tensors = inputs(family, on, 4, 8)
    run_by(on, family, tensors, BIG)
    _ = on.transpose, on.perm  # preparation
    with Largest() as largest:
        results(CudaKernels(), family, on, tensors, 0.5)
    assert 50 * 4 * 8 <= largest.elements <= 50 * 4 * 10


def test_choices_from_elsewhere_are_ignored_where_they_cannot_run() -> None:
    on, op = graph("hub"), "gat_attention"
    first = KERNELS.choices(op, on, 16, torch.float32, 2)[0]
    for choice in ({"strategy": "edge", "lane": 16, "warps": 1}, {"algorithm": "row"}, {**first, "warps": 64}):
        on.cache[choice_key(op, 16, torch.float32, 2)] = choice
        assert KERNELS.chosen(op, on, 16, torch.float32, 2) == first


def ring(nodes: int, into_hub: int) -> Graph:
    """Four edges into every node, and more into the first, which are of all nodes in turn."""
    node = torch.arange(nodes)
    src = torch.cat([*((node + step) % nodes for step in range(4)), torch.arange(into_hub) % nodes])
    dst = torch.cat([node.repeat(4), torch.zeros(into_hub, dtype=torch.int64)])
    return Graph.from_edge_index(torch.stack([src, dst]), nodes, layout=CudaKernels())


@pytest.mark.parametrize(
    ("nodes", "into_hub", "there", "back"),
    [(3000, 100, "fused", "fused"), (3000, 2000, "edge", "fused"), (60_000, 2000, "sliced", "fused")],
)
def test_untuned_the_degrees_of_each_direction_decide(nodes: int, into_hub: int, there: str, back: str) -> None:
    on, kernels = ring(nodes, into_hub), CudaKernels()
    for op in ("gatv2_attention", "gatv2_attention_backward", "dot_attention", "gat_attention_backward"):
        hows = [kernels.chosen(op, side, 64, torch.float32, 8)["strategy"] for side in (on, on.transpose)]
        assert hows == [there, back]
    expected = "sliced" if there == "edge" else there
    assert kernels.chosen("gat_attention", on, 64, torch.float32, 8)["strategy"] == expected
    on.cache[choice_key("dot_attention", 64, torch.float32, 8)] = {"strategy": "fused", "lane": 8, "warps": 1}
    assert kernels.tiling("dot_attention", on, 8, 8, 8, torch.float32).longest == on.num_edges
