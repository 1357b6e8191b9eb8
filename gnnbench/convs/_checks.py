"""Checks that must hold of a PyG conv for our forward to replace its own exactly: of itself, and of what is in it.

That is its aggregation, and the layers that it transforms by, as PyG would call them now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import torch
import torch_geometric
from torch import Tensor
from torch.nn import BatchNorm1d, Embedding, GRUCell, Linear, Module, Parameter, ReLU, Sequential, Sigmoid
from torch.nn.modules import module as torch_module
from torch.nn.parameter import is_lazy
from torch_geometric.nn import HeteroLinear, MessagePassing
from torch_geometric.nn import Linear as PygLinear
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation

from gnnbench.convs import _overrides
from gnnbench.convs._bound import Accelerated, BoundForward
from gnnbench.convs._overrides import is_from, pygs_own
from gnnbench.graph import Graph
from gnnbench.ops.dense import linear
from gnnbench.ops.kernels import EXTREMA, Kernels
from gnnbench.ops.spmm import spmm

REDUCTIONS = {SumAggregation: "sum", MeanAggregation: "mean", MaxAggregation: "max", MinAggregation: "min"}

AGGREGATES = "forward", "reduce", "__call__"
_aggregate = attrgetter(*AGGREGATES)
_AGGREGATE = {kind: tuple(map(pygs_own, _aggregate(kind))) for kind in REDUCTIONS}
_FORWARD: dict[type, Any] = {
    kind: kind.forward if is_from(kind.forward, "torch") else None
    for kind in (Linear, PygLinear, HeteroLinear, Sequential, BatchNorm1d, ReLU, Sigmoid, GRUCell, Embedding)
}


_hooks_on_messages = itemgetter(
    *(
        f"_{where}_forward_{when}hooks"
        for where in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
        for when in ("", "pre_")
    )
)


def overrides_forward(conv: Module) -> bool:
    """Return whether `conv` or its class, which may be a user's, has another forward than PyG's or ours."""
    pyg: Any = _overrides.pyg_class(conv)
    replaced = type(conv).forward is not pyg.forward or not is_from(pyg.forward, "torch_geometric.")
    return replaced or has_own_forward(conv)


def watched(conv: MessagePassing) -> list[str]:
    """Reasons why PyG's own code has to run the messages of any layer: hooks, and options of `MessagePassing`."""
    name, reasons = type(conv).__name__, []
    if any(_hooks_on_messages(vars(conv))):
        reasons.append(f"{name} has hooks on its messages")
    if conv.flow not in ("source_to_target", "target_to_source"):
        reasons.append(f"{name} has flow={conv.flow!r}")
    if conv.explain:
        reasons.append(f"{name} is being explained")
    if conv.decomposed_layers != 1:
        reasons.append(f"{name} has decomposed_layers={conv.decomposed_layers}; only 1 is supported")
    return reasons


def common(
    conv: MessagePassing, reduce: Collection[str] = ("sum",), node_dim: Sequence[int] = (0, -2)
) -> list[str]:
    """Reasons that hold for every conv: what is not PyG's own, and as `watched`."""
    name, reasons = type(conv).__name__, watched(conv)
    reasons += [f"{name} overrides {method}()" for method in _overrides.overridden(conv)]
    if reduction(conv) not in reduce:
        aggregation = vars(conv)["_modules"].get("aggr_module")
        reasons.append(f"{name} aggregates by {aggregation}; supported, without hooks: {', '.join(reduce)}")
    if conv.node_dim not in node_dim:
        supported = " and ".join(map(str, node_dim))
        reasons.append(f"{name} has node_dim={conv.node_dim}; supported: {supported}")
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


def reduction(conv: MessagePassing) -> str | None:
    """How PyG reduces messages along an `edge_index`: as `aggr_module` does, whatever became of `conv.aggr`."""
    module: Any = conv._modules.get("aggr_module")
    kind = type(module)
    if kind not in REDUCTIONS or _is_changed(module) or "reduce" in vars(module):
        return None
    return REDUCTIONS[kind] if _aggregate(kind) == _AGGREGATE[kind] else None


def reduce_of(conv: MessagePassing) -> str:
    """Return the reduction where there is one, without a look at what torch.compile could not follow."""
    return REDUCTIONS[type(conv.aggr_module)]


def around(conv: Any) -> list[tuple[Any, tuple[str, ...]]]:
    """Return where, outside a conv, its checks look up names: classes or dictionaries, and the names."""
    return [
        (type(conv.aggr_module), AGGREGATES),
        (vars(torch_geometric.typing), ("WITH_SEGMM",)),
        *_overrides.lookups(type(conv)),
    ]


def uses(*names: str) -> Callable[[MessagePassing], list[str]]:
    """Name the ops of a class whose convs all use these."""
    return lambda _: [*names]


def ops(conv: MessagePassing) -> list[str]:
    """Name the product that aggregates by the reduction."""
    return ["spmm_max" if reduction(conv) in EXTREMA else "spmm"]


def is_untouched(module: Any, *kinds: type[Module]) -> bool:
    """Return whether `module` is of exactly one of `kinds`, with the forward of its class and without hooks."""
    kind = type(module)
    return kind in kinds and not _is_changed(module) and kind.forward is _FORWARD[kind]


def is_plain_linear(layer: Any) -> bool:
    """Return whether `layer` is nothing but `x @ weight.T + bias`, so that it commutes with a sum over edges."""
    return is_untouched(layer, Linear, PygLinear)


def are_plain_linear(*layers: Any) -> bool:
    """Return whether all layers that are there are plain linear ones."""
    return all(layer is None or is_plain_linear(layer) for layer in layers)


def narrows(layer: Any) -> bool:
    """Return whether `layer` is a plain linear one with fewer outputs than inputs."""
    return is_plain_linear(layer) and layer.weight.size(0) < layer.weight.size(1)


def narrows_first(conv: MessagePassing, layer: Any) -> bool:
    """Return whether `layer` commutes with how `conv` reduces, as with sums and means, and narrows."""
    return reduction(conv) not in EXTREMA and narrows(layer)


def multiplied(layer: Any, kernels: Kernels, x: Tensor) -> Tensor:
    """Return `layer(x)`; a plain linear one does not go through torch's call of a module."""
    if torch.compiler.is_compiling() or not is_plain_linear(layer):
        return layer(x)
    return linear(kernels, x, layer.weight, layer.bias)


def transformed(
    conv: MessagePassing,
    layer: Any,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: Tensor,
    graph: Graph,
    weight: Tensor | None,
) -> Tensor:
    """Reduce x over neighbours and transform that by `layer`, a plain linear one where that comes first."""
    if "transform_first" not in rewrites:
        return layer(spmm(kernels, graph, x, weight, reduce_of(conv)))
    h = linear(kernels, x, layer.weight)
    out = spmm(kernels, graph, h, weight, reduce_of(conv))
    out = out if layer.bias is None else out + layer.bias
    return out.to(h.dtype)  # under autocast that of a product, which comes last in PyG


def has_own_forward(layer: Module) -> bool:
    """Return whether a program gave this instance a forward of its own."""
    own = layer.__dict__.get("forward")  # torch.compile of torch 2.8 cannot follow vars
    return not (own is None or isinstance(own, (Accelerated, BoundForward)))


def _is_changed(module: Module) -> bool:
    """Return whether a call of `module` runs more than the forward of its class, or another one."""
    return is_hooked(module) or has_own_forward(module)


def is_hooked(module: Module) -> bool:
    """Return whether hooks see, or change, what `module` is given and returns."""
    own = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    forwards = torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks
    backwards = torch_module._global_backward_hooks, torch_module._global_backward_pre_hooks
    return any(own) or any(forwards) or any(backwards)
