"""Device functions that attention kernels share: the rows of a program, gathers, and dropout.

A program holds U pairs of a segment and a head, and E edges of each: values are [E, U], with channels [E, U, C],
and E is 1 for those of a pair. Every place has its own sums, so that places exchange nothing until the last edge.
Neighbouring heads lie side by side: together they gather one piece of a node's row.
"""

from __future__ import annotations

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl


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
    return node * H + head, place * H + head, head, first, tl.where(exists, last, 0), exists


@jit
def ends(col: tensor, edge: tensor, live: tensor) -> tensor:
    """The node at the other end of every edge; without `col`, the edge itself."""
    node = edge
    if col is not None:
        node = tl.load(col + edge, live, 0).to(tl.int64)
    return node


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
def no_gradient(
    EDGES: constexpr, UNITS: constexpr, NUMBER: constexpr, BLOCK_C: constexpr, ACC: constexpr
) -> tensor:
    """Zeros, to which the gradients of an operand are added."""
    return tl.zeros((EDGES, UNITS), ACC) if NUMBER else tl.zeros((EDGES, UNITS, BLOCK_C), ACC)


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
