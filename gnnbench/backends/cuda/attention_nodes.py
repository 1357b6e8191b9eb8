"""The work of attention's backward per node, before and after its passes over the edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gnnbench.backends.cuda._base import start, sums_in, triton_type
from gnnbench.backends.cuda._tile import power_of_two
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.attention_parts import channels

ELEMENTS = 2048  # a program holds at a time
PROGRAMS = 1024  # at most, that share the gradient of `att`


@jit
def delta_kernel(
    out: tensor,  # [count, D], a row for each node and head
    stats: tensor,  # [count, 2]: maximum and sum of the softmax
    grad_out: tensor,  # [count, D]
    out_positive: tensor,  # [count, D] of GAT, else None
    alpha_positive: tensor,  # [count]
    terms: tensor,  # [count, 3]: maximum, inverse of the sum, and delta = <grad_out, out>
    grad_score: tensor,  # [count], of GAT's destinations
    count: tensor,
    SLOPE: constexpr,
    D: constexpr,
    ACC: constexpr,
    BLOCK_D: constexpr,
    BLOCK: constexpr,
) -> tensor:
    """The terms that an edge needs of its destination, and the gradient of GAT's score_dst.

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
def att_kernel(
    x: tensor,  # [count, F]
    att: tensor,  # [F]
    grad_value: tensor,  # [count, F], or None
    grad: tensor,  # [count, F]: short of att at first, then with it, and with grad_value
    partial: tensor,  # [programs, F]
    count: tensor,
    rows_each: tensor,  # rows of a program
    F: constexpr,
    ACC: constexpr,
    BLOCK_F: constexpr,
    BLOCK: constexpr,
) -> tensor:
    """GATv2's gradient at one end, and that end's share in att's.

    leaky_relu(u) = leaky_relu'(u) * u, and so att's gradient is found in those of both ends.
    """
    begin = tl.program_id(0).to(tl.int64) * rows_each
    end = tl.minimum(begin + rows_each, count)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    a = tl.load(att + f, f < F, 0.0).to(ACC)
    acc = tl.zeros((BLOCK_F,), ACC)
    for first in range(0, rows_each, BLOCK):
        row = begin + first + tl.arange(0, BLOCK)
        at, wanted = row[:, None] * F + f[None, :], (row < end)[:, None] & (f < F)[None, :]
        g = tl.load(grad + at, wanted, 0.0).to(ACC)
        acc += tl.sum(g * tl.load(x + at, wanted, 0.0).to(ACC), 0)
        g *= a[None, :]
        if grad_value is not None:
            g += tl.load(grad_value + at, wanted, 0.0).to(ACC)
        tl.store(grad + at, g, wanted)
    tl.store(partial + tl.program_id(0) * F + f, acc, f < F)


def with_delta(
    stats: Tensor, out: Tensor, grad_out: Tensor, positive: Sequence[Tensor], grad_score: Tensor, slope: float
) -> Tensor:
    """[N, H, 3]: what edges read of destinations; where `positive` was kept, query's gradient is `grad_score`."""
    terms, width = stats.new_empty(*out.shape[:2], 3), out.size(2)
    block_d = power_of_two(width)
    block, sums = max(ELEMENTS // block_d, 1), triton_type(stats.dtype)
    of_scores = (*positive, terms, grad_score) if positive else (None, None, terms, None)
    sizes: dict[str, Any] = {"D": width, "BLOCK_D": block_d, "BLOCK": block, "num_warps": 4}
    sizes["SLOPE"] = slope if positive else 1.0
    count = out.size(0) * out.size(1)
    start(delta_kernel, (-(-count // block),), out, stats, grad_out, *of_scores, count, ACC=sums, **sizes)
    return terms


def through_att(x: Tensor, att: Tensor, grad: Tensor, grad_value: Tensor | None = None) -> Tensor:
    """The share of the gradient of `att` that is found at the end x, whose own gradient is completed in place."""
    count, width = x.size(0), att.numel()
    block_f = min(power_of_two(width), 128)
    block = ELEMENTS // block_f
    rows_each = max(-(-count // PROGRAMS), block)
    programs, sums = -(-count // rows_each), sums_in(x.dtype)
    partial = x.new_empty(programs, *att.shape, dtype=sums)
    sizes = {"F": width, "BLOCK_F": block_f, "BLOCK": block, "num_warps": 4}
    grid = programs, -(-width // block_f)
    start(att_kernel, grid, x, att, grad_value, grad, partial, count, rows_each, ACC=triton_type(sums), **sizes)
    return partial.sum(0)
