"""Attention forward: one pass over the edges with an online softmax, of which a maximum and a sum are kept."""

from __future__ import annotations

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.attention_parts import at_channels, channels, ends, multiplier, operand, pairs


@jit
def attention_kernel(
    begin: tensor,  # [count] int64: segment s is of the edges begin[s]:end[s]
    end: tensor,
    row: tensor,  # [count] int64, the row of a segment; None for the segment itself
    count: tensor,
    longest: tensor,  # edges of a segment, above which it is left out
    col: tensor,  # [E] int32; None where edge e is of node e
    query: tensor,  # [N, H, C], or [N, H] if NUMBER
    key: tensor,  # [M, H, C], [M, H]; without SCORE: scores, [E, H], or stats of slices, [E, H, 2]
    value: tensor,  # [M, H, D]
    att: tensor,  # [H, C], [H], or None
    seed: tensor,  # [1] int64, or None for no dropout
    out: tensor,  # [R, H, D], R rows; if PARTIAL of segments, and short of the division by the sum
    stats: tensor,  # [R, H, 2]: the greatest score, and the sum of exp(score - greatest)
    out_positive: tensor,  # [R, H, D], or None
    alpha_positive: tensor,  # [R, H]
    before: tensor,  # edges of other processes, which count first where weights are dropped
    threshold: tensor,
    scale: tensor,
    SCORE: constexpr,  # of `DeviceFamily`; None where scores are given
    NUMBER: constexpr,  # whether an end brings a number to a score, not channels
    SHARED: constexpr,  # whether key is value
    SLICES: constexpr,  # whether what is given is slices' stats
    SLOPE: constexpr,
    H: constexpr,
    C: constexpr,
    D: constexpr,
    ACC: constexpr,
    BLOCK_H: constexpr,
    BLOCK_C: constexpr,
    BLOCK_D: constexpr,
    UNITS: constexpr,
    EDGES: constexpr,
    PARTIAL: constexpr,
) -> tensor:
    """out and stats of `Kernels.attention`, of every segment."""
    pair, place, head, first, last, exists = pairs(begin, end, row, count, longest, H, BLOCK_H, UNITS, PARTIAL)
    q, a = head, head
    if query is not None:
        q = operand(query, pair, exists, NUMBER, C, BLOCK_C, ACC)
    if att is not None:
        a = operand(att, head, exists, NUMBER, C, BLOCK_C, ACC)
    top = tl.full((EDGES, UNITS), float("-inf"), ACC)
    total, mixed = tl.zeros((EDGES, UNITS), ACC), tl.zeros((EDGES, UNITS, BLOCK_D), ACC)
    total_positive, mixed_positive = total, mixed
    edge = first + tl.arange(0, EDGES)[:, None]
    live = edge < last
    source = ends(col, edge, live)
    for _ in range(0, tl.max(last - first), EDGES):
        here, of, alive = edge, source * H + head, live
        edge += EDGES
        live = edge < last
        source = ends(col, edge, live)  # of the next round: its gathers need not wait for it
        v = channels(value, of, alive, D, BLOCK_D, ACC)
        if SLICES:
            s = tl.load(key + (here * H + head) * 2, alive, 0.0)
        elif SCORE is None:
            s = tl.load(key + here * H + head, alive, 0.0).to(ACC)
        elif SHARED:
            s = SCORE(q, v, a, SLOPE)
        else:
            k = operand(key, of, alive, NUMBER, C, BLOCK_C, ACC)
            s = SCORE(q, k, a, SLOPE)
        if out_positive is not None:
            positive = q + k > 0
        s = tl.where(alive, s, float("-inf"))
        higher = tl.maximum(top, s)
        base = tl.where(higher == float("-inf"), 0.0, higher)
        shrink, weight = tl.exp(top - base), tl.exp(s - base)
        top = higher
        if SLICES:
            total = total * shrink + weight * tl.load(key + (here * H + head) * 2 + 1, alive, 0.0)
        else:
            total = total * shrink + weight
        if out_positive is not None:
            total_positive = total_positive * shrink + tl.where(positive, weight, 0.0)
        if seed is not None:
            weight *= multiplier(seed, here + before, head, threshold, scale, ACC)
        mixed = mixed * shrink[:, :, None] + weight[:, :, None] * v
        if out_positive is not None:
            weight = tl.where(positive, weight, 0.0)
            mixed_positive = mixed_positive * shrink[:, :, None] + weight[:, :, None] * v

    high = tl.max(top, 0)[None, :]
    weight = tl.exp(top - tl.where(high == float("-inf"), 0.0, high))
    sums = tl.sum(total * weight, 0)[None, :]
    tl.store(stats + place * 2, high, exists)
    tl.store(stats + place * 2 + 1, sums, exists)
    if not PARTIAL:
        weight /= tl.where(last > first, sums, 1.0)  # a row without edges gives zero
    where, wanted = at_channels(place, exists, D, BLOCK_D)
    tl.store(out + where, tl.sum(mixed * weight[:, :, None], 0)[None, :, :], wanted)
    if out_positive is not None:
        tl.store(out_positive + where, tl.sum(mixed_positive * weight[:, :, None], 0)[None, :, :], wanted)
        tl.store(alpha_positive + place, tl.sum(total_positive * weight, 0)[None, :], exists)
