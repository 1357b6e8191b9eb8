"""Attention, composed and fused: outputs and gradients against autograd in float64, dropout, threads, memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.dropout import Dropout
from gnnbench.ops.families import FAMILIES, Attention, Family
from gnnbench.ops.kernels import Kernels
from tests.support import graphs
from tests.support.attention import Largest, assert_as_precise, inputs, over_families, scaled
from tests.support.kernels import KERNELS, OURS, over_dtypes, over_graphs, over_kernels

SIZES = [(1, 1), (1, 3), (8, 8), (4, 8), (1, 41), (3, 7), (5, 2), (20, 5), (9, 33), (1, 70), (2, 150), (1, 300)]


def op(
    family: str, kernels: Kernels, graph: Graph, tensors: tuple[Tensor, ...], p: float, slope: float = 0.2
) -> Tensor:
    """The public op; its dropout is drawn from seed 1."""
    torch.manual_seed(1)
    return attention(kernels, graph, family, tensors, p, slope)


SCORES: dict[str, Callable[..., Tensor]] = {
    "gat": lambda query, key, _, slope: F.leaky_relu(query + key, slope),
    "gatv2": lambda query, key, att, slope: (att * F.leaky_relu(query + key, slope)).sum(-1),
    "dot": lambda query, key, _, slope: (query * key).sum(-1),
}


def plain(family: str, graph: Graph, tensors: tuple[Tensor, ...], p: float, slope: float = 0.2) -> Tensor:
    """Compute it by torch alone, row by row, with the multipliers that the specification of dropout gives."""
    torch.manual_seed(1)
    row, col = graph.row, graph.col.long()
    query, key, last = tensors
    score, value = SCORES[family](query[row], key[col], last, slope), key if family == "gatv2" else last
    rows = [score[start:end].softmax(0) for start, end in itertools.pairwise(graph.rowptr.tolist())]
    alpha = torch.cat(rows) if rows else score
    if p:
        alpha = alpha * Dropout(p, torch.randint(2**63 - 1, (1,))).multiplier(*alpha.shape)
    out = value.new_zeros(graph.num_rows, *value.shape[1:])
    return out.index_add(0, row, alpha.unsqueeze(-1) * value[col])


def gradients(out: Tensor, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
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
    thorough = (kernels is OURS and graph.num_edges) or graph_name == "power law"
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-13}[dtype]
    for (heads, channels), p in itertools.product(SIZES if thorough else SIZES[:3], (0.0, 0.4)):
        tensors = inputs(family, graph, heads, channels, dtype)
        true = tuple(tensor.detach().double().requires_grad_() for tensor in tensors)
        found, truth = op(family, kernels, graph, tensors, p), plain(family, graph, true, p)
        assert found.dtype == dtype
        check(found, truth, tolerance)
        for gradient, expected in zip(gradients(found, tensors), gradients(truth, true), strict=True):
            check(gradient, expected, tolerance)


@over_kernels
@over_families
def test_every_width(family: str, kernels: Kernels) -> None:
    graph = graphs.graph("wide", kernels)
    for channels in range(1, 71):
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
        given = inputs(family, graph, 3, 8, torch.float32)
        tensors = tuple(tensor.requires_grad_() for tensor in scaled(family, given, size))
        true = tuple(tensor.detach().double().requires_grad_() for tensor in tensors)
        runs = op(family, kernels, graph, tensors, 0.0), plain(family, graph, tensors, 0.0)
        truth = plain(family, graph, true, 0.0)
        ours, theirs = ((out, *gradients(out, tensors)) for out in runs)
        for found, torchs, exact in zip(ours, theirs, (truth, *gradients(truth, true)), strict=True):
            assert_as_precise(found, torchs, exact)


@over_kernels
@over_families
def test_stats_and_rows_without_edges(family: str, kernels: Kernels) -> None:
    graph = graphs.graph("isolated nodes", kernels)
    tensors = tuple(tensor.detach() for tensor in inputs(family, graph, 2, 5))
    how = Attention(FAMILIES[family], tensors, 0.2, None), FAMILIES[family].keeps_positive
    found, truth = kernels.attention(graph, *how), Kernels().attention(graph, *how)
    for one, other in zip(found, truth, strict=True):
        torch.testing.assert_close(one, other)
    assert (found[0][graph.degree == 0] == 0).all()
    assert (found[1][graph.degree == 0] == torch.tensor([-torch.inf, 0.0])).all()


@over_kernels
def test_gradients_need_nothing_that_forward_may_keep(kernels: Kernels) -> None:
    graph = graphs.graph("power law", kernels)
    given = Attention(FAMILIES["gat"], tuple(tensor.detach() for tensor in inputs("gat", graph, 2, 5)), 0.2, None)
    kept = kernels.attention(graph, given, True)
    found, expected = (
        kernels.attention_backward(graph, given, each, torch.ones_like(kept[0])) for each in (kept[:2], kept)
    )
    torch.testing.assert_close(found, expected)


@over_kernels
@over_families
def test_gradcheck(family: str, kernels: Kernels) -> None:
    graph = graphs.graph("knot", kernels)
    tensors = inputs(family, graph, 2, 3)
    for p in (0.0, 0.5):
        assert torch.autograd.gradcheck(lambda *args, p=p: op(family, kernels, graph, args, p), tensors)


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
    strided = tuple(tensor.detach().mT.contiguous().mT.requires_grad_() for tensor in tensors)
    assert not any(tensor.is_contiguous() for tensor in strided)
    found, expected = op(family, kernels, graph, strided, 0.0), op(family, kernels, graph, tensors, 0.0)
    torch.testing.assert_close(found, expected)
    for one, other in zip(gradients(found, strided), gradients(expected, tensors), strict=True):
        torch.testing.assert_close(one, other)


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
    """Return that of two masks that keep 1 - p."""
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
    function = partial(attention, kernels, graph, family, tensors)
    assert not torch.equal(function(dropout=0.5), function(dropout=0.5))
    assert op(family, kernels, graph, tensors, 1.0).abs().max() == 0
    state = torch.get_rng_state()
    function()
    assert torch.equal(state, torch.get_rng_state())


@over_kernels
def test_nan_stays_in_its_rows(kernels: Kernels) -> None:
    """Give NaN for nothing but -inf too; among others -inf is no weight."""
    graph = graphs.graph("power law", kernels)
    tensors = query, key, _ = tuple(tensor.detach() for tensor in inputs("gat", graph, 2, 5))
    query[7, 1], query[8, 0], key[:5] = torch.nan, -torch.inf, -torch.inf
    truth = plain("gat", graph, tensors, 0.0)
    assert truth[7, 1].isnan().all()
    assert truth[8, 0].isnan().all()
    torch.testing.assert_close(op("gat", kernels, graph, tensors, 0.0), truth, equal_nan=True)


def test_misuse_is_a_clear_error() -> None:
    graph = graphs.graph("power law")
    for kernels in KERNELS.values():
        x, score = torch.ones(60, 2, 4), torch.ones(60, 2)
        for family, given, p, match in (
            ("gat", (score, score, x[:59]), 0.0, r"value has shape \[59, 2, 4\], expected \[60, 2, 4\]"),
            ("gat", (score, score, x[:, 0]), 0.0, r"value has shape \[60, 4\], expected \[60, 2, 1\]"),
            ("gat", (score, score[:, :1], x), 0.0, r"key has shape \[60, 1\], expected \[60, 2\]"),
            ("gat", (score, score.double(), x), 0.0, "key has type torch.float64; all must be of one"),
            ("gat", (score.long(), score.long(), x.long()), 0.0, "query has type torch.int64"),
            ("gat", (score, score, x), 1.5, "dropout is 1.5, but must be from 0 to 1"),
            ("gatv2", (x, score, x[0]), 0.0, r"key has shape \[60, 2\], expected \[60, 2, 4\]"),
            ("gatv2", (x, x, x[0, :1]), 0.0, r"att has shape \[1, 4\], expected \[2, 4\]"),
            ("dot", (x, x, x[:59]), 0.0, r"value has shape \[59, 2, 4\], expected \[60, 2, 4\]"),
        ):
            with pytest.raises(UnsupportedOp, match=match):
                attention(kernels, graph, family, given, p)
    if not isplib.MISSING:
        fused = isplib.IsplibKernels()
        with pytest.raises(UnsupportedOp, match="no heads or no channels; isplib needs at least one"):
            attention(fused, graph, "dot", (x[:, :, :0], x[:, :, :0], x))
        with pytest.raises(UnsupportedOp, match="bfloat16; isplib computes in float32"):
            attention(fused, graph, "dot", (x.bfloat16(), x.bfloat16(), x.bfloat16()))


class Additive(Family):
    """A family that no backend has kernels for: the sum of both ends."""

    inputs: ClassVar[dict[str, str]] = {"query": "NH", "key": "MH", "value": "MHC"}

    def scores(self, kernels: Kernels, graph: Graph, inputs: tuple[Tensor, ...], slope: float) -> Tensor:
        return inputs[0][graph.row] + inputs[1][graph.col.long()]

    def gradients(self, kernels: Kernels, graph: Graph, inputs: Any, slope: float, *grads: Tensor) -> Any:
        query, key, _ = inputs
        grad_query = torch.zeros_like(query).index_add_(0, graph.row, grads[0])
        return grad_query, torch.zeros_like(key).index_add_(0, graph.col, grads[0]), grads[1]


@over_kernels
def test_a_family_without_kernels_is_composed(kernels: Kernels) -> None:
    graph, family = graphs.graph("power law", kernels), Additive()
    tensors = tuple(tensor.detach() for tensor in inputs("gat", graph, 2, 5))
    leaves = tuple(tensor.clone().requires_grad_() for tensor in tensors)
    out = plain("gat", graph, leaves, 0.0, slope=1.0)
    given = Attention(family, tensors, 0.2, None)
    kept = kernels.attention(graph, given, False)
    torch.testing.assert_close(kept[0], out)
    gradients = kernels.attention_backward(graph, given, kept, torch.ones_like(kept[0]))
    torch.testing.assert_close(gradients, torch.autograd.grad(out.sum(), leaves))
