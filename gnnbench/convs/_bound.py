"""The forward that `convs.bind` sets on an instance, and the aggregation that it may keep between calls."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gnnbench.graph import Graph
from gnnbench.graph.stamp import stamp
from gnnbench.ops.kernels import Kernels

KEEP = "keep_aggregation"


class BoundForward:
    """Computes a conv by the functions of its module; a conv bound twice runs what was bound last.

    With the rewrite `keep_aggregation`, features that need no gradient are aggregated before they are
    transformed, and again only when they or the graph are others or were edited in place. `torch.compile`
    cannot see that, so that a compiled model aggregates in every call.
    """

    def __init__(self, module: ModuleType, conv: Any, kernels: Kernels, rewrites: frozenset[str]) -> None:
        self.conv, self.kernels, self.rewrites = conv, kernels, rewrites
        self.forward = module.forward
        self.aggregate: Any = getattr(module, "aggregate", None)
        self.combine: Any = getattr(module, "combine", None)
        self.kept = _Kept()

    def __call__(self, x: Tensor, graph: Graph) -> Tensor:
        keeps = KEEP in self.rewrites and not torch.compiler.is_compiling()
        if keeps and not x.requires_grad and not x.is_inference():
            out: Tensor = self.combine(self.conv, x, self.aggregated(x, graph))
        else:
            out = self.forward(self.conv, self.kernels, self.rewrites, x, graph)
        return out

    def aggregated(self, x: Tensor, graph: Graph) -> Tensor:
        """The aggregation of constant features x, computed where it is not there and kept while x lives."""
        graph.check_unchanged()
        aggregated: Tensor
        state = stamp(x), graph.handle
        kept, aggregated = self.kept.get(x, (None, None))
        if None in state or kept != state:
            with torch.inference_mode(False), torch.no_grad():
                aggregated = self.aggregate(self.conv, self.kernels, self.rewrites, x, graph)
            self.kept.clear()
            self.kept[x] = state, aggregated
        return aggregated


class Accelerated(partial[Any]):
    """The forward that `gnnbench.accelerate` sets on an instance."""


class _Kept(WeakTensorKeyDictionary):
    """Features -> (their stamp and the graph's handle, their aggregation); a copy keeps nothing."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _Kept, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Kept:
        return _Kept()
