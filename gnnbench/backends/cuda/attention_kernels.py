"""Attention on the device: a pass over the edges forward, and one from either end backward; none keeps edges.

A program holds U pairs of a segment and a head, and E edges of each: values are [E, U], with channels [E, U, C],
and E is 1 for those of a pair. Every place has its own sums, so that places exchange nothing until the last edge.
Neighbouring heads lie side by side: together they gather one piece of a node's row.

Forward is an online softmax, of which a maximum and a sum are kept. With alpha = exp(score - maximum) / sum, m
dropout's multiplier and delta = <grad_out, out>, backward finds an edge's
grad_score = alpha * (m * <grad_out[i], value[j]> - delta[i]), as in FlashAttention (Dao et al. 2022).
"""

from __future__ import annotations

from gnnbench.backends.cuda._base import ends
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl


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


@jit
def delta_kernel(
    out: tensor,  # [count, D], a row for each node and head
    stats: tensor,  # [count, 2]: maximum and sum of the softmax
    grad_out: tensor,  # [count, D]
    out_positive: tensor,  # [count, D] where it was kept, else None
    alpha_positive: tensor,  # [count]
    terms: tensor,  # [count, 3]: maximum, inverse of the sum, and delta = <grad_out, out>
    grad_score: tensor,  # [count], of destinations
    count: tensor,
    SLOPE: constexpr,
    D: constexpr,
    ACC: constexpr,
    BLOCK_D: constexpr,
    BLOCK: constexpr,
) -> tensor:
    """Compute what an edge needs of its destination, and, where `out_positive` was kept, the gradient of query.

    leaky_relu' is SLOPE, and 1 - SLOPE more on positive scores; a row's gradients of scores add up to 0.
    """
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]
    exists = pair < count
    g = channels(grad_out, pair, exists, D, BLOCK_D, ACC)
    delta = tl.sum(g * channels(out, pair, exists, D, BLOCK_D, ACC), 2)
    total = tl.load(stats + pair * 2 + 1, exists, 1.0)
    tl.store(terms + pair * 3, tl.load(stats + pair * 2, exists), exists)
    tl.store(terms + pair * 3 + 1, 1.0 / tl.where(total == 0, 1.0, total), exists)  # 0: no edges
    tl.store(terms + pair * 3 + 2, delta, exists)
    if out_positive is not None:
        positive = tl.sum(g * channels(out_positive, pair, exists, D, BLOCK_D, ACC), 2)
        grad = positive - delta * tl.load(alpha_positive + pair, exists, 0.0)
        tl.store(grad_score + pair, grad - grad * SLOPE, exists)


@jit
def gradient_kernel(
    begin: tensor,  # [count] int64: segment s is of the edges begin[s]:end[s], of the transpose if OF_KEY
    end: tensor,
    row: tensor,  # [count] int64, the row of a segment; None for the segment itself
    count: tensor,
    longest: tensor,  # edges of a segment, above which it is left out
    col: tensor,  # [E] int32
    perm: tensor,  # [E] int32, the edge of the graph, if OF_KEY with dropout or `edges`; else None
    query: tensor,  # [N, H, C], or [N, H] if NUMBER
    key: tensor,  # [M, H, C], [M, H]
    value: tensor,  # [M, H, D]
    att: tensor,  # [H, C], [H], or None
    seed: tensor,  # [1] int64, or None for no dropout
    terms: tensor,  # [N, H, 3]: maximum, inverse of the sum, and delta
    edges: tensor,  # [E, H, 2]: what `edge_kernel` found; None where that is computed here
    grad_out: tensor,  # [N, H, D]
    grad: tensor,  # [R, H, C], [R, H]; R rows, or segments if PARTIAL
    grad_value: tensor,  # [R, H, D] if OF_KEY, and if SHARED short of what goes through the key; else None
    before: tensor,  # edges of other processes, which count first where weights are dropped
    threshold: tensor,
    scale: tensor,
    OF_KEY: constexpr,  # whether rows are the sources, whose keys and values get gradients, not the queries
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
    """The gradient of query, or those of key and value, short of what `completed` adds."""
    pair, place, head, first, last, exists = pairs(begin, end, row, count, longest, H, BLOCK_H, UNITS, PARTIAL)
    a = head
    if att is not None:
        a = operand(att, head, exists, NUMBER, C, BLOCK_C, ACC)
    if OF_KEY:
        k = operand(key, pair, exists, NUMBER, C, BLOCK_C, ACC)
        v = k
        if not SHARED:
            v = channels(value, pair, exists, D, BLOCK_D, ACC)
        acc_value = tl.zeros((EDGES, UNITS, BLOCK_D), ACC)
    else:
        q = operand(query, pair, exists, NUMBER, C, BLOCK_C, ACC)
        if edges is None:
            g = channels(grad_out, pair, exists, D, BLOCK_D, ACC)
            top, inverse, delta = terms_of(terms, pair, exists)
    acc = tl.zeros((EDGES, UNITS), ACC) if NUMBER else tl.zeros((EDGES, UNITS, BLOCK_C), ACC)
    edge = first + tl.arange(0, EDGES)[:, None]
    live = edge < last
    node = ends(col, edge, live)
    for _ in range(0, tl.max(last - first), EDGES):
        here, of, alive = edge, node * H + head, live
        edge += EDGES
        live = edge < last
        node = ends(col, edge, live)  # of the next round: its gathers need not wait for it
        if OF_KEY:
            g = channels(grad_out, of, alive, D, BLOCK_D, ACC)
            q = operand(query, of, alive, NUMBER, C, BLOCK_C, ACC)
        else:
            k = operand(key, of, alive, NUMBER, C, BLOCK_C, ACC)
        if edges is None:
            if OF_KEY:
                top, inverse, delta = terms_of(terms, of, alive)
            else:
                v = k
                if not SHARED:
                    v = channels(value, of, alive, D, BLOCK_D, ACC)
            alpha = tl.where(alive, tl.exp(SCORE(q, k, a, SLOPE) - top) * inverse, 0.0)
            grad_alpha, dropped = tl.sum(g * v, 2), alpha
            if seed is not None:
                number = ends(perm, here, alive) + before
                drop = multiplier(seed, number, head, threshold, scale, ACC)
                grad_alpha, dropped = grad_alpha * drop, alpha * drop
            grad_score = alpha * (grad_alpha - delta)
        else:
            known = edges + (ends(perm, here, alive) * H + head) * 2
            dropped, grad_score = tl.load(known, alive, 0.0), tl.load(known + 1, alive, 0.0)
        if OF_KEY:
            acc += GRADIENT(grad_score, q, k, q, SLOPE)
            acc_value += dropped[:, :, None] * g
        else:
            acc += GRADIENT(grad_score, q, k, k, SLOPE)

    store_gradient(grad, place, exists, acc, NUMBER, C, BLOCK_C)
    if OF_KEY:
        store_gradient(grad_value, place, exists, acc_value, False, D, BLOCK_D)


@jit
def pairs(
    begin: tensor,  # [count] int64: segment s is of the edges begin[s]:end[s]
    end: tensor,
    row: tensor,  # [count] int64, the row of a segment; None for the segment itself
    count: tensor,
    longest: tensor,  # edges of a segment, above which it is left out
    H: constexpr,
    BLOCK_H: constexpr,
    UNITS: constexpr,
    PARTIAL: constexpr,  # whether results are of segments, not of rows
) -> tensor:
    """[1, U] each: places in [rows, H] of the program's pairs and of their results, heads, first edges, ends of
    edges, and which pairs there are."""
    unit = tl.program_id(0).to(tl.int64) * UNITS + tl.arange(0, UNITS)[None, :]
    segment, head = unit // BLOCK_H, unit % BLOCK_H
    exists = (segment < count) & (head < H)
    first, last = tl.load(begin + segment, exists, 0), tl.load(end + segment, exists, 0)
    exists &= last - first <= longest
    node = segment
    if row is not None:
        node = tl.load(row + segment, exists, 0)
    place = node
    if PARTIAL:
        place = segment
    # Of numbers, as a choice by `exists` fails to compile for some tiles (Triton 3.6).
    last *= 1 - tl.minimum(tl.maximum(last - first - longest, 0), 1)
    return node * H + head, place * H + head, head, first, last, exists


@jit
def channels(x: tensor, pair: tensor, exists: tensor, C: constexpr, BLOCK_C: constexpr, ACC: constexpr) -> tensor:
    """x[pair] of x [., C], zero where there is none."""
    where, wanted = at_channels(pair, exists, C, BLOCK_C)
    return tl.load(x + where, wanted, 0.0).to(ACC)


@jit
def at_channels(pair: tensor, exists: tensor, C: constexpr, BLOCK_C: constexpr) -> tensor:
    """Where the channels of pairs are in [., C], and which there are."""
    c = tl.arange(0, BLOCK_C)[None, None, :]
    return pair[:, :, None] * C + c, exists[:, :, None] & (c < C)


@jit
def operand(
    x: tensor, pair: tensor, exists: tensor, NUMBER: constexpr, C: constexpr, BLOCK_C: constexpr, ACC: constexpr
) -> tensor:
    """Gather what an end of an edge brings to its score: a number, or channels."""
    return tl.load(x + pair, exists, 0.0).to(ACC) if NUMBER else channels(x, pair, exists, C, BLOCK_C, ACC)


@jit
def store_gradient(
    x: tensor, pair: tensor, exists: tensor, grad: tensor, NUMBER: constexpr, C: constexpr, BLOCK_C: constexpr
) -> tensor:
    """x[pair] = the sum of `grad` over its edges."""
    if NUMBER:
        tl.store(x + pair, tl.sum(grad, 0)[None, :], exists)
    else:
        where, wanted = at_channels(pair, exists, C, BLOCK_C)
        tl.store(x + where, tl.sum(grad, 0)[None, :, :], wanted)


@jit
def terms_of(terms: tensor, pair: tensor, exists: tensor) -> tensor:
    """Maximum, inverse of the sum and delta, of terms [., 3]; where there is none exp(score - maximum) is zero."""
    top, inverse = tl.load(terms + pair * 3, exists, float("inf")), tl.load(terms + pair * 3 + 1, exists, 0.0)
    return top, inverse, tl.load(terms + pair * 3 + 2, exists, 0.0)


@jit
def multiplier(
    seed: tensor, edge: tensor, head: tensor, threshold: tensor, scale: tensor, ACC: constexpr
) -> tensor:
    """Compute the factor of an edge's weight under dropout, as `ops.dropout.Dropout.multiplier` has it.

    `scale` comes as the bits of a float64: a kernel's arguments are rounded to float32 if they are floats.
    """
    words = tl.load(seed)
    low, high = words.to(tl.uint32), (words >> 32).to(tl.uint32)
    hashed = _mixed((_mixed(edge.to(tl.uint32) ^ low) + head.to(tl.uint32)) ^ high)
    kept = scale.to(tl.int64).to(tl.float64, bitcast=True).to(ACC)
    return tl.where(hashed.to(tl.int64) >= threshold, kept, 0.0)


@jit
def _mixed(x: tensor) -> tensor:
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)
