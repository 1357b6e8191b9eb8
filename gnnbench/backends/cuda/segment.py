"""Reductions over runs of rows and sums of rows into others: aggregations whose edges are the rows themselves."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from gnnbench.backends.cuda._base import launch, sums_in, triton_type
from gnnbench.backends.cuda._tile import fit, segments_of
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.choices import BY_ROWS
from gnnbench.backends.cuda.extremum import ExtremumKernels
from gnnbench.backends.cuda.plan import Segments, hubs, rows
from gnnbench.graph import Graph
from gnnbench.ops.kernels import EXTREMA


@jit
def ties_kernel(
    begin: tensor,  # segments of edges, as `plan.Segments`
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
        place = chunk + tl.arange(0, BLOCK_E)
        wanted = (place[None, :] < length[:, None])[:, :, None] & (c < C)[None, None, :]
        where = (first[:, None] + place[None, :])[:, :, None] * C + c[None, None, :]
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
        graph, width, sums = self._in_order(rowptr, x), x.size(1), sums_in(x.dtype)
        longest, tile = self.longest(graph), fit(graph, 1, width, BY_ROWS["spmm_max"])
        constants = {"C": width, "ACC": triton_type(sums), **tile.blocks("SEC")}

        def run(segments: Segments, ties: Tensor, grad_x: Tensor | None) -> None:
            tensors = x, out, grad_out, ties, grad_x
            launch(ties_kernel, tile.grid(segments.count, 1, width), segments, *tensors, **constants)

        ties, grad_x, cut = torch.empty_like(out, dtype=sums), torch.empty_like(x), hubs(graph, longest)
        run(rows(graph, longest), ties, None)
        if cut:
            partial = ties.new_empty(cut.slices.count, width)
            run(cut.slices, partial, None)
            self._sum(graph, cut.rows, tile, (1, width), False, None, None, partial, ties)
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
