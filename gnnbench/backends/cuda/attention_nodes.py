"""Kernels of attention's backward per node, before its passes over the edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gnnbench.backends.cuda._base import start, triton_type
from gnnbench.backends.cuda._tile import power_of_two
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.attention_parts import channels

ELEMENTS = 2048  # a program holds at a time


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
