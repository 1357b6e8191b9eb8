"""Dot product: <query[i], key[j]>."""

from __future__ import annotations

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.families import DeviceFamily


@jit
def score(query: tensor, key: tensor, att: tensor, SLOPE: constexpr) -> tensor:
    return tl.sum(query * key, 2)


@jit
def gradient(grad_score: tensor, query: tensor, key: tensor, other: tensor, SLOPE: constexpr) -> tensor:
    return grad_score[:, :, None] * other


FAMILY = DeviceFamily(score, gradient)
