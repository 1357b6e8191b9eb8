"""Scores of the heads of nodes, which attention adds up at every edge."""

from __future__ import annotations

from torch import Tensor

from gnnbench.ops._custom import Pair
from gnnbench.ops.kernels import Kernels


def head_scores(kernels: Kernels, x: Tensor, att: Tensor) -> Tensor:
    """out[k, n, h] = <x[n, h], att[k, h]>, for all k in one pass over x.

    Not a torch custom op, which costs more to call.

    Args:
        x: [N, H, C], floating point.
        att: [K, H, C], of the type of x.

    Returns:
        [K, N, H], differentiable in both.
    """
    out: Tensor = Pair.apply("head_scores", kernels, x, att)
    return out
