"""Attention's values of single edges, for tiles whose pass over rows does not compute them as it goes."""

from __future__ import annotations

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.attention_parts import channels, ends, multiplier, operand, score, terms_of


@jit
def edge_kernel(
    row: tensor,  # [E] int64
    col: tensor,  # [E] int32
    query: tensor,  # [N, H] for GAT, [N, H, C] for GATv2 and dot
    key: tensor,  # [M, H], [M, H, C]
    value: tensor,  # [M, H, D]
    att: tensor,  # [H, C] for GATv2
    seed: tensor,  # [1] int64, or None for no dropout
    terms: tensor,  # [N, H, 3]: maximum, inverse of the sum, and delta; None in forward
    grad_out: tensor,  # [N, H, D]; None in forward
    out: tensor,  # [E, H]: scores; in backward [E, H, 2]: alpha after dropout, and gradients of scores
    count: tensor,  # E
    threshold: tensor,
    scale: tensor,
    FAMILY: constexpr,
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
    destination, source = tl.load(row + edge, live, 0) * H + head, ends(col, edge, live) * H + head
    a, place = head, edge * H + head
    if FAMILY == "gatv2":
        a = channels(att, head, live, C, BLOCK_C, ACC)
    q = operand(query, destination, live, FAMILY, C, BLOCK_C, ACC)
    k = operand(key, source, live, FAMILY, C, BLOCK_C, ACC)
    s = score(q, k, a, FAMILY, SLOPE)
    if terms is None:
        tl.store(out + place, s, live)
    else:
        v = k
        if FAMILY != "gatv2":
            v = channels(value, source, live, D, BLOCK_D, ACC)
        top, inverse, delta = terms_of(terms, destination, live)
        alpha = tl.exp(s - top) * inverse
        grad_alpha, dropped = tl.sum(channels(grad_out, destination, live, D, BLOCK_D, ACC) * v, 2), alpha
        if seed is not None:
            drop = multiplier(seed, edge, head, threshold, scale, ACC)
            grad_alpha, dropped = grad_alpha * drop, alpha * drop
        tl.store(out + place * 2, dropped, live)
        tl.store(out + place * 2 + 1, alpha * (grad_alpha - delta), live)
