"""Layers of models that are called with a Graph: their own forward, with messages on kernels."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gnnbench.convs._bound import Accelerated
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.graph.cache import MAX_GRAPH_BYTES, Adjacency, GraphCache
from gnnbench.messages import arguments, norms, propagate, recognise
from gnnbench.messages.arguments import FUNCTIONS
from gnnbench.ops.kernels import Kernels
from gnnbench.results.schema import Binding

# Ops by how messages ran, with the kernels that make them a backend's own.
OPS = {"spmm": ("spmm", "spmm"), "fused": ("program", "program"), "streamed": ("stream", "segment")}

_norms = norms.KnownNorms()
_of: Any = WeakTensorKeyDictionary()  # the edge_index of a Graph -> a reference to it


def bind(layers: Sequence[tuple[str, Any]], kernels: Kernels) -> list[Binding]:
    """Let `kernels` run the messages of layers, given with their paths, which are then called with a Graph.

    Returns:
        A Binding for each, which says how its messages ran once it was called.

    Raises:
        UnsupportedOp: with the reasons of all layers whose messages have to be PyG's; then nothing is bound.
    """
    if reasons := [f"{path}: {reason}" for path, layer in layers for reason in _unsupported(layer)]:
        raise UnsupportedOp(f"this model on {kernels.name!r} kernels", reasons)
    graphs = Graphs(kernels)
    bindings = [Binding(module=path, conv=type(layer).__name__) for path, layer in layers]
    for (_, layer), binding in zip(layers, bindings, strict=True):
        layer.forward = BoundForward(layer)
        for attribute in FUNCTIONS:
            setattr(layer, attribute, BoundMessages(layer, attribute, kernels, graphs, binding))
    return bindings


def _unsupported(layer: Any) -> list[str]:
    own = vars(layer).get("forward")
    replaced = not (own is None or isinstance(own, (BoundForward, Accelerated)))
    reasons = [f"{type(layer).__name__} has a forward of its own"] * replaced
    called = list(inspect.signature(type(layer).forward).parameters)
    if more := called[2 : called.index("edge_index")] if "edge_index" in called else []:
        reasons.append(f"{type(layer).__name__} is called with {' and '.join(more)} before its edges")
    return reasons + recognise.objections(layer)


class BoundForward:
    """Calls PyG's own forward with the `edge_index` of a Graph."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self, x: Any, adjacency: Any, *edges: Any) -> Any:
        if isinstance(adjacency, Graph):
            adjacency = edge_index_of(adjacency)
        return _with_norms(type(self.layer).forward)(self.layer, x, adjacency, *edges)


@functools.lru_cache(256)
def _with_norms(forward: Any) -> Any:
    """A forward of PyG's, whose `gcn_norm` is computed once for the same edges."""
    if getattr(forward, "__globals__", {}).get("gcn_norm") is not gcn_norm:
        return forward
    names = {**forward.__globals__, "gcn_norm": _kept_norm}
    own = FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    own.__kwdefaults__ = forward.__kwdefaults__
    return own


def _kept_norm(*args: Any, **kwargs: Any) -> Any:
    asked = None if torch.compiler.is_compiling() else norms.read(args, kwargs)
    if asked is None:
        return gcn_norm(*args, **kwargs)
    return _norms.find(asked) or _norms.make(asked, args, kwargs)


class BoundMessages:
    """Runs `propagate` or `edge_updater` of a layer on kernels; what they cannot run is an error."""

    def __init__(self, layer: Any, attribute: str, kernels: Kernels, graphs: Graphs, binding: Binding) -> None:
        self.layer, self.functions = layer, FUNCTIONS[attribute]
        self.kernels, self.graphs, self.binding = kernels, graphs, binding

    def __call__(self, edge_index: Adjacency, size: Any = None, **given: Any) -> Any:
        if reasons := recognise.objections(self.layer):
            raise UnsupportedOp(type(self.layer).__name__, reasons)
        asked = arguments.read(self.layer, self.functions, edge_index, size, given)
        graph = self.graphs.of(edge_index, asked.num_rows, asked.num_cols, reverse=asked.reverse)
        out, way = propagate(asked, self.kernels, graph, recognise.find(asked))
        op, kernel = OPS[way]
        self.binding.kernels[op] = self.kernels.name if kernel in self.kernels.accelerated else "torch"
        return out


def edge_index_of(graph: Graph) -> Tensor:
    """[2, E] int64 of source and destination, in the order that the edges were given in; kept on the graph."""

    def make() -> Tensor:
        ends = torch.stack([graph.col.long(), graph.row])
        return ends if graph.edge_place is None else ends.index_select(1, graph.edge_place)

    edge_index: Tensor = graph.once("edge_index", make)
    if edge_index not in _of:
        _of[edge_index] = weakref.ref(graph)
    return edge_index


class Graphs:
    """The Graphs of what forwards call `propagate` with: of a Graph's own edges, and of others made from these."""

    def __init__(self, kernels: Kernels) -> None:
        self.cache = GraphCache(kernels, MAX_GRAPH_BYTES)

    def __deepcopy__(self, memo: dict[int, Any]) -> Graphs:
        return self

    def of(self, edge_index: Tensor, num_rows: int, num_cols: int, *, reverse: bool) -> Graph:
        own = _of[edge_index]() if edge_index in _of else None
        if own is not None and not reverse and (own.num_rows, own.num_cols) == (num_rows, num_cols):
            return own
        return self.cache.graph(edge_index, num_rows, num_cols, reverse=reverse)
