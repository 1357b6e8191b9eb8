"""When the Graph of an adjacency that was not seen before costs less to build than it saves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

# Nanoseconds on one core of an AMD EPYC with AVX-512: building a Graph (and, for a backward, its transpose) of
# random edges, and the least that a sum over them was faster than PyG's, from 1,000 to 1,000,000 edges and from 16
# to 256 channels. Fewer channels save more per channel; larger graphs, whose rows leave the caches, much more.
BUILD_NS, BUILD_NS_PER_EDGE = 34_000, 25
TRAIN_BUILD_NS, TRAIN_BUILD_NS_PER_EDGE = 57_000, 39
SAVED_NS_PER_MESSAGE, TRAIN_SAVED_NS_PER_MESSAGE = 1.0, 2.5


class Patience:
    """Calls that an adjacency was left to PyG for, until they would have paid for its Graph.

    So nothing costs more than twice what the better choice would have, however often an adjacency comes.
    """

    def __init__(self) -> None:
        self._missed: Any = WeakTensorKeyDictionary()  # adjacency -> ns

    def worth(self, adjacency: Tensor, edges: int, width: int) -> bool:
        """Whether to build the Graph of `edges` edges for this call, which gathers `width` channels for each."""
        if torch.is_grad_enabled():
            cost = TRAIN_BUILD_NS + edges * TRAIN_BUILD_NS_PER_EDGE
            saved = edges * width * TRAIN_SAVED_NS_PER_MESSAGE
        else:
            cost, saved = BUILD_NS + edges * BUILD_NS_PER_EDGE, edges * width * SAVED_NS_PER_MESSAGE
        missed = saved if saved >= cost else self._missed.get(adjacency, 0.0) + saved
        self._missed[adjacency] = missed
        return missed >= cost
