"""Device functions of attention for one edge by itself, where no pass over rows computes them as it goes."""

from __future__ import annotations

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.attention_parts import channels, ends, multiplier, operand, terms_of


@jit
def edge_kernel(
    row: tensor,  # [E] int64
    col: tensor,  # [E] int32
    query: tensor,  # [N, H, C], or [N, H] if NUMBER
    key: tensor,  # [M, H, C], [M, H]
    value: tensor,  # [M, H, D]
    att: tensor,  # [H, C], [H], or None
    seed: tensor,  # [1] int64, or None for no dropout
    terms: tensor,  # [N, H, 3]: maximum, inverse of the sum, and delta; None in forward
    grad_out: tensor,  # [N, H, D]; None in forward
    found: tensor,  # [E, H]: scores; in backward [E, H, 2]: alpha after dropout, and gradients of scores
    count: tensor,  # E
    before: tensor,  # edges of other processes, which count first where weights are dropped
    threshold: tensor,
    scale: tensor,
    SCORE: constexpr,  # of `DeviceFamily`
    NUMBER: constexpr,  # whether an end brings a number to a score, not channels
    SHARED: constexpr,  # whether key is value
    SLOPE: constexpr,
    H: constexpr,
    C: constexpr,
    D: constexpr,
    ACC: constexpr,
    BLOCK_H: constexpr,
    BLOCK_C: constexpr,
    BLOCK_D: constexpr,
    UNITS: constexpr,
) -> tensor:
    """Scores, or what they and the weights contribute to the gradients."""
    unit = tl.program_id(0).to(tl.int64) * UNITS + tl.arange(0, UNITS)[None, :]
    edge, head = unit // BLOCK_H, unit % BLOCK_H
    live = (edge < count) & (head < H)
    node, of = tl.load(row + edge, live, 0) * H + head, ends(col, edge, live) * H + head
    a, place = head, edge * H + head
    if att is not None:
        a = operand(att, head, live, NUMBER, C, BLOCK_C, ACC)
    q = operand(query, node, live, NUMBER, C, BLOCK_C, ACC)
    k = operand(key, of, live, NUMBER, C, BLOCK_C, ACC)
    s = SCORE(q, k, a, SLOPE)
    if terms is None:
        tl.store(found + place, s, live)
    else:
        v = k
        if not SHARED:
            v = channels(value, of, live, D, BLOCK_D, ACC)
        top, inverse, delta = terms_of(terms, node, live)
        alpha = tl.exp(s - top) * inverse
        grad_alpha, dropped = tl.sum(channels(grad_out, node, live, D, BLOCK_D, ACC) * v, 2), alpha
        if seed is not None:
            drop = multiplier(seed, edge + before, head, threshold, scale, ACC)
            grad_alpha, dropped = grad_alpha * drop, alpha * drop
        tl.store(found + place * 2, dropped, live)
        tl.store(found + place * 2 + 1, alpha * (grad_alpha - delta), live)
