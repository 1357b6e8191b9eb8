"""When the Graph of an adjacency that was not seen before costs less to build than it saves."""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor

FEW = 120_000  # numbers to gather, below which PyG is left alone without a further look; 0: nothing is weighed
CALLS = 4  # that have to save the price of a Graph, if one does not
REMEMBERED = 1 << 14  # adjacencies at most, the dead ones with them
NEVER = (lambda: None), 0.0


class Price(NamedTuple):
    """Nanoseconds: what a Graph costs once, and what each call then saves."""

    build: float
    saved: float


class Rates(NamedTuple):
    """Nanoseconds on one core: what a Graph costs, and what PyG takes longer than we with it."""

    build: int
    build_edge: int  # for each edge
    call: int
    edge: float  # for each edge and head
    value: float  # for each channel of all heads of an edge
    row: int = 0  # for each node and head

    def price(self, edges: int, values: int, heads: int = 1, rows: int = 0) -> Price:
        """Of a call on `rows` nodes, for each of whose `edges` PyG handles `values` numbers in `heads` heads."""
        build, build_edge, call, edge, value, row = self
        saved = call + edges * (heads * edge + values * value) + rows * heads * row
        return Price(build + edges * build_edge, saved)


# Without and with a backward, which wants the transpose. Measured on an Intel Xeon with AVX-512, on which builds
# take two to three times as long as on an AMD EPYC, on random graphs of 30 to 10,000 edges, few to a node, where
# we gain least: about the least that 16 and 64 channels saved. Graphs beyond the caches save much more.
SUM = Rates(110_000, 35, -65_000, 12, 0.45), Rates(220_000, 50, -110_000, 25, 1.0)
GCN = Rates(250_000, 55, 20_000, 50, 1.6), Rates(380_000, 70, 50_000, 125, 1.25)
ATTENTION = Rates(150_000, 45, 50_000, 16, 1.5, -55), Rates(250_000, 70, 70_000, 50, 2.8, -170)
# Softmax over groups, which saves nothing on two values, and over groups given by where they start, which are
# checked in every call; products with a sparse matrix, which PyG transposes in every backward.
GROUPS = Rates(150_000, 35, -40_000, -18, 9), Rates(230_000, 45, -80_000, -24, 12)
STARTS = (Rates(0, 0, -150_000, -14, 5),) * 2
PRODUCT = Rates(0, 0, 0, 0, 0), Rates(220_000, 50, -110_000, 60, 0)


def of_product(edges: int, x: Tensor) -> Price:
    """For a product of a sparse matrix with x."""
    return PRODUCT[x.requires_grad and torch.is_grad_enabled()].price(edges, x.size(-1))


class Patience:
    """What the calls that an adjacency was left to PyG for would have saved, until that repays its Graph well.

    It has to come several times as often as would just repay it, so that no batch gets a Graph by the last of the
    convs that it goes through.
    """

    def __init__(self) -> None:
        self._missed: dict[Any, tuple[Any, float]] = {}  # by address and part: who was seen there, and ns

    def worth(self, owner: Tensor, part: Any, price: Price) -> bool:
        """Whether a call on a part of `owner` is to have its Graph; once it is, so are all calls to come."""
        key = id(owner), part
        seen, missed = self._missed.get(key, NEVER)
        if seen() is not owner:
            if len(self._missed) >= REMEMBERED:
                self._missed.clear()
            seen, missed = weakref.ref(owner), 0.0
        missed = math.inf if price.saved >= price.build else missed + price.saved
        self._missed[key] = seen, missed
        # The Graph of an inference tensor cannot be kept, so that it has to pay in this very call.
        return missed >= CALLS * price.build and (price.saved >= price.build or not owner.is_inference())
