"""Attention backward: a pass over every destination's edges and one over every source's; nothing is kept per edge.

With alpha = exp(score - maximum) / sum, m dropout's multiplier and delta = <grad_out, out>, an edge's
grad_score = alpha * (m * <grad_out[i], value[j]> - delta[i]), as in FlashAttention (Dao et al. 2022).
"""

from __future__ import annotations

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.attention_parts import (
    channels,
    ends,
    multiplier,
    no_gradient,
    operand,
    pairs,
    store_gradient,
    terms_of,
)


@jit
def grad_query_kernel(
    begin: tensor,  # [count] int64: segment s is of the edges begin[s]:end[s]
    end: tensor,
    row: tensor,  # [count] int64, the row of a segment; None for the segment itself
    count: tensor,
    longest: tensor,  # edges of a segment, above which it is left out
    col: tensor,  # [E] int32
    query: tensor,  # [N, H, C], or [N, H] if NUMBER
    key: tensor,  # [M, H, C], [M, H]
    value: tensor,  # [M, H, D]
    att: tensor,  # [H, C], [H], or None
    seed: tensor,  # [1] int64, or None for no dropout
    terms: tensor,  # [N, H, 3]: maximum, inverse of the sum, and delta
    edges: tensor,  # [E, H, 2]: what `edge_kernel` found; None where that is computed here
    grad_out: tensor,  # [N, H, D]
    grad: tensor,  # [R, H, C], [R, H]; R rows, or segments if PARTIAL
    before: tensor,  # edges of other processes, which count first where weights are dropped
    threshold: tensor,
    scale: tensor,
    SCORE: constexpr,  # of `DeviceFamily`
    GRADIENT: constexpr,
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
    EDGES: constexpr,
    PARTIAL: constexpr,
) -> tensor:
    """The gradient of query, short of what `completed` adds."""
    pair, place, head, first, last, exists = pairs(begin, end, row, count, longest, H, BLOCK_H, UNITS, PARTIAL)
    q, a = operand(query, pair, exists, NUMBER, C, BLOCK_C, ACC), head
    if att is not None:
        a = operand(att, head, exists, NUMBER, C, BLOCK_C, ACC)
    if edges is None:
        g = channels(grad_out, pair, exists, D, BLOCK_D, ACC)
        top, inverse, delta = terms_of(terms, pair, exists)
    acc = no_gradient(EDGES, UNITS, NUMBER, BLOCK_C, ACC)
    edge = first + tl.arange(0, EDGES)[:, None]
    live = edge < last
    source = ends(col, edge, live)
    for _ in range(0, tl.max(last - first), EDGES):
        here, of, alive = edge, source * H + head, live
        edge += EDGES
        live = edge < last
        source = ends(col, edge, live)  # of the next round: its gathers need not wait for it
        k = operand(key, of, alive, NUMBER, C, BLOCK_C, ACC)
        if edges is None:
            v = k
            if not SHARED:
                v = channels(value, of, alive, D, BLOCK_D, ACC)
            alpha = tl.where(alive, tl.exp(SCORE(q, k, a, SLOPE) - top) * inverse, 0.0)
            grad_alpha = tl.sum(g * v, 2)
            if seed is not None:
                grad_alpha *= multiplier(seed, here + before, head, threshold, scale, ACC)
            grad_score = alpha * (grad_alpha - delta)
        else:
            grad_score = tl.load(edges + (here * H + head) * 2 + 1, alive, 0.0)
        acc += GRADIENT(grad_score, q, k, k, SLOPE)

    store_gradient(grad, place, exists, acc, NUMBER, C, BLOCK_C)


@jit
def grad_key_kernel(
    begin: tensor,  # as of `grad_query_kernel`, of the transpose: its rows are the sources
    end: tensor,
    row: tensor,  # [count] int64, the row of a segment; None for the segment itself
    count: tensor,
    longest: tensor,  # edges of a segment, above which it is left out
    col: tensor,
    perm: tensor,  # [E] int32, the edge of the graph, with dropout or `edges`
    query: tensor,  # [N, H, C], or [N, H] if NUMBER
    key: tensor,  # [M, H, C], [M, H]
    value: tensor,  # [M, H, D]
    att: tensor,
    seed: tensor,
    terms: tensor,
    edges: tensor,
    grad_out: tensor,
    grad: tensor,  # [R, H, C], [R, H]
    grad_value: tensor,  # [R, H, D]; if SHARED short of what goes through the key
    before: tensor,  # edges of other processes, which count first where weights are dropped
    threshold: tensor,
    scale: tensor,
    SCORE: constexpr,  # of `DeviceFamily`
    GRADIENT: constexpr,
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
    EDGES: constexpr,
    PARTIAL: constexpr,
) -> tensor:
    """The gradients of key and value, short of what `completed` adds."""
    pair, place, head, first, last, exists = pairs(begin, end, row, count, longest, H, BLOCK_H, UNITS, PARTIAL)
    k, a = operand(key, pair, exists, NUMBER, C, BLOCK_C, ACC), head
    v = k
    if att is not None:
        a = operand(att, head, exists, NUMBER, C, BLOCK_C, ACC)
    if not SHARED:
        v = channels(value, pair, exists, D, BLOCK_D, ACC)
    acc_value = tl.zeros((EDGES, UNITS, BLOCK_D), ACC)
    acc = no_gradient(EDGES, UNITS, NUMBER, BLOCK_C, ACC)
    edge = first + tl.arange(0, EDGES)[:, None]
    live = edge < last
    node = ends(col, edge, live)
    for _ in range(0, tl.max(last - first), EDGES):
        here, of, alive = edge, node * H + head, live
        edge += EDGES
        live = edge < last
        node = ends(col, edge, live)  # of the next round: its gathers need not wait for it
        g = channels(grad_out, of, alive, D, BLOCK_D, ACC)
        q = operand(query, of, alive, NUMBER, C, BLOCK_C, ACC)
        if edges is None:
            top, inverse, delta = terms_of(terms, of, alive)
            alpha = tl.where(alive, tl.exp(SCORE(q, k, a, SLOPE) - top) * inverse, 0.0)
            grad_alpha, dropped = tl.sum(g * v, 2), alpha
            if seed is not None:
                drop = multiplier(seed, tl.load(perm + here, alive, 0) + before, head, threshold, scale, ACC)
                grad_alpha, dropped = grad_alpha * drop, alpha * drop
            grad_score = alpha * (grad_alpha - delta)
        else:
            known = edges + (ends(perm, here, alive) * H + head) * 2
            dropped, grad_score = tl.load(known, alive, 0.0), tl.load(known + 1, alive, 0.0)
        acc += GRADIENT(grad_score, q, k, q, SLOPE)
        acc_value += dropped[:, :, None] * g

    store_gradient(grad, place, exists, acc, NUMBER, C, BLOCK_C)
    store_gradient(grad_value, place, exists, acc_value, False, D, BLOCK_D)
