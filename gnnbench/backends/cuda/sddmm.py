"""Scores of edges: sampled dense-dense products."""

from __future__ import annotations

from torch import Tensor

from gnnbench.backends.cuda._base import launch, sums_in, triton_type
from gnnbench.backends.cuda._tile import segments_of
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.choices import ChoosingKernels, tile_of
from gnnbench.backends.cuda.plan import hubs, rows
from gnnbench.graph import Graph


@jit
def sddmm_kernel(
    begin: tensor,  # segments of edges, as `plan.Segments`
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
        place = chunk + tl.arange(0, BLOCK_E)
        valid = place[None, :] < length[:, None]
        edge = first[:, None] + place[None, :]
        source = tl.load(col + edge, valid, 0).to(tl.int64)
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
        constants = {"H": heads, "C": channels, "ACC": triton_type(sums_in(a.dtype)), **tile.blocks()}
        parts = [rows(graph, self.longest(graph))]
        if cut := hubs(graph, self.longest(graph)):
            parts.append(cut.slices)
        for segments in parts:
            grid = tile.grid(segments.count, heads, 1)
            launch(sddmm_kernel, grid, segments, graph.col, a, b, out, **constants)
        return out
