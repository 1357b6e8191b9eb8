"""Sums and means over the edges of every row, and scores of edges."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from gnnbench.backends.cuda._base import Segments, Tile, acc_type, edges_of, ends, hubs, launch, rows, segments_of
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.choices import ChoosingKernels, tile_of
from gnnbench.graph import Graph


@jit
def sum_kernel(
    begin: tensor,  # segments of edges, as `Segments`
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    rowptr: tensor,  # [N + 1] int64, for means
    col: tensor,  # [E] int32, row of x that an edge takes; None for the edge itself
    value: tensor,  # [E, H], or None for ones
    x: tensor,  # [M, H, C]
    out: tensor,  # [N, H, C]
    H: constexpr,
    C: constexpr,
    MEAN: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
    BLOCK_C: constexpr,
) -> tensor:
    """out[row] = sum of value * x[col] over the edges of a segment, or their mean."""
    first, length, row, mine = segments_of(begin, end, row, count, longest, BLOCK_S)
    TILES: constexpr = (C + BLOCK_C - 1) // BLOCK_C
    h = tl.program_id(1) // TILES * BLOCK_H + tl.arange(0, BLOCK_H)
    c = tl.program_id(1) % TILES * BLOCK_C + tl.arange(0, BLOCK_C)
    channel, exists = h[:, None] * C + c[None, :], (h < H)[:, None] & (c < C)[None, :]
    # Every place of a chunk has its own sums, reduced at the end: no exchange between lanes in the loop.
    acc = tl.zeros((BLOCK_S, BLOCK_E, BLOCK_H, BLOCK_C), ACC)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        edge, valid = edges_of(first, length, chunk, BLOCK_E)
        source = ends(col, edge, valid)
        wanted = valid[:, :, None, None] & exists[None, None, :, :]
        message = tl.load(x + source[:, :, None, None] * (H * C) + channel[None, None, :, :], wanted, 0.0).to(ACC)
        if value is not None:
            weighed = valid[:, :, None] & (h < H)[None, None, :]
            weight = tl.load(value + edge[:, :, None] * H + h[None, None, :], weighed, 0.0).to(ACC)
            message *= weight[:, :, :, None]
        acc += message
    total = tl.sum(acc, 1)
    if MEAN:
        degree = tl.load(rowptr + row + 1, mine, 0) - tl.load(rowptr + row, mine, 0)
        total /= tl.maximum(degree, 1).to(ACC)[:, None, None]
    where = out + row[:, None, None] * (H * C) + channel[None, :, :]
    tl.store(where, total.to(out.dtype.element_ty), mine[:, None, None] & exists[None, :, :])


class SpmmKernels(ChoosingKernels):
    """Sum and mean, by Triton or, where that was found faster, by cuSPARSE."""

    def plan(self, graph: Graph) -> None:
        hubs(graph, self.longest(graph))

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        heads, mean = value.size(1) if value is not None and value.dim() == 2 else 1, reduce == "mean"
        width = prod(x.shape[1:])
        choice, shape = self.chosen("spmm", graph, width, x.dtype), (heads, width // max(heads, 1))
        crowded = graph.num_edges > graph.num_rows * graph.num_cols  # by duplicates, which cuSPARSE refuses
        if choice["algorithm"] == "cusparse" and heads == 1 and not crowded:
            out = _by_cusparse(graph, x.view(graph.num_cols, width), value)
            return (out / graph.degree.clamp(min=1).unsqueeze(1) if mean else out).view(
                graph.num_rows, *x.shape[1:]
            )
        out, tile = x.new_empty(graph.num_rows, *x.shape[1:]), tile_of(choice, graph, *shape)

        def add(segments: Segments, mean: bool, *tensors: Tensor | None) -> None:
            tile.launch(sum_kernel, segments, x.dtype, graph.rowptr, *tensors, MEAN=mean)

        add(rows(graph, self.longest(graph)), mean, graph.col, value, x, out)
        if cut := hubs(graph, self.longest(graph)):
            partial = cut.partial(out)
            add(cut.slices.apart, False, graph.col, value, x, partial)
            add(cut.rows, mean, None, None, partial, out)
        return out


def sum_slices(tile: Tile, slices: Segments, partial: Tensor, out: Tensor) -> None:
    """Sum what a kernel made of slices, in the order of these, into the rows of `out`."""
    tile.launch(sum_kernel, slices, partial.dtype, slices.begin, None, None, partial, out, MEAN=False)


def _by_cusparse(graph: Graph, x: Tensor, value: Tensor | None) -> Tensor:
    """Sums by what torch calls for sparse matrices; what it needs beside col stays on the graph."""
    rowptr, ones = graph.once(("cusparse", x.dtype), lambda: (graph.rowptr.int(), x.new_ones(graph.num_edges)))
    value = ones if value is None else value
    size = graph.num_rows, graph.num_cols
    return torch.sparse_csr_tensor(rowptr, graph.col, value, size, check_invariants=False) @ x


@jit
def sddmm_kernel(
    begin: tensor,  # segments of edges, as `Segments`
    end: tensor,
    row: tensor,
    count: tensor,
    longest: tensor,
    col: tensor,  # [E] int32
    a: tensor,  # [N, H, C]
    b: tensor,  # [M, H, C]
    out: tensor,  # [E, H]
    H: constexpr,
    C: constexpr,
    ACC: constexpr,
    BLOCK_S: constexpr,
    BLOCK_E: constexpr,
    BLOCK_H: constexpr,
    BLOCK_C: constexpr,
) -> tensor:
    """out = <a[row], b[col]> of every edge of a segment."""
    first, length, row, _ = segments_of(begin, end, row, count, longest, BLOCK_S)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    for chunk in range(0, tl.max(length, 0), BLOCK_E):
        edge, valid = edges_of(first, length, chunk, BLOCK_E)
        source = ends(col, edge, valid)
        score = tl.zeros((BLOCK_S, BLOCK_E, BLOCK_H), ACC)
        for start in range(0, C, BLOCK_C):
            c = start + tl.arange(0, BLOCK_C)
            channel = h[:, None] * C + c[None, :]
            exists = (h < H)[:, None] & (c < C)[None, :]
            at_row = row[:, None, None] * (H * C) + channel[None, :, :]
            ours = tl.load(a + at_row, (length > 0)[:, None, None] & exists[None, :, :], 0.0)
            at_source = source[:, :, None, None] * (H * C) + channel[None, None, :, :]
            theirs = tl.load(b + at_source, valid[:, :, None, None] & exists[None, None, :, :], 0.0)
            score += tl.sum(ours.to(ACC)[:, None, :, :] * theirs.to(ACC), 3)
        where = edge[:, :, None] * H + h[None, None, :]
        tl.store(out + where, score.to(out.dtype.element_ty), valid[:, :, None] & (h < H)[None, None, :])


class SddmmKernels(ChoosingKernels):
    """Sampled dense-dense products."""

    def sddmm(self, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        heads, channels = (1, a.size(1)) if a.dim() == 2 else a.shape[1:]
        out = a.new_empty(graph.num_edges, *a.shape[1:-1])
        tile = tile_of(self.chosen("sddmm", graph, heads * channels, a.dtype, heads), graph, heads, channels)
        constants = {"ACC": acc_type(a.dtype), **tile.constants()}
        parts = [rows(graph, self.longest(graph))]
        if cut := hubs(graph, self.longest(graph)):
            parts.append(cut.slices)
        for segments in parts:
            grid = -(-segments.count // tile.segments), -(-heads // tile.heads)
            launch(sddmm_kernel, grid, segments, graph.col, a, b, out, **constants)
        return out
