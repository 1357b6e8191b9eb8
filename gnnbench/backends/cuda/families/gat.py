"""GAT: leaky_relu(query[i] + key[j]), of numbers."""

from __future__ import annotations

from gnnbench.backends.cuda._triton import constexpr, jit, tensor, tl
from gnnbench.backends.cuda.families import DeviceFamily


@jit
def score(query: tensor, key: tensor, att: tensor, SLOPE: constexpr) -> tensor:
    total = query + key
    return tl.where(total > 0, total, total * SLOPE)


@jit
def gradient(grad_score: tensor, query: tensor, key: tensor, other: tensor, SLOPE: constexpr) -> tensor:
    return tl.where(query + key > 0, grad_score, grad_score * SLOPE)


FAMILY = DeviceFamily(score, gradient)
