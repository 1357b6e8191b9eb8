"""Attention, composed and fused: outputs and gradients against autograd in float64, dropout, threads, memory."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gnnbench.backends import isplib
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops import attention
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.kernels import Kernels
from tests.support import graphs

LEVELS = [] if isplib.MISSING else range(isplib.isa_level() + 1)
KERNELS: dict[str, Kernels] = {"torch": Kernels()}
KERNELS |= {f"isplib {isplib.ISA[level]}": isplib.IsplibKernels(isa=level) for level in LEVELS}
SIZES = [(1, 1), (1, 3), (8, 8), (4, 8), (1, 41), (3, 7), (5, 2), (20, 5), (9, 33), (1, 70), (2, 150), (1, 300)]

over_graphs = pytest.mark.parametrize("graph_name", graphs.NAMES)
over_kernels = pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS.keys())
over_families = pytest.mark.parametrize("family", ["gat", "gatv2", "dot"])
over_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def normal(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def inputs(
    family: str, graph: Graph, heads: int, channels: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Tensors of an op of `family`, whose scores are of the order of one."""
    n, m = graph.num_rows, graph.num_cols
    shapes: dict[str, list[tuple[int, ...]]] = {
        "gat": [(m, heads, channels), (m, heads), (n, heads)],
        "gatv2": [(m, heads, channels), (n, heads, channels), (heads, channels)],
        "dot": [(n, heads, channels), (m, heads, channels), (m, heads, channels + 2)],
    }
    tensors = [normal(*shape, dtype=dtype) for shape in shapes[family]]
    if family != "gat":
        tensors[2 if family == "gatv2" else 0] *= channels**-0.5
    return [tensor.requires_grad_() for tensor in tensors]


def op(family: str, kernels: Kernels, graph: Graph, tensors: list[Tensor], p: float, slope: float = 0.2) -> Tensor:
    """The public op; its dropout is drawn from seed 1."""
    torch.default_generator.manual_seed(1)  # torch.manual_seed queues a call for CUDA each time
    slopes = [] if family == "dot" else [slope]
    out: Tensor = getattr(attention, f"{family}_attention")(kernels, graph, *tensors, *slopes, p)
    return out


def plain(family: str, graph: Graph, tensors: list[Tensor], p: float, slope: float = 0.2) -> Tensor:
    """The same by torch alone, row by row, with the multipliers that the specification of dropout gives."""
    torch.default_generator.manual_seed(1)  # torch.manual_seed queues a call for CUDA each time
    row, col = graph.row, graph.col.long()
    a, b, c = tensors
    if family == "gat":
        score, value = F.leaky_relu(c[row] + b[col], slope), a
    elif family == "gatv2":
        score, value = (c * F.leaky_relu(b[row] + a[col], slope)).sum(-1), a
    else:
        score, value = (a[row] * b[col]).sum(-1), c
    rows = [score[start:end].softmax(0) for start, end in itertools.pairwise(graph.rowptr.tolist())]
    alpha = torch.cat(rows) if rows else score
    if p:
        alpha = alpha * Dropout(p, torch.randint(2**63 - 1, (1,))).multiplier(*alpha.shape)
    out = value.new_zeros(graph.num_rows, *value.shape[1:])
    return out.index_add(0, row, alpha.unsqueeze(-1) * value[col])


def gradients(out: Tensor, tensors: list[Tensor]) -> tuple[Tensor, ...]:
    weight = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    return torch.autograd.grad(out, tensors, weight.to(out.dtype))


def check(found: Tensor, truth: Tensor, tolerance: float) -> None:
    """A softmax's gradients cancel, so an error is measured against at least one per entry."""
    assert found.shape == truth.shape
    assert (found - truth).norm() <= tolerance * (truth.norm() + truth.numel() ** 0.5)


@over_dtypes
@over_graphs
@over_kernels
@over_families
def test_outputs_and_gradients(family: str, kernels: Kernels, graph_name: str, dtype: torch.dtype) -> None:
    graph = graphs.graph(graph_name, kernels)
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-13}[dtype]
    for (heads, channels), p in itertools.product(SIZES if graph.num_edges else SIZES[:5], (0.0, 0.4)):
        tensors = inputs(family, graph, heads, channels, dtype)
        true = [tensor.detach().double().requires_grad_() for tensor in tensors]
        found, truth = op(family, kernels, graph, tensors, p), plain(family, graph, true, p)
        assert found.dtype == dtype
        check(found, truth, tolerance)
        for gradient, expected in zip(gradients(found, tensors), gradients(truth, true), strict=True):
            check(gradient, expected, tolerance)


@over_kernels
@over_families
@pytest.mark.parametrize("channels", range(1, 71))
def test_every_width(family: str, kernels: Kernels, channels: int) -> None:
    graph = graphs.graph("wide", kernels)
    tensors = inputs(family, graph, 2, channels)
    found, truth = op(family, kernels, graph, tensors, 0.0), plain(family, graph, tensors, 0.0)
    check(found, truth, 1e-13)
    for gradient, expected in zip(gradients(found, tensors), gradients(truth, tensors), strict=True):
        check(gradient, expected, 1e-13)


@over_kernels
@pytest.mark.parametrize("family", ["gat", "gatv2"])
@pytest.mark.parametrize("slope", [-0.1, 0.0, 1.0, 1.5])
def test_any_slope(family: str, kernels: Kernels, slope: float) -> None:
    graph = graphs.graph("power law", kernels)
    tensors = inputs(family, graph, 2, 5)
    found, truth = op(family, kernels, graph, tensors, 0.3, slope), plain(family, graph, tensors, 0.3, slope)
    check(found, truth, 1e-13)
    for gradient, expected in zip(gradients(found, tensors), gradients(truth, tensors), strict=True):
        check(gradient, expected, 1e-13)


def scaled(family: str, tensors: list[Tensor], size: float) -> list[Tensor]:
    """The same with scores of the order of `size`."""
    place = {"gat": (1, 2), "gatv2": (2,), "dot": (0,)}[family]
    return [tensor.detach() * (size if at in place else 1) for at, tensor in enumerate(tensors)]


def assert_as_precise(found: Tensor, torchs: Tensor, exact: Tensor) -> None:
    """As plain torch in float32, which may be exact by luck where terms of order one cancel."""
    assert (found - exact).norm() <= 4 * (torchs - exact).norm() + 4e-7 * exact.norm() + 2e-7


def each_twice(kernels: Kernels) -> Graph:
    """Rows of few edges and of several chunks, with every edge twice.

    Two weights of a half are exact, and their logarithm is what rounding takes from large scores; the sum of three
    equal ones is not one, which leaves gradients that should cancel to luck.
    """
    src, dst = torch.arange(200).repeat(40), torch.arange(40).repeat_interleave(200)
    kept = (dst < 3) | (src % 40 == dst) | ((src * 7 + dst * 5) % 19 == 0) & (dst < 20)
    return Graph.from_edge_index(torch.stack([src, dst])[:, kept].repeat(1, 2), 40, 200, kernels)


@over_kernels
@over_families
def test_gradients_are_as_precise_as_plain_torchs_at_any_score(family: str, kernels: Kernels) -> None:
    graph = each_twice(kernels)
    for size in (1.0, 1e2, 1e4, 1e6):
        tensors = [t.requires_grad_() for t in scaled(family, inputs(family, graph, 3, 8, torch.float32), size)]
        true = [tensor.detach().double().requires_grad_() for tensor in tensors]
        runs = op(family, kernels, graph, tensors, 0.0), plain(family, graph, tensors, 0.0)
        truth = plain(family, graph, true, 0.0)
        ours, theirs = ((out, *gradients(out, tensors)) for out in runs)
        for found, torchs, exact in zip(ours, theirs, (truth, *gradients(truth, true)), strict=True):
            assert_as_precise(found, torchs, exact)


@over_kernels
@over_families
def test_stats_and_rows_without_edges(family: str, kernels: Kernels) -> None:
    graph = graphs.graph("isolated nodes", kernels)
    tensors = [tensor.detach() for tensor in inputs(family, graph, 2, 5)]
    how = {"gat": (0.2, None, True), "gatv2": (0.2, None), "dot": (None,)}[family]
    found = getattr(kernels, f"{family}_attention")(graph, *tensors, *how)
    truth = getattr(Kernels(), f"{family}_attention")(graph, *tensors, *how)
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one, other)
    assert (found[0][graph.degree == 0] == 0).all()
    assert (found[1][graph.degree == 0] == torch.tensor([-torch.inf, 0.0])).all()


@over_kernels
@over_families
def test_gradcheck(family: str, kernels: Kernels) -> None:
    for name, p in itertools.product(["isolated nodes", "duplicates", "wide", "tall"], (0.0, 0.5)):
        graph = graphs.graph(name, kernels)
        function = partial(op, family, kernels, graph, p=p)
        tensors = inputs(family, graph, 2, 3)
        assert torch.autograd.gradcheck(lambda *args, function=function: function([*args]), tensors)


@pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
@over_dtypes
@over_families
def test_bit_for_bit_the_same_on_any_number_of_threads(family: str, dtype: torch.dtype) -> None:
    graph = graphs.power_law(500, 20_000)
    tensors = inputs(family, graph, 3, 9, dtype)

    def everything(threads: int) -> list[Tensor]:
        out = op(family, isplib.IsplibKernels(threads=threads), graph, tensors, 0.3)
        return [out, *gradients(out, tensors)]

    alone = everything(1)
    for threads in (2, 3, 5):
        assert all(itertools.starmap(torch.equal, zip(alone, everything(threads), strict=True)))


@over_kernels
@over_families
def test_strided_tensors_are_understood(family: str, kernels: Kernels) -> None:
    graph = graphs.graph("power law", kernels)
    tensors = inputs(family, graph, 3, 5)
    strided = [tensor.detach().mT.contiguous().mT.requires_grad_() for tensor in tensors]
    assert not any(tensor.is_contiguous() for tensor in strided)
    found, expected = op(family, kernels, graph, strided, 0.0), op(family, kernels, graph, tensors, 0.0)
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients(found, strided), gradients(expected, tensors), strict=True):
        torch.testing.assert_close(one, other)


class Largest(TorchDispatchMode):
    """Notes the most elements of any floating-point tensor that torch makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                self.elements = max(self.elements, tensor.numel())
        return made


@pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
@over_families
def test_nothing_is_kept_per_edge(family: str) -> None:
    kernels = isplib.IsplibKernels()
    graph = graphs.power_law(50, 20_000, kernels)
    tensors = inputs(family, graph, 4, 8)
    _ = graph.transpose, graph.perm  # preparation
    with Largest() as largest:
        gradients(op(family, kernels, graph, tensors, 0.5), tensors)
    assert 50 * 4 * 8 <= largest.elements < 50 * 4 * 20


def correlation(one: Tensor, other: Tensor, p: float) -> float:
    """Of two masks that keep 1 - p."""
    return float(((one.double() - 1 + p) * (other.double() - 1 + p)).mean() / (p * (1 - p)))


def test_dropout_drops_the_share_asked_for_and_independently() -> None:
    edges, heads = 40_000, 4
    kept = {
        (p, seed): Dropout(p, torch.tensor([seed])).multiplier(edges, heads) > 0
        for p, seed in itertools.product((0.1, 0.6), (0, 1, 2**32, -7))
    }
    for (p, _), mask in kept.items():
        noise = 5 * (p * (1 - p) / mask.numel()) ** 0.5
        assert abs(mask.double().mean() - (1 - p)) < noise
        for one, other in [(mask[1:], mask[:-1]), (mask[2:], mask[:-2]), (mask[:, 1:], mask[:, :-1])]:
            assert abs(correlation(one, other, p)) < 5 / one.numel() ** 0.5
    for p, (one, other) in itertools.product((0.1, 0.6), itertools.combinations((0, 1, 2**32, -7), 2)):
        assert abs(correlation(kept[p, one], kept[p, other], p)) < 5 / (edges * heads) ** 0.5
    assert Dropout(1.0, torch.tensor([3])).multiplier(edges, heads).max() == 0


@over_kernels
@over_families
def test_dropout_follows_torchs_generator_and_may_drop_all(family: str, kernels: Kernels) -> None:
    graph = graphs.graph("power law", kernels)
    tensors = inputs(family, graph, 2, 5)
    assert torch.equal(op(family, kernels, graph, tensors, 0.5), op(family, kernels, graph, tensors, 0.5))
    function = partial(getattr(attention, f"{family}_attention"), kernels, graph, *tensors)
    assert not torch.equal(function(dropout=0.5), function(dropout=0.5))
    assert op(family, kernels, graph, tensors, 1.0).abs().max() == 0
    state = torch.get_rng_state()
    function()
    assert torch.equal(state, torch.get_rng_state())


@over_kernels
def test_nan_stays_in_its_rows(kernels: Kernels) -> None:
    """As does the softmax of nothing but -inf, where -inf among others is no weight."""
    graph = graphs.graph("power law", kernels)
    x, score_src, score_dst = (tensor.detach() for tensor in inputs("gat", graph, 2, 5))
    score_dst[7, 1], score_dst[8, 0], score_src[:5] = torch.nan, -torch.inf, -torch.inf
    tensors = [x, score_src, score_dst]
    truth = plain("gat", graph, tensors, 0.0)
    assert truth[7, 1].isnan().all()
    assert truth[8, 0].isnan().all()
    torch.testing.assert_close(op("gat", kernels, graph, tensors, 0.0), truth, equal_nan=True)


def test_misuse_is_a_clear_error() -> None:
    graph = graphs.graph("power law")
    for kernels in KERNELS.values():
        x, score = torch.ones(60, 2, 4), torch.ones(60, 2)
        for arguments, match in (
            ((x[:59], score, score), r"x has shape \[59, 2, 4\], expected \[60, 2, 4\]"),
            ((x[:, 0], score, score), r"x has shape \[60, 4\], expected \[60, 4, 1\]"),
            ((x, score, score[:, :1]), r"score_dst has shape \[60, 1\], expected \[60, 2\]"),
            ((x, score.double(), score), "score_src has type torch.float64; all must be of one"),
            ((x.long(), score.long(), score.long()), "x has type torch.int64"),
            ((x, score, score, 0.2, 1.5), "dropout is 1.5, but must be from 0 to 1"),
        ):
            with pytest.raises(UnsupportedOp, match=match):
                attention.gat_attention(kernels, graph, *arguments)
        with pytest.raises(UnsupportedOp, match=r"x_dst has shape \[60, 2\], expected \[60, 2, 4\]"):
            attention.gatv2_attention(kernels, graph, x, score, x[0])
        with pytest.raises(UnsupportedOp, match=r"value has shape \[59, 2, 4\], expected \[60, 2, 4\]"):
            attention.dot_attention(kernels, graph, x, x, x[:59])
    if not isplib.MISSING:
        fused = isplib.IsplibKernels()
        with pytest.raises(UnsupportedOp, match="no heads or no channels; isplib needs at least one"):
            attention.dot_attention(fused, graph, x[:, :, :0], x[:, :, :0], x)
        with pytest.raises(UnsupportedOp, match="bfloat16; isplib computes in float32"):
            attention.dot_attention(fused, graph, x.bfloat16(), x.bfloat16(), x.bfloat16())
