"""Softmax over the edges of every row, and its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.cuda._base import BaseKernels, launch, sums_in, triton_type
from gnnbench.backends.cuda._tile import fit, segments_of
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.plan import Hubs, Segments, hubs, rows
from gnnbench.graph import Graph

SOFTMAX_ELEMENTS = 256  # of a tile: rows of few heads are short


@jit
def entries(
    first: tensor, length: tensor, chunk: tensor, H: constexpr, BLOCK_E: constexpr, BLOCK_H: constexpr
) -> tensor:
    """Places in [., H] of the entries from first + chunk on, and which there are [segments, edges, heads]."""
    place = chunk + tl.arange(0, BLOCK_E)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    valid = (place[None, :] < length[:, None])[:, :, None] & (h < H)[None, None, :]
    return (first[:, None] + place[None, :])[:, :, None] * H + h[None, None, :], valid


@jit
def top_and_total(
    score: tensor,
    weight: tensor,
    first: tensor,
    length: tensor,
    H: constexpr,
    ACC: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
) -> tensor:
    """The maximum of score [., H] and the sum of weight * exp(score - maximum), weight [., H] or None for ones."""
    top = tl.full((first.shape[0], BLOCK_E, BLOCK_H), -float("inf"), ACC)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        where, valid = entries(first, length, chunk, H, BLOCK_E, BLOCK_H)
        top = tl.maximum(top, tl.load(score + where, valid, -float("inf")).to(ACC))
    highest = tl.max(top, 1)
    shift = tl.where(highest == -float("inf"), 0.0, highest)[:, None, :]  # else -inf - -inf
    total = tl.zeros((first.shape[0], BLOCK_E, BLOCK_H), ACC)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        where, valid = entries(first, length, chunk, H, BLOCK_E, BLOCK_H)
        exp = tl.exp(tl.load(score + where, valid, -float("inf")).to(ACC) - shift)
        if weight is not None:
            exp *= tl.load(weight + where, valid, 0.0)
        total += tl.where(valid, exp, 0.0)
    return highest, tl.sum(total, 1)


@jit
def dot(
    a: tensor,
    b: tensor,
    first: tensor,
    length: tensor,
    H: constexpr,
    ACC: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
) -> tensor:
    """The sum of a * b [., H]; b may be None for ones."""
    total = tl.zeros((first.shape[0], BLOCK_E, BLOCK_H), ACC)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        where, valid = entries(first, length, chunk, H, BLOCK_E, BLOCK_H)
        term = tl.load(a + where, valid, 0.0).to(ACC)
        if b is not None:
            term *= tl.load(b + where, valid, 0.0).to(ACC)
        total += term
    return tl.sum(total, 1)


@jit
def softmax_kernel(
    begin: tensor,  # segments of edges, as `plan.Segments`
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    hub_begin: tensor,  # [S] the slices of a segment's row, as `plan.Hubs`; None where the segment is the row
    hub_end: tensor,
    slice_top: tensor,  # [slices, H]
    slice_total: tensor,
    score: tensor,  # [E, H]
    alpha: tensor,  # [E, H]
    H: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
) -> tensor:
    """alpha = exp(score) over its sum over the row."""
    first, length, segment, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    if hub_begin is None:
        top, total = top_and_total(score, None, first, length, H, ACC, BLOCK_E, BLOCK_H)
    else:
        hub = tl.load(hub_begin + segment, mine, 0)
        slices = tl.load(hub_end + segment, mine, 0) - hub
        top, total = top_and_total(slice_top, slice_total, hub, slices, H, ACC, BLOCK_E, BLOCK_H)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        where, valid = entries(first, length, chunk, H, BLOCK_E, BLOCK_H)
        exp = tl.exp(tl.load(score + where, valid, 0.0).to(ACC) - top[:, None, :])
        tl.store(alpha + where, (exp / total[:, None, :]).to(alpha.dtype.element_ty), valid)


@jit
def slice_softmax_kernel(
    begin: tensor,
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    score: tensor,  # [E, H]
    top: tensor,  # [S, H]
    total: tensor,
    H: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
) -> tensor:
    """`top_and_total` of each segment."""
    first, length, segment, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    highest, terms = top_and_total(score, None, first, length, H, ACC, BLOCK_E, BLOCK_H)
    where, exists = entries(segment, mine.to(tl.int32), 0, H, 1, BLOCK_H)
    tl.store(top + where, highest[:, None, :], exists)
    tl.store(total + where, terms[:, None, :], exists)


@jit
def softmax_backward_kernel(
    begin: tensor,  # the same as of `softmax_kernel`
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    hub_begin: tensor,
    hub_end: tensor,
    slice_total: tensor,  # [slices, H]
    alpha: tensor,  # [E, H]
    grad_alpha: tensor,
    grad_score: tensor,
    H: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
) -> tensor:
    """grad_score = alpha * (grad_alpha - the row's sum of alpha * grad_alpha)."""
    first, length, segment, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    if hub_begin is None:
        total = dot(alpha, grad_alpha, first, length, H, ACC, BLOCK_E, BLOCK_H)
    else:
        hub = tl.load(hub_begin + segment, mine, 0)
        slices = tl.load(hub_end + segment, mine, 0) - hub
        total = dot(slice_total, None, hub, slices, H, ACC, BLOCK_E, BLOCK_H)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        where, valid = entries(first, length, chunk, H, BLOCK_E, BLOCK_H)
        grad = tl.load(grad_alpha + where, valid, 0.0).to(ACC) - total[:, None, :]
        grad *= tl.load(alpha + where, valid, 0.0).to(ACC)
        tl.store(grad_score + where, grad.to(grad_score.dtype.element_ty), valid)


@jit
def slice_dot_kernel(
    begin: tensor,
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    alpha: tensor,  # [E, H]
    grad_alpha: tensor,
    total: tensor,  # [S, H]
    H: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
) -> tensor:
    """The sum of alpha * grad_alpha of each segment."""
    first, length, segment, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    terms = dot(alpha, grad_alpha, first, length, H, ACC, BLOCK_E, BLOCK_H)
    where, exists = entries(segment, mine.to(tl.int32), 0, H, 1, BLOCK_H)
    tl.store(total + where, terms[:, None, :], exists)


class SoftmaxKernels(BaseKernels):
    """Edge softmax. A slice of a hub first finds its part of the row's sums, then each reads all of them."""

    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        score = score.contiguous()
        alpha = torch.empty_like(score)
        short = rows(graph, self.longest(graph))
        _over(softmax_kernel, graph, short, score, None, None, None, None, score, alpha)
        if cut := hubs(graph, self.longest(graph)):
            slices, top, total = cut.slices.apart, _per_slice(cut, score), _per_slice(cut, score)
            _over(slice_softmax_kernel, graph, slices, score, score, top, total)
            _over(softmax_kernel, graph, slices, score, cut.begin, cut.end, top, total, score, alpha)
        return alpha

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        alpha, grad_alpha = alpha.contiguous(), grad_alpha.contiguous()
        grad_score = torch.empty_like(alpha)
        given, short = (alpha, grad_alpha, grad_score), rows(graph, self.longest(graph))
        _over(softmax_backward_kernel, graph, short, alpha, None, None, None, *given)
        if cut := hubs(graph, self.longest(graph)):
            slices, total = cut.slices.apart, _per_slice(cut, alpha)
            _over(slice_dot_kernel, graph, slices, alpha, alpha, grad_alpha, total)
            _over(softmax_backward_kernel, graph, slices, alpha, cut.begin, cut.end, total, *given)
        return grad_score


def _over(kernel: Any, graph: Graph, segments: Segments, like: Tensor, *args: Tensor | None) -> None:
    """Start `kernel` over `segments`, with tiles for entries such as those of `like` [E, H]."""
    heads, sums = like.size(1), triton_type(sums_in(like.dtype))
    tile = fit(graph, heads, 1, SOFTMAX_ELEMENTS)
    grid = tile.grid(segments.count, heads, 1)
    launch(kernel, grid, segments, *args, H=heads, ACC=sums, **tile.blocks("SEH"))


def _per_slice(cut: Hubs, like: Tensor) -> Tensor:
    """Room for a number of each slice and head."""
    return like.new_empty(cut.slices.count, like.size(1), dtype=sums_in(like.dtype))
