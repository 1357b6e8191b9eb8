"""When the Graph of an adjacency that was not seen before costs less to build than it saves."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from gnnbench.adjacency import MAX_PARTS, Adjacency, owner, part

# Nanoseconds on one core of an AMD EPYC with AVX-512: building a Graph (and, for a backward, its transpose) of
# random edges, and the least that a sum over them was faster than PyG's, from 1,000 to 1,000,000 edges and from 16
# to 256 channels. Fewer channels save more per channel; larger graphs, whose rows leave the caches, much more.
BUILD_NS, BUILD_NS_PER_EDGE = 34_000, 25
TRAIN_BUILD_NS, TRAIN_BUILD_NS_PER_EDGE = 57_000, 39
SAVED_NS_PER_MESSAGE, TRAIN_SAVED_NS_PER_MESSAGE = 1.0, 2.5

# The same of a softmax over groups: the least that each value of an edge beyond its second saved, and what a call
# of ours costs more. Then of groups given by where they start, which are checked in every call; and of sparse
# matrices in training, for without a gradient PyG's product is as fast as ours.
SAVED_NS_PER_VALUE, TRAIN_SAVED_NS_PER_VALUE = 12, 17
CALL_NS, TRAIN_CALL_NS = 40_000, 100_000
ROWS_NS, ROWS_NS_PER_EDGE, ROWS_SAVED_NS_PER_VALUE = 150_000, 4, 5
SAVED_NS_PER_ENTRY = 60


class Price(NamedTuple):
    """Nanoseconds: what a Graph costs once, and what each call then saves."""

    build: float
    saved: float


def of_messages(edges: int, width: int) -> Price:
    """For a sum over `edges` edges, for each of which PyG gathers `width` channels."""
    if torch.is_grad_enabled():
        build = TRAIN_BUILD_NS + edges * TRAIN_BUILD_NS_PER_EDGE
        return Price(build, edges * width * TRAIN_SAVED_NS_PER_MESSAGE)
    return Price(BUILD_NS + edges * BUILD_NS_PER_EDGE, edges * width * SAVED_NS_PER_MESSAGE)


def of_groups(edges: int, width: int, *, sort: bool = True) -> Price:
    """For a softmax of `width` values for each of `edges` edges, whose groups are to be sorted or already are."""
    if not sort:
        return Price(ROWS_NS + edges * ROWS_NS_PER_EDGE, edges * (width - 2) * ROWS_SAVED_NS_PER_VALUE)
    if torch.is_grad_enabled():
        build = TRAIN_BUILD_NS + edges * TRAIN_BUILD_NS_PER_EDGE
        return Price(build, edges * (width - 2) * TRAIN_SAVED_NS_PER_VALUE - TRAIN_CALL_NS)
    build = BUILD_NS + edges * BUILD_NS_PER_EDGE
    return Price(build, edges * (width - 2) * SAVED_NS_PER_VALUE - CALL_NS)


def of_products(edges: int) -> Price:
    """For a product with a sparse matrix of `edges` entries, which PyG has to transpose in every backward."""
    build = TRAIN_BUILD_NS + edges * TRAIN_BUILD_NS_PER_EDGE
    return Price(build, edges * SAVED_NS_PER_ENTRY - TRAIN_CALL_NS if torch.is_grad_enabled() else 0.0)


class Patience:
    """Calls that an adjacency was left to PyG for, until they would have paid for its Graph.

    So nothing costs more than twice what the better choice would have, however often an adjacency comes.
    """

    def __init__(self) -> None:
        self._missed: Any = WeakTensorKeyDictionary()  # owner of an adjacency -> {its part: ns}

    def worth(self, adjacency: Adjacency, price: Price) -> bool:
        """Whether to build the Graph of `adjacency` for this call."""
        parts, key = self._missed.setdefault(owner(adjacency), {}), part(adjacency)
        if len(parts) > MAX_PARTS:
            parts.clear()
        parts[key] = missed = price.saved + (0.0 if price.saved >= price.build else parts.get(key, 0.0))
        return bool(missed >= price.build)
