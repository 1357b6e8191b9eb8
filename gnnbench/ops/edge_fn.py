"""The functions of an edge's score that FusedMM knows, with their derivatives, in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

LEAKY_SLOPE = 0.2  # as GAT's


class EdgeFn(NamedTuple):
    """f and f', elementwise; neither overflows nor cancels where its result would not."""

    value: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


# Compiled kernels know them by their order here.
EDGE_FNS = {
    "identity": EdgeFn(lambda s: s, torch.ones_like),
    "sigmoid": EdgeFn(torch.sigmoid, lambda s: s.sigmoid() * (-s).sigmoid()),
    "exp": EdgeFn(torch.exp, torch.exp),
    "leaky_relu": EdgeFn(
        lambda s: F.leaky_relu(s, LEAKY_SLOPE), lambda s: torch.ones_like(s).masked_fill_(s <= 0, LEAKY_SLOPE)
    ),
    "tanh": EdgeFn(torch.tanh, lambda s: 4 * (2 * s).sigmoid() * (-2 * s).sigmoid()),
}
