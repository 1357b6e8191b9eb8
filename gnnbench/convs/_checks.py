"""What a PyG conv instance must be like for its forward to be replaced by ours exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.nn import Linear, Module
from torch.nn.parameter import is_lazy
from torch_geometric.nn import Linear as PygLinear
from torch_geometric.nn import MessagePassing

from gnnbench.convs._bound import Accelerated, BoundForward

METHODS = ("message", "aggregate", "update", "message_and_aggregate", "edge_update")
COMPILED = ("propagate", "edge_updater")  # PyG sets its own compiled version on every class
HOOKS = frozenset(
    f"_{where}_forward_{when}hooks"
    for where in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("", "pre_")
)


def bindable(conv: MessagePassing) -> list[str]:
    """Reasons why an instance cannot be bound to a Graph, whatever its class."""
    name = type(conv).__name__
    reasons = [f"{name} overrides forward()"] if has_own_forward(conv) else []
    if conv.flow != "source_to_target":
        reasons.append(f"{name} has flow={conv.flow!r}; only 'source_to_target' is supported")
    if isinstance(getattr(conv, "in_channels", 0), tuple):
        reasons.append(f"{name} was built for pairs of node features (in_channels={conv.in_channels})")
    if getattr(conv, "edge_dim", None) is not None:
        reasons.append(f"{name} has edge_dim={conv.edge_dim}; edge features are not supported")
    return reasons


def pyg_class(conv: Module) -> type:
    """The class of PyG that `conv` is an instance of, itself or through a subclass of a user."""
    return next(kind for kind in type(conv).__mro__ if kind.__module__.startswith("torch_geometric."))


def has_own_forward(conv: Module) -> bool:
    """Whether `conv` or a user's class of it has a forward of its own, which binding would drop."""
    own = vars(conv).get("forward")
    kind: Any = pyg_class(conv)
    return type(conv).forward is not kind.forward or not (
        own is None or isinstance(own, (BoundForward, Accelerated))
    )


def common(conv: MessagePassing, aggr: Sequence[str] = ("add", "sum")) -> list[str]:
    """Reasons that hold for every conv: changed methods, hooks, and options of `MessagePassing`."""
    name = type(conv).__name__
    reasons = [f"{name} overrides {method}()" for method in _changed(conv)]
    if any(map(vars(conv).__getitem__, HOOKS)):
        reasons.append(f"{name} has hooks on its messages, which would never run")
    if conv.aggr not in aggr:
        reasons.append(f"{name} has aggr={conv.aggr!r}; supported: {', '.join(aggr)}")
    if conv.node_dim not in (0, -2):
        reasons.append(f"{name} has node_dim={conv.node_dim}; only 0 and -2 are supported")
    if conv.explain:
        reasons.append(f"{name} is being explained, which needs PyG's message passing")
    if conv.decomposed_layers != 1:
        reasons.append(f"{name} has decomposed_layers={conv.decomposed_layers}; only 1 is supported")
    if _has_lazy(conv):
        reasons.append(f"{name} has parameters without a size yet; call the model once with PyG")
    return reasons


def is_untouched(module: Module, *kinds: type[Module]) -> bool:
    """Whether `module` is of exactly one of `kinds` and nothing is hooked into its call."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return type(module) in kinds and not any(hooks) and "forward" not in vars(module)


def is_plain_linear(layer: Module) -> bool:
    """Whether `layer` is nothing but `x @ weight.T + bias`, so that it commutes with a sum over edges."""
    return is_untouched(layer, Linear, PygLinear)


def _changed(conv: MessagePassing) -> list[str]:
    kind, pyg, own = type(conv), pyg_class(conv), vars(conv)
    changed = [name for name in METHODS if name in own]
    if kind is not pyg:
        changed += [name for name in METHODS if getattr(kind, name) is not getattr(pyg, name)]
        changed += [name for name in COMPILED if not _compiled_by_pyg(kind, pyg, name)]
    return changed


def _has_lazy(module: Module) -> bool:
    """Whether a parameter below `module` has no size yet; `parameters()` would take twice as long."""
    if any(is_lazy(parameter) for parameter in module._parameters.values() if parameter is not None):
        return True
    return any(_has_lazy(child) for child in module._modules.values() if child is not None)


def _compiled_by_pyg(kind: type, pyg: type, name: str) -> bool:
    """Whether no subclass below `pyg` defines `name` itself; PyG's versions live in modules named so."""
    below = kind.__mro__[: kind.__mro__.index(pyg)]
    return all(
        vars(cls)[name].__module__.startswith(f"{cls.__module__}_{cls.__name__}")
        for cls in below
        if name in vars(cls)
    )
