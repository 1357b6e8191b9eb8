"""The forward that `convs.bind` sets on an instance, and the aggregation that it may keep between calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.graph.cache import stamp
from gnnbench.ops.kernels import Kernels

KEEP = "keep_aggregation"


class BoundForward:
    """Computes a conv by the functions of its module; a conv bound twice runs what was bound last.

    With the rewrite `keep_aggregation`, features that need no gradient are aggregated before they are
    transformed, and again only when they or the graph are others or were edited in place. `torch.compile`
    cannot see that, so that a compiled model aggregates in every call.
    """

    def __init__(
        self,
        module: ModuleType,
        conv: Any,
        kernels: Kernels,
        rewrites: frozenset[str],
        unsupported: Callable[[Any], list[str]],
    ) -> None:
        self.conv, self.kernels, self.rewrites = conv, kernels, rewrites
        self.unsupported = unsupported
        self.applicable: Any = getattr(module, "rewrites", None)
        self.cannot_cache_aggregation: Any = getattr(module, "cannot_cache_aggregation", None)
        self.options = _options(conv)
        self.forward = module.forward
        self.aggregate: Any = getattr(module, "aggregate", None)
        self.combine: Any = getattr(module, "combine", None)
        self.kept = _Kept()

    def __call__(self, x: Tensor, graph: Graph, edge_attr: Tensor | None = None) -> Tensor:
        compiling = torch.compiler.is_compiling()
        if not compiling:
            self.check_unchanged()
        if KEEP in self.rewrites and not (compiling or x.requires_grad or x.is_inference()):
            return self.combine(self.conv, self.kernels, x, self.aggregated(x, graph))
        edges = () if edge_attr is None else (edge_attr,)
        return self.forward(self.conv, self.kernels, self.rewrites, x, graph, *edges)

    def check_unchanged(self) -> None:
        """Raise UnsupportedOp where the conv can no longer be computed as it was bound."""
        reasons = self.unsupported(self.conv)
        if lost := self.rewrites - {KEEP}:
            lost -= set(self.applicable(self.conv, transform_first=True, fold_norm=True))
            reasons += [f"its rewrite {name} no longer applies" for name in sorted(lost)]
        if KEEP in self.rewrites:
            reasons += self.cannot_cache_aggregation(self.conv)
        if reasons:
            raise UnsupportedOp(
                "a conv that was changed after it was bound", [*reasons, "prepare the model again"]
            )
        if (options := _options(self.conv)) != self.options:
            self.options = options
            self.kept.clear()

    def aggregated(self, x: Tensor, graph: Graph) -> Tensor:
        """The aggregation of constant features x, computed where it is not there and kept while x lives."""
        graph.check_unchanged()
        state = stamp(x), graph.handle
        kept, aggregated = self.kept.get(x, (None, None))
        if None in state or kept != state:
            with torch.inference_mode(False), torch.no_grad():
                aggregated = self.aggregate(self.conv, self.kernels, self.rewrites, x, graph)
            self.kept.clear()
            self.kept[x] = state, aggregated
        return aggregated


def _options(conv: Any) -> tuple[Any, ...]:
    """The settings that a kept aggregation depends on, beside features and graph."""
    return conv._modules.get("aggr_module"), *(vars(conv).get(name) for name in ("normalize", "add_self_loops"))


class Accelerated(partial[Any]):
    """A function of ours on an instance, in the place of a method of its class."""


class _Kept(WeakTensorKeyDictionary):
    """Features -> (their stamp and the graph's handle, their aggregation); a copy keeps nothing."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _Kept, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> _Kept:
        return _Kept()
