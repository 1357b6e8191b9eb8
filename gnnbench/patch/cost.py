"""When the Graph of an adjacency that was not seen before costs less to build than it saves."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gnnbench.convs._cost import Price, Rates

MIN_GATHERED = 120_000  # numbers to gather, below which PyG is left alone unweighed; 0: nothing is weighed
CALLS = 4  # that have to save the price of a Graph, if one does not
REMEMBERED = 1 << 14  # adjacencies at most
# Without and with a backward: softmax over groups, which saves nothing on two values, and over groups given by
# where they start, which are checked in every call; products with a sparse matrix, which PyG transposes in every
# backward.
GROUPS = Rates(150_000, 35, -40_000, -18, 9), Rates(230_000, 45, -80_000, -24, 12)
STARTS = (Rates(0, 0, -150_000, -14, 5),) * 2
PRODUCT = Rates(0, 0, 0, 0, 0), Rates(220_000, 50, -110_000, 60, 0)


def of_groups(score: Tensor, *, starts: bool = False) -> Price:
    """For a softmax of score [E, H] over groups, given by where they start or by an index."""
    rates = STARTS if starts else GROUPS
    edges, width = score.shape
    return rates[score.requires_grad and torch.is_grad_enabled()].price(edges, width)


def of_product(edges: int, x: Tensor) -> Price:
    """For a product of a sparse matrix with x."""
    return PRODUCT[x.requires_grad and torch.is_grad_enabled()].price(edges, x.size(-1))


class Patience:
    """Adds up what a Graph would have saved in the calls that were left to PyG, until that repays the Graph.

    It has to be repaid several times over, so that no batch gets a Graph only at the last of the convs that it
    goes through.
    """

    def __init__(self) -> None:
        self._missed: dict[Any, float] = {}  # ns by contents, as a program may make equal edges in every call

    def worth(self, contents: Any, price: Price) -> bool:
        """Return whether a call on such edges is to have its Graph, as all calls after it then are."""
        if len(self._missed) >= REMEMBERED:
            self._missed.clear()
        missed = math.inf if price.saved >= price.build else self._missed.get(contents, 0.0) + price.saved
        self._missed[contents] = missed
        return missed >= CALLS * price.build
