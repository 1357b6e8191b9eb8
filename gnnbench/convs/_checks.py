"""Checks that must hold of a PyG conv instance for our forward to replace its own exactly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

from torch.nn import Module, Parameter
from torch.nn.parameter import is_lazy
from torch_geometric.nn import MessagePassing

from gnnbench.convs import _layers, _overrides
from gnnbench.convs._bound import Accelerated, BoundForward

hooks_on_messages = itemgetter(
    *(
        f"_{where}_forward_{when}hooks"
        for where in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
        for when in ("", "pre_")
    )
)


def bindable(conv: MessagePassing) -> list[str]:
    """Reasons why an instance cannot be bound to a Graph, whatever its class."""
    name = type(conv).__name__
    reasons = [f"{name} overrides forward()"] if has_own_forward(conv) else []
    if conv.flow != "source_to_target":
        reasons.append(f"{name} has flow={conv.flow!r}; only 'source_to_target' is supported")
    return reasons


def has_own_forward(conv: Module) -> bool:
    """Return whether `conv` or its class, which may be a user's, has another forward than PyG's or ours."""
    pyg: Any = _overrides.pyg_class(conv)
    own, pygs = vars(conv).get("forward"), pyg.forward
    replaced = type(conv).forward is not pygs or not _overrides.is_from(pygs, "torch_geometric.")
    return replaced or not (own is None or isinstance(own, (BoundForward, Accelerated)))


def common(
    conv: MessagePassing, reduce: Collection[str] = ("sum",), node_dim: Sequence[int] = (0, -2)
) -> list[str]:
    """Reasons that hold for every conv: what is not PyG's own, hooks, and options of `MessagePassing`."""
    name = type(conv).__name__
    reasons = [f"{name} overrides {method}()" for method in _overrides.overridden(conv)]
    if any(hooks_on_messages(vars(conv))):
        reasons.append(f"{name} has hooks on its messages, which would never run")
    if _layers.reduction(conv) not in reduce:
        aggregation = vars(conv)["_modules"].get("aggr_module")
        reasons.append(f"{name} aggregates by {aggregation}; supported, without hooks: {', '.join(reduce)}")
    if conv.flow not in ("source_to_target", "target_to_source"):
        reasons.append(f"{name} has flow={conv.flow!r}")
    if conv.node_dim not in node_dim:
        supported = " and ".join(map(str, node_dim))
        reasons.append(f"{name} has node_dim={conv.node_dim}; supported: {supported}")
    if conv.explain:
        reasons.append(f"{name} is being explained, which needs PyG's message passing")
    if conv.decomposed_layers != 1:
        reasons.append(f"{name} has decomposed_layers={conv.decomposed_layers}; only 1 is supported")
    if _has_lazy(conv):
        reasons.append(f"{name} has parameters without a size yet; call the model once with PyG")
    return reasons


def _has_lazy(module: Module | None) -> bool:
    """Return whether a parameter below `module` has no size yet; `parameters()` would take twice as long."""
    if module is None:
        return False
    own = vars(module)
    for parameter in own["_parameters"].values():
        if type(parameter) is not Parameter and parameter is not None and is_lazy(parameter):
            return True
    return any(map(_has_lazy, own["_modules"].values()))
