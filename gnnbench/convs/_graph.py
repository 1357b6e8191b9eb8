"""The graph that a conv aggregates over, and what is kept on it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Module

from gnnbench.graph import Graph, handles


def adjacency(conv: Module, graph: Graph) -> Graph:
    """`graph`, or the same with one self-loop per node where the conv adds them.

    GCNConv's `improved` asks for loops of weight two, but PyG heeds that only beside given edge weights.
    """
    if not adds_self_loops(conv):
        return graph
    if torch.compiler.is_compiling():
        _add_self_loops(graph.handle)
    return graph.with_self_loops


def adds_self_loops(conv: Module) -> bool:
    """Return whether PyG adds self-loops, which a conv with an option `normalize` does where it normalises."""
    return bool(getattr(conv, "add_self_loops", False)) and bool(getattr(conv, "normalize", True))


def edges_as_columns(graph: Graph) -> Graph:
    """Return a Graph of the destinations over their edges, each a column of its own; kept on the graph."""

    def make() -> Graph:
        col = torch.arange(graph.num_edges, dtype=torch.int32, device=graph.device)
        return Graph(graph.rowptr, col, graph.num_edges, None, graph.layout)

    return graph.once("edges", make)


def is_simple(graph: Graph) -> bool:
    """Return whether no edge is a loop or comes twice; kept on the graph."""

    def make() -> bool:
        key = graph.row * graph.num_cols + graph.col
        return not bool((graph.row == graph.col).any() or (key[1:] == key[:-1]).any())

    return graph.once("simple", make)


def once(make: Callable[[Graph, torch.dtype], Tensor], graph: Graph, dtype: torch.dtype) -> Tensor:
    """`make(graph, dtype)`, computed once and kept on the graph."""
    key = make.__name__, dtype
    if torch.compiler.is_compiling() or key not in graph.cache:
        _keep(make, graph.handle, dtype)
    tensor: Tensor = graph.cache[key]
    return tensor


# torch.compile cannot trace these: they run when tracing reaches them, so that the lookup that follows succeeds.


@torch.compiler.assume_constant_result
def _add_self_loops(handle: str) -> None:
    _ = handles.find(handle).with_self_loops


@torch.compiler.assume_constant_result
def _keep(make: Callable[[Graph, torch.dtype], Tensor], handle: str, dtype: torch.dtype) -> None:
    graph: Graph = handles.find(handle)
    graph.once((make.__name__, dtype), lambda: make(graph, dtype))
