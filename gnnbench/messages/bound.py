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
from gnnbench.convs._checks import has_own_forward
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.graph.cache import MAX_GRAPH_BYTES, Adjacency, GraphCache
from gnnbench.messages import arguments, norms, propagate
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
    graphs = Graphs(kernels, MAX_GRAPH_BYTES)
    bindings = [Binding(module=path, conv=type(layer).__name__) for path, layer in layers]
    for (_, layer), binding in zip(layers, bindings, strict=True):
        layer.forward = Accelerated(_forward, layer)
        for attribute, functions in FUNCTIONS.items():
            setattr(layer, attribute, Accelerated(_messages, layer, functions, kernels, graphs, binding))
    return bindings


def _unsupported(layer: Any) -> list[str]:
    reasons = [f"{type(layer).__name__} has a forward of its own"] * has_own_forward(layer)
    called = list(inspect.signature(type(layer).forward).parameters)
    if more := called[2 : called.index("edge_index")] if "edge_index" in called else []:
        reasons.append(f"{type(layer).__name__} is called with {' and '.join(more)} before its edges")
    return reasons + arguments.objections(layer)


def _forward(layer: Any, x: Any, adjacency: Any, *edges: Any) -> Any:
    """Call PyG's own forward with the `edge_index` of a Graph."""
    if isinstance(adjacency, Graph):
        adjacency = edge_index_of(adjacency)
    return _with_norms(type(layer).forward)(layer, x, adjacency, *edges)


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


def _messages(
    layer: Any,
    functions: tuple[str, ...],
    kernels: Kernels,
    graphs: Graphs,
    binding: Binding,
    /,
    edge_index: Adjacency,
    size: Any = None,
    **given: Any,
) -> Any:
    """Run `propagate` or `edge_updater` of a layer on kernels; what they cannot run is an error."""
    asked = arguments.read(layer, functions, edge_index, size, given)
    graph = graphs.graph(edge_index, asked.num_rows, asked.num_cols, reverse=asked.reverse)
    out, way = propagate(asked, kernels, graph, arguments.product_of(asked))
    op, kernel = OPS[way]
    binding.kernels[op] = kernels.name if kernel in kernels.accelerated else "torch"
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


class Graphs(GraphCache):
    """The Graphs of what forwards call `propagate` with: of a Graph's own edges, and of others made from these."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Graphs:
        return self

    def find(self, adjacency: Adjacency, num_rows: int, num_cols: int, *, reverse: bool = False) -> Graph | None:
        own = _of[adjacency]() if adjacency in _of else None
        if own is not None and not reverse and (own.num_rows, own.num_cols) == (num_rows, num_cols):
            return own
        return super().find(adjacency, num_rows, num_cols, reverse=reverse)
