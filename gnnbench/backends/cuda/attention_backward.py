"""Attention backward: a pass over every destination's edges and one over every source's; nothing is kept per edge.

With alpha = exp(score - maximum) / sum, m dropout's multiplier and delta = <grad_out, out>, an edge's
grad_score = alpha * (m * <grad_out[i], value[j]> - delta[i]), as in FlashAttention (Dao et al. 2022).
"""

from __future__ import annotations

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.attention_parts import (
    at_channels,
    channels,
    ends,
    grad_operand,
    multiplier,
    operand,
    pairs,
    score,
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
    query: tensor,  # [N, H, C]
    key: tensor,  # [M, H, C]
    value: tensor,  # [M, H, D]
    att: tensor,  # [H, C] for GATv2
    seed: tensor,  # [1] int64, or None for no dropout
    terms: tensor,  # [N, H, 3]: maximum, inverse of the sum, and delta
    edges: tensor,  # [E, H, 2]: what `edge_kernel` found; None where that is computed here
    grad_out: tensor,  # [N, H, D]
    grad: tensor,  # [R, H, C], R rows, or segments if PARTIAL; of GATv2 short of att
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
    EDGES: constexpr,
    PARTIAL: constexpr,
) -> tensor:
    """The gradient of query, of GATv2 and dot."""
    pair, place, head, first, last, exists = pairs(begin, end, row, count, longest, H, BLOCK_H, UNITS, PARTIAL)
    q, a = channels(query, pair, exists, C, BLOCK_C, ACC), head
    if FAMILY == "gatv2":
        a = channels(att, head, exists, C, BLOCK_C, ACC)
    if edges is None:
        g = channels(grad_out, pair, exists, D, BLOCK_D, ACC)
        top, inverse, delta = terms_of(terms, pair, exists)
    acc = tl.zeros((EDGES, UNITS, BLOCK_C), ACC)
    edge = first + tl.arange(0, EDGES)[:, None]
    live = edge < last
    source = ends(col, edge, live)
    for _ in range(0, tl.max(last - first), EDGES):
        this_edge, other_pair, alive = edge, source * H + head, live
        edge += EDGES
        live = edge < last
        source = ends(col, edge, live)  # of the next round: its gathers need not wait for it
        k = channels(key, other_pair, alive, C, BLOCK_C, ACC)
        if edges is None:
            v = k
            if FAMILY == "dot":
                v = channels(value, other_pair, alive, D, BLOCK_D, ACC)
            alpha = tl.where(alive, tl.exp(score(q, k, a, FAMILY, SLOPE) - top) * inverse, 0.0)
            grad_alpha = tl.sum(g * v, 2)
            if seed is not None:
                grad_alpha *= multiplier(seed, this_edge, head, threshold, scale, ACC)
            grad_score = alpha * (grad_alpha - delta)
        else:
            grad_score = tl.load(edges + (this_edge * H + head) * 2 + 1, alive, 0.0)
        acc += grad_operand(grad_score, q, k, k, FAMILY, SLOPE)

    where, wanted = at_channels(place, exists, C, BLOCK_C)
    tl.store(grad + where, tl.sum(acc, 0)[None, :, :], wanted)


@jit
def grad_key_kernel(
    begin: tensor,  # as of `grad_query_kernel`, of the transpose: its rows are the sources
    end: tensor,
    row: tensor,  # [count] int64, the row of a segment; None for the segment itself
    count: tensor,
    longest: tensor,  # edges of a segment, above which it is left out
    col: tensor,
    perm: tensor,  # [E] int32, the edge of the graph, with dropout or `edges`
    query: tensor,  # [N, H] for GAT, [N, H, C] for GATv2 and dot
    key: tensor,  # [M, H], [M, H, C]
    value: tensor,
    att: tensor,
    seed: tensor,
    terms: tensor,
    edges: tensor,
    grad_out: tensor,
    grad: tensor,  # [R, H], [R, H, C], of GATv2 short of att
    grad_value: tensor,  # [R, H, D]; of GATv2 short of what goes through the key
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
    EDGES: constexpr,
    PARTIAL: constexpr,
) -> tensor:
    """The gradients of key and value."""
    pair, place, head, first, last, exists = pairs(begin, end, row, count, longest, H, BLOCK_H, UNITS, PARTIAL)
    k, a = operand(key, pair, exists, FAMILY, C, BLOCK_C, ACC), head
    v = k
    if FAMILY == "gatv2":
        a = channels(att, head, exists, C, BLOCK_C, ACC)
    else:
        v = channels(value, pair, exists, D, BLOCK_D, ACC)
    acc_value = tl.zeros((EDGES, UNITS, BLOCK_D), ACC)
    acc = acc_value
    if FAMILY == "gat":
        acc = tl.zeros((EDGES, UNITS), ACC)
    elif FAMILY == "dot":
        acc = tl.zeros((EDGES, UNITS, BLOCK_C), ACC)
    edge = first + tl.arange(0, EDGES)[:, None]
    live = edge < last
    node = ends(col, edge, live)
    for _ in range(0, tl.max(last - first), EDGES):
        this_edge, other_pair, alive = edge, node * H + head, live
        edge += EDGES
        live = edge < last
        node = ends(col, edge, live)  # of the next round: its gathers need not wait for it
        g = channels(grad_out, other_pair, alive, D, BLOCK_D, ACC)
        q = operand(query, other_pair, alive, FAMILY, C, BLOCK_C, ACC)
        if edges is None:
            top, inverse, delta = terms_of(terms, other_pair, alive)
            alpha = tl.where(alive, tl.exp(score(q, k, a, FAMILY, SLOPE) - top) * inverse, 0.0)
            grad_alpha, dropped = tl.sum(g * v, 2), alpha
            if seed is not None:
                drop = multiplier(seed, tl.load(perm + this_edge, alive, 0), head, threshold, scale, ACC)
                grad_alpha, dropped = grad_alpha * drop, alpha * drop
            grad_score = alpha * (grad_alpha - delta)
        else:
            known = edges + (ends(perm, this_edge, alive) * H + head) * 2
            dropped, grad_score = tl.load(known, alive, 0.0), tl.load(known + 1, alive, 0.0)
        acc += grad_operand(grad_score, q, k, q, FAMILY, SLOPE)
        acc_value += dropped[:, :, None] * g

    if FAMILY == "gat":
        tl.store(grad + place, tl.sum(acc, 0)[None, :], exists)
    else:
        where, wanted = at_channels(place, exists, C, BLOCK_C)
        tl.store(grad + where, tl.sum(acc, 0)[None, :, :], wanted)
    where, wanted = at_channels(place, exists, D, BLOCK_D)
    tl.store(grad_value + where, tl.sum(acc_value, 0)[None, :, :], wanted)
