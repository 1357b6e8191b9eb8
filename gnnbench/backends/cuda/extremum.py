"""Minima and maxima over the edges of every row with their gradient, and reductions over runs of rows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from gnnbench.backends.cuda._base import Segments, edges_of, ends, fit, hubs, rows, segments_of, sums_in
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.choices import BY_ROWS, tile_of
from gnnbench.backends.cuda.spmm import SpmmKernels, sum_slices
from gnnbench.graph import Graph
from gnnbench.ops.kernels import EXTREMA


@jit
def extremum_kernel(
    begin: tensor,  # segments of edges, as `Segments`
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    col: tensor,  # [E] int32, row of x that an edge takes; None for the edge itself
    value: tensor,  # [E], or None for ones
    origin: tensor,  # [M, C] int32, the edge an entry of x came from; None for the edge itself
    x: tensor,  # [M, C]
    out: tensor,  # [N, C]
    arg_out: tensor,  # [N, C] int32
    C: constexpr,
    SIGN: constexpr,  # 1 for maxima, -1 for minima
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_C: constexpr,
) -> tensor:
    """The first of the largest SIGN * value * x[col] of a segment, where NaN is largest."""
    first, length, row, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    best = tl.full((BLOCK_S, BLOCK_E, BLOCK_C), -float("inf"), ACC)  # of every place of a chunk
    best_edge = tl.full((BLOCK_S, BLOCK_E, BLOCK_C), -1, tl.int32)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        edge, valid = edges_of(first, length, chunk, BLOCK_E)
        source = ends(col, edge, valid)
        wanted = valid[:, :, None] & (c < C)[None, None, :]
        where = source[:, :, None] * C + c[None, None, :]
        message = tl.load(x + where, wanted, 0.0).to(ACC) * SIGN
        if value is not None:
            message *= tl.load(value + edge, valid, 0.0).to(ACC)[:, :, None]
        larger = (message > best) | ((message != message) & (best == best)) | (best_edge < 0)
        best = tl.where(wanted & larger, message, best)
        came_from = edge[:, :, None].to(tl.int32)
        if origin is not None:
            came_from = tl.load(origin + where, wanted, 0)
        best_edge = tl.where(wanted & larger, came_from, best_edge)

    is_nan = best != best
    any_nan = tl.max(is_nan.to(tl.int32), 1) > 0
    top = tl.max(tl.where(is_nan, -float("inf"), best), 1)
    hit = (best_edge >= 0) & tl.where(any_nan[:, None, :], is_nan, best == top[:, None, :])
    NONE: constexpr = 2147483647
    arg = tl.min(tl.where(hit, best_edge, NONE), 1)
    top = tl.where(any_nan, float("nan"), tl.where(arg == NONE, 0.0, top * SIGN))
    where = row[:, None] * C + c[None, :]
    mask = mine[:, None] & (c < C)[None, :]
    tl.store(out + where, top.to(out.dtype.element_ty), mask)
    tl.store(arg_out + where, tl.where(arg == NONE, -1, arg), mask)


@jit
def extremum_backward_kernel(
    begin: tensor,  # segments of edges of the transpose, as `Segments`
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    col: tensor,  # [E] int32 of the transpose
    perm: tensor,  # [E] int32, its edges by their place in the graph
    value: tensor,  # [E] in the order of the graph, or None for ones
    arg_out: tensor,  # [N, C] int32
    grad_out: tensor,  # [N, C]
    grad_x: tensor,  # [M, C]
    C: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_C: constexpr,
) -> tensor:
    """grad_x[row] = sum of value * grad_out[col] over the edges of a segment that arg_out[col] names."""
    first, length, row, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    acc = tl.zeros((BLOCK_S, BLOCK_E, BLOCK_C), ACC)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        edge, valid = edges_of(first, length, chunk, BLOCK_E)
        where = ends(col, edge, valid)[:, :, None] * C + c[None, None, :]
        forward_edge = tl.load(perm + edge, valid, 0)
        wanted = valid[:, :, None] & (c < C)[None, None, :]
        hit = wanted & (tl.load(arg_out + where, wanted, -1) == forward_edge[:, :, None])
        grad = tl.load(grad_out + where, hit, 0.0).to(ACC)  # few hit, and the others are not read
        if value is not None:
            weight = tl.load(value + forward_edge, valid, 0.0).to(ACC)
            grad = tl.where(hit, grad * weight[:, :, None], 0.0)
        acc += grad
    where = row[:, None] * C + c[None, :]
    tl.store(grad_x + where, tl.sum(acc, 1).to(grad_x.dtype.element_ty), mine[:, None] & (c < C)[None, :])


class ExtremumKernels(SpmmKernels):
    """Minimum and maximum; the backward gathers over the transpose, so that nothing is accumulated atomically."""

    def spmm_max(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        sign, shape = -1 if reduce == "min" else 1, (graph.num_rows, x.size(1))
        best = x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)
        tile = tile_of(self.chosen("spmm_max", graph, x.size(1), x.dtype), graph, 1, x.size(1))

        def find(segments: Segments, *tensors: Tensor | None) -> None:
            tile.launch(extremum_kernel, segments, x.dtype, *tensors, axes="SEC", SIGN=sign)

        find(rows(graph, self.longest(graph)), graph.col, value, None, x, *best)
        if cut := hubs(graph, self.longest(graph)):
            partial, origin = cut.partial(x), best[1].new_empty(cut.slices.count, x.size(1))
            find(cut.slices.apart, graph.col, value, None, x, partial, origin)
            find(cut.rows, None, None, origin, partial, *best)
        return best

    def spmm_max_backward(self, graph: Graph, arg_out: Tensor, grad_out: Tensor, value: Tensor | None) -> Tensor:
        grad_out, value = grad_out.contiguous(), None if value is None else value.contiguous()
        width, transpose, dtype = grad_out.size(1), graph.transpose, grad_out.dtype
        tile = fit(transpose, 1, width, BY_ROWS["spmm_max"])
        tensors = transpose.col, graph.perm, value, arg_out, grad_out

        def add(segments: Segments, out: Tensor) -> None:
            tile.launch(extremum_backward_kernel, segments, dtype, *tensors, out, axes="SEC")

        grad_x = grad_out.new_empty(graph.num_cols, width)
        add(rows(transpose, self.longest(transpose)), grad_x)
        if cut := hubs(transpose, self.longest(transpose)):
            partial = cut.partial(grad_x)
            add(cut.slices.apart, partial)
            sum_slices(tile, cut.rows, partial, grad_x)
        return grad_x


@jit
def ties_kernel(
    begin: tensor,  # segments of edges, as `Segments`
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    x: tensor,  # [E, C]
    best: tensor,  # [N, C], the extremum of a row
    grad_out: tensor,  # [N, C]
    ties: tensor,  # [N, C], or where it is written [S, C]
    grad_x: tensor,  # [E, C]; None to write ties
    C: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_C: constexpr,
) -> tensor:
    """Entries of a segment that equal the best of their row: their number or, once it is known, their gradient."""
    first, length, row, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    exists = mine[:, None] & (c < C)[None, :]
    of_row = row[:, None] * C + c[None, :]
    top = tl.load(best + of_row, exists, 0.0)[:, None, :]
    if grad_x is not None:
        share = tl.load(grad_out + of_row, exists, 0.0).to(ACC)
        share /= tl.maximum(tl.load(ties + of_row, exists, 1.0), 1.0)
    total = tl.zeros((BLOCK_S, BLOCK_E, BLOCK_C), ACC)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        edge, valid = edges_of(first, length, chunk, BLOCK_E)
        wanted = valid[:, :, None] & (c < C)[None, None, :]
        where = edge[:, :, None] * C + c[None, None, :]
        hit = wanted & (tl.load(x + where, wanted, 0.0) == top)
        if grad_x is None:
            total += hit.to(ACC)
        else:
            tl.store(grad_x + where, tl.where(hit, share[:, None, :], 0.0).to(grad_x.dtype.element_ty), wanted)
    if grad_x is None:
        segment = tl.program_id(0).to(tl.int64) * BLOCK_S + tl.arange(0, BLOCK_S)
        tl.store(ties + segment[:, None] * C + c[None, :], tl.sum(total, 1), exists)


class SegmentKernels(ExtremumKernels):
    """Segments are the rows of a graph; nothing is accumulated atomically."""

    def segment(self, rowptr: Tensor, x: Tensor, reduce: str) -> Tensor:
        graph = self._in_order(rowptr, x)
        return self.spmm_max(graph, x, None, reduce)[0] if reduce in EXTREMA else self.spmm(graph, x, None, reduce)

    def segment_backward(
        self, rowptr: Tensor, grad_out: Tensor, reduce: str, x: Tensor | None = None, out: Tensor | None = None
    ) -> Tensor:
        if x is None or out is None:  # a copy of rows, which torch is as fast at
            return super().segment_backward(rowptr, grad_out, reduce)
        graph, width = self._in_order(rowptr, x), x.size(1)
        longest, tile = self.longest(graph), fit(graph, 1, width, BY_ROWS["spmm_max"])

        def run(segments: Segments, ties: Tensor, grad_x: Tensor | None) -> None:
            tensors = x, out, grad_out, ties, grad_x
            tile.launch(ties_kernel, segments, x.dtype, *tensors, axes="SEC")

        ties, grad_x = torch.empty_like(out, dtype=sums_in(x.dtype)), torch.empty_like(x)
        run(rows(graph, longest), ties, None)
        if cut := hubs(graph, longest):
            partial = cut.partial(ties)
            run(cut.slices, partial, None)
            sum_slices(tile, cut.rows, partial, ties)
            run(cut.slices, ties, grad_x)
        run(rows(graph, longest), ties, grad_x)
        return grad_x

    def add_rows(self, out: Tensor, index: Tensor, x: Tensor) -> None:
        order = index.argsort(stable=True)
        met, counts = index[order].unique_consecutive(return_counts=True)
        graph = Graph(pad(counts.cumsum(0), (1, 0)), order.int(), len(x), None, self)
        out.index_add_(0, met, self.spmm(graph, x, None, "sum"))  # each once

    def _in_order(self, rowptr: Tensor, x: Tensor) -> Graph:
        edges = torch.arange(len(x), dtype=torch.int32, device=x.device)
        return Graph(rowptr, edges, len(x), None, self)
