"""Refusals of layers, before any of their functions is run a chunk at a time."""

from __future__ import annotations

from typing import Any

from torch.nn import Module
from torch_geometric.nn import MessagePassing, aggr

from gnnbench.convs import _checks, _layers, _overrides

INTERNAL = ("_check_input", "_set_size", "_index_select", "_index_select_safe", "_lift", "_collect")
LOCAL = {  # aggregations that look at each destination by itself
    *(aggr.SumAggregation, aggr.MeanAggregation, aggr.MaxAggregation, aggr.MinAggregation, aggr.MulAggregation),
    *(aggr.VarAggregation, aggr.StdAggregation, aggr.SoftmaxAggregation, aggr.PowerMeanAggregation),
    *(aggr.MedianAggregation, aggr.QuantileAggregation, aggr.MultiAggregation, aggr.DegreeScalerAggregation),
    *(aggr.VariancePreservingAggregation, aggr.AttentionalAggregation, aggr.DeepSetsAggregation),
    aggr.fused.FusedAggregation,
}
_own = {name: getattr(MessagePassing, name) for name in INTERNAL}


def objections(conv: Any) -> list[str]:
    """Sentences, each a reason why PyG's own code has to run this layer's messages."""
    kind, own = type(conv), vars(conv)
    name = kind.__name__
    reasons = [f"{name} overrides {each}()" for each in INTERNAL if _replaced(kind, each) or each in own]
    reasons += [f"{name} has its own {each}()" for each in ("collect", "edge_collect") if each in own]
    if any(_checks.hooks_on_messages(own)):
        reasons.append(f"{name} has hooks on its messages")
    if conv.explain:
        reasons.append(f"{name} is being explained")
    if conv.decomposed_layers != 1:
        reasons.append(f"{name} has decomposed_layers={conv.decomposed_layers}")
    if conv.flow not in ("source_to_target", "target_to_source"):
        reasons.append(f"{name} has flow={conv.flow!r}")
    inner = [module for module in conv.modules() if module is not conv]
    if watched := next((module for module in inner if _layers.is_hooked(module)), None):
        reasons.append(f"{name} has hooks on its {type(watched).__name__}")
    if any(parameter._backward_hooks for parameter in conv.parameters()):
        reasons.append(f"{name} has hooks on its parameters")
    if strange := next((each for each in _aggregations(conv) if type(each) not in LOCAL), None):
        reasons.append(f"{type(strange).__name__} may look at other destinations, such as that of the most edges")
    return reasons


def _replaced(kind: type, name: str) -> bool:
    return getattr(kind, name) is not _own[name] or not _overrides.is_from(_own[name], "torch_geometric.")


def _aggregations(conv: Any) -> list[Module]:
    module = conv._modules.get("aggr_module")
    return [] if module is None else [each for each in module.modules() if isinstance(each, aggr.Aggregation)]
