"""Convs: one file per PyG conv class, which says what it cannot do exactly and how our ops compute the rest.

Each file has
    CONV: the name of the class in `torch_geometric.nn`;
    COST: what a Graph costs the drop-in and saves it, `_cost.SUM` or measured;
    unsupported(conv): sentences, each a reason why the conv cannot be computed exactly;
    ops(conv): the ops its forward uses, by the names of `Kernels`;
    forward(conv, kernels, rewrites, x, graph): its output, from its own parameters;
and, where there is something to say,
    rewrites(conv, transform_first=, fold_norm=): which of the allowed exact rewrites apply to this conv;
    aggregate(conv, kernels, rewrites, x, graph), combine(conv, kernels, x, aggregated): its forward in two steps,
        the first of which no parameter has a part in, so that the aggregation of constant features can be kept;
    cannot_cache_aggregation(conv): sentences, each a reason why this conv has no such first step;
    warm(conv, rewrites, graph): compute what it keeps on the graph that it aggregates over;
    multiplies_first(conv, rewrites): whether its forward multiplies features by weights before all else;
    recall(conv, x, adjacency, **options): the adjacency and options that it keeps of its first call, None for the
        given ones;
    TYPED: True where x is by type of nodes, and `graph` a Graph for every relation;
    DROPS_VALUES: True where PyG ignores the values of a `SparseTensor`.

    _cost        what a Graph costs and saves
    _bound       the forward that is set on an instance
    _checks _overrides   what a conv must be like, itself and its layers, and what replaced PyG's own
    _edges _heads   the graph that it aggregates over, and what it is given over edges; what attention shares
    _relations   edges of several relations, by pairs of a relation and a node
    _parts       the parts of a model beside its convs
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeAlias

from torch import Tensor
from torch.nn import Module
from torch_geometric import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.module_dict import ModuleDict

from gnnbench import registry
from gnnbench.convs import _checks, _edges, _overrides, _parts
from gnnbench.convs._bound import KEEP, BoundForward
from gnnbench.convs._relations import joined
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.families import FAMILIES
from gnnbench.ops.kernels import Kernels
from gnnbench.results.schema import Binding

Rest: TypeAlias = Callable[[Sequence[tuple[str, Any]], Kernels], list[Binding]]  # of convs by their paths
SPARSE = "sparse_features"
# What runs where a backend has no kernel of its own for an op.
COMPOSED = {family.op: family.parts for family in FAMILIES.values()}


def bind(
    model: Module,
    kernels: Kernels,
    *,
    transform_first: bool,
    fold_norm: bool,
    keep_aggregation: bool = False,
    sparse_features: bool = False,
    dropout: bool = False,
    layers: bool = False,
    first_node: int | None = None,
    rest: Rest | None = None,
) -> list[Binding]:
    """Let `kernels` execute every conv of `model`, which is then called with a Graph as adjacency.

    Only the instances' `forward` is set: parameters, `state_dict` and the classes stay as they are.

    Args:
        model: any module with PyG convs in it.
        kernels: the kernels that compute the ops.
        transform_first, fold_norm, dropout, layers: allowed as by these keys of `BackendConfig`.
        keep_aggregation: allow the first conv to aggregate features that need no gradient only once. Where
            `model.input_changes` is a sentence it says why that conv never gets the same features twice.
        sparse_features: allow features to be `Features`; the first binding then says so, where all that the model
            does to them is dropout and products with weights.
        first_node: of this process, where several share the nodes of a graph; see `_parts.dropouts`.
        rest: binds the convs that no file here can compute; None to refuse them.

    Raises:
        UnsupportedOp: with the reasons of all convs that cannot be computed exactly; then nothing is bound.
    """
    found = [(path, conv, module, unsupported(conv)) for path, conv, module in _convs(model)]
    others = [(path, conv) for path, conv, _, reasons in found if reasons]
    if others and rest is None:
        why = [f"{path}: {reason}" for path, _, _, reasons in found for reason in reasons]
        raise UnsupportedOp(f"this model on {kernels.name!r} kernels", why)
    bindings: list[Binding] = rest(others, kernels) if rest and others else []
    for path, conv, module in [each[:3] for each in found if not each[3]]:
        keeps, declined = keep_aggregation and not bindings, {}
        if keeps and (reasons := _cannot_cache_aggregation(model, conv, module)):
            keeps, declined = False, {KEEP: "; ".join(reasons)}
        names = rewrites(conv, module, transform_first=transform_first and not keeps, fold_norm=fold_norm)
        names += [KEEP] * keeps
        conv.forward = BoundForward(module, conv, kernels, frozenset(names), unsupported)
        if sparse_features and not bindings and not keeps and _multiplies_first(model, conv, module, names):
            names = [*names, SPARSE]
        providers = {op: _provider(op, kernels) for op in _ops(conv, module, kernels)}
        bindings.append(
            Binding(module=path, conv=module.CONV, kernels=providers, rewrites=names, declined=declined)
        )
    return [
        *bindings,
        *_parts.encoders(model, kernels),
        *_parts.readout(model, kernels),
        *_parts.decoder(model, kernels),
        *(_parts.linears(model, kernels) if layers else []),
        *(_parts.norms(model, kernels) if layers and first_node is None else []),
        *(_parts.dropouts(model, kernels, first_node) if dropout else []),
    ]


def warm(model: Module, graph: Graph | dict[Any, Graph], x: Tensor | None = None) -> None:
    """Compute what the convs of a bound `model` keep of graph and features, so that it counts as preparation.

    Args:
        graph: that of all convs; or that of each relation, of which PyG's `HeteroConv` has a conv for each.
    """
    for path, conv, module in _convs(model):
        if not isinstance(conv.forward, BoundForward):  # by `rest`
            continue
        bound: BoundForward = conv.forward
        own = _own(graph, path, conv, module) if isinstance(graph, dict) else graph
        used, adjacency = _ops(conv, module, bound.kernels), _edges.adjacency(conv, own)
        transpose = adjacency.transpose
        if "spmm" in used:
            for warmed in (adjacency, transpose):
                warmed.layout.plan(warmed)
        if "edge_softmax" in used:
            _ = adjacency.perm, adjacency.row
        elif getattr(conv, "dropout", 0) > 0:  # of attention weights
            _ = adjacency.perm
        if hasattr(module, "warm"):
            module.warm(conv, bound.rewrites, adjacency)
        if x is not None and KEEP in bound.rewrites:
            bound.aggregated(x, own)


def _own(graphs: dict[Any, Graph], path: str, conv: Any, module: ModuleType) -> Graph:
    """The graph that a conv aggregates over, of those of all relations."""
    if not getattr(module, "TYPED", False):
        return graphs[ModuleDict.to_external_key(path.rpartition(".")[2])]
    rows = {relation[2]: graph.num_rows for relation, graph in graphs.items()}
    return joined(graphs, {kind: rows[kind] for kind in conv.node_types})


def unsupported(conv: Module) -> list[str]:
    """Sentences, each a reason why our functions cannot compute this PyG conv exactly."""
    module, name = table().get(_overrides.pyg_class(conv).__name__), type(conv).__name__
    if module is None:
        return [f"there is no accelerated {name}; available: {', '.join(sorted(table()))}"]
    reasons = [f"{name} overrides forward()"] if _checks.overrides_forward(conv) else []
    if conv.flow != "source_to_target":
        reasons.append(f"{name} has flow={conv.flow!r}; only 'source_to_target' is supported")
    return [*reasons, *module.unsupported(conv)]


@functools.cache
def table() -> dict[str, ModuleType]:
    """PyG class name -> the module of this package that computes it."""
    modules = [registry.find("convs", name) for name in registry.names("convs")]
    for module in modules:
        _overrides.remember(getattr(nn, module.CONV))
    return {module.CONV: module for module in modules}


def kinds(model: Module) -> dict[str, bool]:
    """Names of the classes of a model's convs, and whether there is an accelerated one of each."""
    return {type(conv).__name__: module is not None for _, conv, module in _convs(model)}


def _convs(model: Module) -> Iterator[tuple[str, Any, Any]]:
    known = table()
    for path, conv in model.named_modules():
        if isinstance(conv, MessagePassing):
            yield path, conv, known.get(_overrides.pyg_class(conv).__name__)


def rewrites(conv: Module, module: ModuleType, **allowed: bool) -> list[str]:
    """Names of the allowed exact rewrites that apply to a conv."""
    return module.rewrites(conv, **allowed) if hasattr(module, "rewrites") else []


def _ops(conv: Module, module: ModuleType, kernels: Kernels) -> list[str]:
    """The ops that run, with those that the others are composed of."""
    parts = [part for op in module.ops(conv) if op not in kernels.accelerated for part in COMPOSED.get(op, ())]
    return [*module.ops(conv), *parts]


def _cannot_cache_aggregation(model: Module, conv: Module, module: ModuleType) -> list[str]:
    if not hasattr(module, "cannot_cache_aggregation"):
        return [f"how {module.CONV} aggregates depends on its weights"]
    changes = getattr(model, "input_changes", "")
    return [changes] * bool(changes) + module.cannot_cache_aggregation(conv)


def _multiplies_first(model: Module, conv: Module, module: ModuleType, names: list[str]) -> bool:
    """Return whether features meet nothing but dropout and products with weights, and nobody looks at them."""
    first: bool = hasattr(module, "multiplies_first") and module.multiplies_first(conv, frozenset(names))
    alone = first and getattr(model, "multiplies_features", False)
    return alone and not any(map(_checks.is_hooked, (model, conv, *model.children())))


def _provider(op: str, kernels: Kernels) -> str:
    if op in kernels.accelerated:
        return kernels.name
    return "composition" if op in COMPOSED else "torch"
