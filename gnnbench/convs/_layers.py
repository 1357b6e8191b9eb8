"""The modules within a conv, as PyG would call them now: its aggregation, and the layers that it transforms by."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

from torch import Tensor
from torch.nn import BatchNorm1d, Embedding, GRUCell, Linear, Module, ReLU, Sequential, Sigmoid
from torch.nn.modules import module as torch_module
from torch_geometric.nn import HeteroLinear, MessagePassing
from torch_geometric.nn import Linear as PygLinear
from torch_geometric.nn.aggr import MaxAggregation, MeanAggregation, MinAggregation, SumAggregation

from gnnbench.convs._overrides import is_from, pygs_own
from gnnbench.graph import Graph
from gnnbench.ops.dense import linear
from gnnbench.ops.kernels import EXTREMA, Kernels
from gnnbench.ops.spmm import spmm

REDUCTIONS = {SumAggregation: "sum", MeanAggregation: "mean", MaxAggregation: "max", MinAggregation: "min"}

_aggregate = attrgetter("forward", "reduce", "__call__")
_AGGREGATE = {kind: tuple(map(pygs_own, _aggregate(kind))) for kind in REDUCTIONS}
_FORWARD: dict[type, Any] = {
    kind: kind.forward if is_from(kind.forward, "torch") else None
    for kind in (Linear, PygLinear, HeteroLinear, Sequential, BatchNorm1d, ReLU, Sigmoid, GRUCell, Embedding)
}


class Equivalent(partial[Any]):
    """A forward of ours on a layer, in the place of that of its class."""


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


def transformed_first(
    conv: MessagePassing, layer: Any, kernels: Kernels, x: Tensor, graph: Graph, weight: Tensor | None
) -> Tensor:
    """Multiply x by the weights of a plain linear layer, and reduce after that what PyG reduces before."""
    h = linear(kernels, x, layer.weight)
    out = spmm(kernels, graph, h, weight, reduce_of(conv))
    out = out if layer.bias is None else out + layer.bias
    return out.to(h.dtype)  # under autocast that of a product, which comes last in PyG


def has_own_forward(layer: Module) -> bool:
    """Return whether a program gave this instance a forward of its own."""
    own = layer.__dict__.get("forward")  # torch.compile of torch 2.8 cannot follow vars
    return not (own is None or isinstance(own, Equivalent))


def _is_changed(module: Module) -> bool:
    """Return whether a call of `module` runs more than the forward of its class, or another one."""
    return is_hooked(module) or has_own_forward(module)


def is_hooked(module: Module) -> bool:
    """Return whether hooks see, or change, what `module` is given and returns."""
    own = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    forwards = torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks
    backwards = torch_module._global_backward_hooks, torch_module._global_backward_pre_hooks
    return any(own) or any(forwards) or any(backwards)
