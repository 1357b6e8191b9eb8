"""Policy: which calls PyG runs as fast, or is left alone with because their Graph costs more than it saves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gnnbench.convs._cost import Price
from gnnbench.graph.cache import Adjacency, contents
from gnnbench.patch.call import Declined, repeated

RUNS = 2  # of a forward that may be repeated, which share a Graph
REMEMBERED = 1 << 14  # adjacencies at most
AS_FAST = "PyG is as fast here, on few edges or without a gradient"
NEW = "its graph is new, and to sort it costs more than this call would save"


@dataclass(frozen=True, slots=True)
class Policy:
    """Decides by prices what to accelerate, and adds up what the calls that were left to PyG would have saved.

    A Graph has to be repaid several times over, so that no batch gets one only at the last of the convs that it
    goes through.
    """

    min_gathered: int = 120_000  # numbers to gather, below which PyG is left alone; 0: nothing is refused
    min_features: int = 1 << 18  # constant numbers, whose product with weights takes hardly longer than a look
    calls: int = 4  # that have to save the price of a Graph, if one does not
    # ns by contents, as a program may make equal edges in every call
    _missed: dict[Any, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def clear(self) -> None:
        """Forget what calls would have saved."""
        self._missed.clear()

    def many(self, x: Any) -> bool:
        """Return whether x is constant features, and so many that zeros among them may matter."""
        plain = isinstance(x, Tensor) and not x.requires_grad and x.is_cpu and not torch.compiler.is_compiling()
        return plain and x.numel() >= self.min_features

    def reject_small(self, numbers: int, most: float = math.inf) -> None:
        """Raise Declined where a call gathers too few numbers for a closer look; `most` are never too few."""
        if numbers < self.min_gathered and numbers < most:
            raise Declined(AS_FAST)

    def weigh(self, adjacency: Adjacency, price: Price, conv: Any = None, *, known: bool = False) -> bool:
        """Raise Declined where a call on `adjacency` never gains, or not enough to build its Graph.

        Return whether equal calls on a Graph that is known need not be weighed.

        Neither calls that came before nor a Graph that is `known` count where the call may be repeated, for they
        need not come before that too.
        """
        if not self.min_gathered:
            return known
        if price.saved <= 0:
            raise Declined(AS_FAST)
        enough = RUNS * price.saved >= price.build
        if known and enough:
            return True
        if repeated(conv):
            if not enough:
                raise Declined(NEW)
        elif not known and not self._repaid(contents(adjacency), price):
            raise Declined(NEW)
        return False

    def _repaid(self, edges: Any, price: Price) -> bool:
        """Return whether a call on such edges is to have its Graph, as all calls after it then are."""
        if len(self._missed) >= REMEMBERED:
            self._missed.clear()
        missed = math.inf if price.saved >= price.build else self._missed.get(edges, 0.0) + price.saved
        self._missed[edges] = missed
        return missed >= self.calls * price.build
