"""Convs: one file per PyG conv class, which says what it cannot do exactly and how our ops compute the rest.

Each file has
    CONV: the name of the class in `torch_geometric.nn`;
    unsupported(conv): sentences, each a reason why the conv cannot be computed exactly;
    ops(conv): the ops its forward uses, by the names of `Kernels`;
    forward(conv, kernels, rewrites, x, graph): its output, from its own parameters;
and, where there is something to say,
    rewrites(conv, transform_first=, fold_norm=): which of the allowed exact rewrites apply to this conv;
    warm(conv, rewrites, graph): compute what it keeps on the graph that it aggregates over.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torch.nn import Module
from torch_geometric.nn import MessagePassing

from gnnbench import registry
from gnnbench.binding import Binding
from gnnbench.convs import _checks, _graph
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels

# What runs where a backend has no kernel of its own for an op.
COMPOSED = {
    "gat_attention": ["edge_softmax", "spmm"],
    "gatv2_attention": ["edge_softmax", "spmm"],
    "dot_attention": ["sddmm", "edge_softmax", "spmm"],
}


def bind(model: Module, kernels: Kernels, *, transform_first: bool, fold_norm: bool) -> list[Binding]:
    """Let `kernels` execute every conv of `model`, which is then called with a Graph as adjacency.

    Only the instances' `forward` is set: parameters, `state_dict` and the classes stay as they are.

    Args:
        model: any module with PyG convs in it.
        kernels: who computes the ops.
        transform_first: allow multiplying by the weights before or after aggregation, where that is narrower.
        fold_norm: allow GCN's normalisation as two row scalings.

    Raises:
        UnsupportedOp: with the reasons of all convs that cannot be computed exactly; then nothing is bound.
    """
    bound = list(_convs(model))
    if reasons := [f"{path}: {reason}" for path, conv, _ in bound for reason in unsupported(conv)]:
        raise UnsupportedOp(f"this model on {kernels.name!r} kernels", reasons)
    bindings = []
    for path, conv, module in bound:
        rewrites = _rewrites(conv, module, transform_first=transform_first, fold_norm=fold_norm)
        conv.forward = _checks.BoundForward(module.forward, conv, kernels, frozenset(rewrites))
        who = {op: _who(op, kernels) for op in _ops(conv, module, kernels)}
        bindings.append(Binding(path, module.CONV, who, rewrites))
    return bindings


def warm(model: Module, graph: Graph) -> None:
    """Compute what the convs of a bound `model` keep per graph, so that it counts as preparation."""
    for _, conv, module in _convs(model):
        _, kernels, rewrites = conv.forward.args
        used, adjacency = _ops(conv, module, kernels), _graph.adjacency(conv, graph)
        for warmed in (adjacency, adjacency.transpose):
            if "spmm" in used:
                warmed.layout.plan(warmed)
        if "edge_softmax" in used:
            _ = adjacency.perm, adjacency.row
        elif getattr(conv, "dropout", 0) > 0:  # of attention weights
            _ = adjacency.perm
        if hasattr(module, "warm"):
            module.warm(conv, rewrites, adjacency)


def unsupported(conv: Module) -> list[str]:
    """Sentences, each a reason why our functions cannot compute this PyG conv exactly."""
    module = table().get(_checks.pyg_class(conv).__name__)
    if module is None:
        return [f"there is no accelerated {type(conv).__name__}; available: {', '.join(sorted(table()))}"]
    reasons: list[str] = module.unsupported(conv)
    return reasons


def table() -> dict[str, ModuleType]:
    """PyG class name -> the module of this package that computes it."""
    modules = [registry.find("convs", name) for name in registry.names("convs")]
    return {module.CONV: module for module in modules}


def _convs(model: Module) -> Iterator[tuple[str, Any, Any]]:
    known = table()
    for path, conv in model.named_modules():
        if isinstance(conv, MessagePassing):
            yield path, conv, known.get(_checks.pyg_class(conv).__name__)


def _rewrites(conv: Module, module: ModuleType, **allowed: bool) -> list[str]:
    return module.rewrites(conv, **allowed) if hasattr(module, "rewrites") else []


def _ops(conv: Module, module: ModuleType, kernels: Kernels) -> list[str]:
    """The ops that run, with those that the others are composed of."""
    parts = [part for op in module.ops(conv) if op not in kernels.accelerated for part in COMPOSED.get(op, [])]
    return [*module.ops(conv), *parts]


def _who(op: str, kernels: Kernels) -> str:
    if op in kernels.accelerated:
        return kernels.name
    return "composition" if op in COMPOSED else "torch"
