"""Softmax over the edges of every row, and its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.cuda._base import BaseKernels, Segments, edges_of, fit, hubs, rows, segments_of
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.graph import Graph

SOFTMAX_ELEMENTS = 256  # of a tile: rows of few heads are short


@jit
def entries(
    first: tensor, length: tensor, chunk: tensor, H: constexpr, BLOCK_E: constexpr, BLOCK_H: constexpr
) -> tensor:
    """Places in [., H] of the entries from first + chunk on, and which there are [segments, edges, heads]."""
    edge, valid = edges_of(first, length, chunk, BLOCK_E)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    return edge[:, :, None] * H + h[None, None, :], valid[:, :, None] & (h < H)[None, None, :]


@jit
def totals(
    values: tensor,
    weight: tensor,
    first: tensor,
    length: tensor,
    EXP: constexpr,
    H: constexpr,
    ACC: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
) -> tensor:
    """The sum of weight * values [., H], or if EXP of weight * exp(values - maximum), with the maximum before it.

    `weight` [., H] may be None for ones.
    """
    top = tl.full((first.shape[0], BLOCK_E, BLOCK_H), -float("inf"), ACC)
    if EXP:
        for chunk in range(0, tl.max(length, 0), BLOCK_E):
            where, valid = entries(first, length, chunk, H, BLOCK_E, BLOCK_H)
            top = tl.maximum(top, tl.load(values + where, valid, -float("inf")).to(ACC))
    highest = tl.max(top, 1)
    shift = tl.where(highest == -float("inf"), 0.0, highest)[:, None, :]  # else -inf - -inf
    total = tl.zeros((first.shape[0], BLOCK_E, BLOCK_H), ACC)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        where, valid = entries(first, length, chunk, H, BLOCK_E, BLOCK_H)
        term = tl.load(values + where, valid, 0.0).to(ACC)
        if EXP:
            term = tl.exp(term - shift)
        if weight is not None:
            term *= tl.load(weight + where, valid, 0.0).to(ACC)
        total += tl.where(valid, term, 0.0)
    return highest, tl.sum(total, 1)


@jit
def softmax_kernel(
    begin: tensor,  # segments of edges, as `Segments`
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    hub_begin: tensor,  # [S] the slices of a segment's row, as `Hubs`; None where the segment is the row
    hub_end: tensor,
    slice_top: tensor,  # [slices, H], of the forward
    slice_total: tensor,
    score: tensor,  # [E, H]; in backward alpha
    grad: tensor,  # [E, H], of alpha; None in forward
    out: tensor,  # [E, H]
    H: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
) -> tensor:
    """alpha = exp(score) over its sum over the row, or alpha * (grad - the row's sum of alpha * grad)."""
    first, length, segment, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    begins, counts, scores, weights = first, length, score, grad
    if hub_begin is not None:
        begins = tl.load(hub_begin + segment, mine, 0)
        counts = tl.load(hub_end + segment, mine, 0) - begins
        scores, weights = (slice_top, slice_total) if grad is None else (slice_total, None)
    top, total = totals(scores, weights, begins, counts, grad is None, H, ACC, BLOCK_E, BLOCK_H)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        where, valid = entries(first, length, chunk, H, BLOCK_E, BLOCK_H)
        value = tl.load(score + where, valid, 0.0).to(ACC)
        if grad is None:
            value = tl.exp(value - top[:, None, :]) / total[:, None, :]
        else:
            value *= tl.load(grad + where, valid, 0.0).to(ACC) - total[:, None, :]
        tl.store(out + where, value.to(out.dtype.element_ty), valid)


@jit
def slice_kernel(
    begin: tensor,
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    score: tensor,  # as of `softmax_kernel`
    grad: tensor,
    top: tensor,  # [S, H]
    total: tensor,
    H: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
) -> tensor:
    """`totals` of each segment."""
    first, length, segment, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    where, exists = entries(segment, mine.to(tl.int32), 0, H, 1, BLOCK_H)
    highest, terms = totals(score, grad, first, length, grad is None, H, ACC, BLOCK_E, BLOCK_H)
    if grad is None:
        tl.store(top + where, highest[:, None, :], exists)
    tl.store(total + where, terms[:, None, :], exists)


class SoftmaxKernels(BaseKernels):
    """Edge softmax. A slice of a hub first finds its part of the row's sums, then each reads all of them."""

    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        return self._over_rows(graph, score.contiguous(), None)

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        return self._over_rows(graph, alpha.contiguous(), grad_alpha.contiguous())

    def _over_rows(self, graph: Graph, score: Tensor, grad: Tensor | None) -> Tensor:
        given = score, grad, torch.empty_like(score)
        _over(softmax_kernel, graph, rows(graph, self.longest(graph)), score, None, None, None, None, *given)
        if cut := hubs(graph, self.longest(graph)):
            top, total = cut.partial(score), cut.partial(score)
            slices = cut.slices.apart
            _over(slice_kernel, graph, slices, score, score, grad, top, total)
            _over(softmax_kernel, graph, slices, score, cut.begin, cut.end, top, total, *given)
        return given[-1]


def _over(kernel: Any, graph: Graph, segments: Segments, like: Tensor, *args: Tensor | None) -> None:
    """Start `kernel` over `segments`, with tiles for entries such as those of `like` [E, H]."""
    fit(graph, like.size(1), 1, SOFTMAX_ELEMENTS).launch(kernel, segments, like.dtype, *args, axes="SEH")
