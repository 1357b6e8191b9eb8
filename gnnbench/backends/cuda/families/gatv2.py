"""GATv2: <att, leaky_relu(query[i] + key[j])>, where key is value; `att` is left to two passes over the nodes."""

from __future__ import annotations

from torch import Tensor

from gnnbench.backends.cuda._base import acc_type, power_of_two, start, sums_in
from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.families import DeviceFamily

ELEMENTS = 2048  # a program holds at a time
PROGRAMS = 1024  # at most, that share the gradient of `att`


@jit
def score(query: tensor, key: tensor, att: tensor, SLOPE: constexpr) -> tensor:
    total = query + key
    return tl.sum(att * tl.where(total > 0, total, total * SLOPE), 2)


@jit
def gradient(grad_score: tensor, query: tensor, key: tensor, other: tensor, SLOPE: constexpr) -> tensor:
    total, grad = query + key, grad_score[:, :, None]
    return tl.where(total > 0, grad, grad * SLOPE)


@jit
def att_kernel(
    x: tensor,  # [count, F]
    att: tensor,  # [F]
    grad_value: tensor,  # [count, F], or None
    grad: tensor,  # [count, F]: short of att at first, then with it, and with grad_value
    partial: tensor,  # [programs, F]
    count: tensor,
    each: tensor,  # rows of a program
    F: constexpr,
    ACC: constexpr,
    BLOCK_F: constexpr,
    BLOCK: constexpr,
) -> tensor:
    """The gradient at one end, and that end's share in att's.

    leaky_relu(u) = leaky_relu'(u) * u, and so att's gradient is found in those of both ends.
    """
    begin = tl.program_id(0).to(tl.int64) * each
    end = tl.minimum(begin + each, count)
    f = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    a = tl.load(att + f, f < F, 0.0).to(ACC)
    acc = tl.zeros((BLOCK_F,), ACC)
    for first in range(0, each, BLOCK):
        row = begin + first + tl.arange(0, BLOCK)
        at, wanted = row[:, None] * F + f[None, :], (row < end)[:, None] & (f < F)[None, :]
        g = tl.load(grad + at, wanted, 0.0).to(ACC)
        acc += tl.sum(g * tl.load(x + at, wanted, 0.0).to(ACC), 0)
        g *= a[None, :]
        if grad_value is not None:
            g += tl.load(grad_value + at, wanted, 0.0).to(ACC)
        tl.store(grad + at, g, wanted)
    tl.store(partial + tl.program_id(0) * F + f, acc, f < F)


def completed(
    inputs: tuple[Tensor, ...], grad_query: Tensor, grad_key: Tensor, grad_value: Tensor
) -> tuple[Tensor, ...]:
    query, key, att = inputs
    grad_att = _through_att(query, att, grad_query) + _through_att(key, att, grad_key, grad_value)
    return grad_query, grad_key, grad_att.to(att.dtype)


def _through_att(x: Tensor, att: Tensor, grad: Tensor, grad_value: Tensor | None = None) -> Tensor:
    """The share of the gradient of `att` that is found at the end x, whose own gradient is completed in place."""
    count, width = x.size(0), att.numel()
    block_f = min(power_of_two(width), 128)
    block = ELEMENTS // block_f
    each = max(-(-count // PROGRAMS), block)
    programs, sums = -(-count // each), sums_in(x.dtype)
    partial = x.new_empty(programs, *att.shape, dtype=sums)
    sizes = {"F": width, "BLOCK_F": block_f, "BLOCK": block, "num_warps": 4}
    grid = programs, -(-width // block_f)
    start(att_kernel, grid, x, att, grad_value, grad, partial, count, each, ACC=acc_type(sums), **sizes)
    return partial.sum(0)


FAMILY = DeviceFamily(score, gradient, completed)
