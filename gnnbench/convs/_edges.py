"""Arguments of convs beside one matrix of node features: pairs of them, the graph, and tensors over edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.utils.loop import compute_loop_attr

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph, handles

T = TypeVar("T")
Ends: TypeAlias = Tensor | tuple[Tensor, Tensor | None]  # features of all nodes, or of sources and destinations
Rewrites: TypeAlias = frozenset[str]  # the names of those that apply


def pair(x: Ends) -> tuple[Tensor, Tensor | None]:
    """(features of sources, features of destinations); the latter may be absent from a pair."""
    return (x[0], x[1]) if isinstance(x, (tuple, list)) else (x, x)


def lasting(x_src: Tensor, x_dst: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Copy features that were computed, which may change before a backward: PyG gathers from them at once."""
    source = x_src if getattr(x_src, "grad_fn", None) is None else x_src.clone()
    if x_dst is x_src:
        return source, source
    return source, x_dst if x_dst is None or x_dst.grad_fn is None else x_dst.clone()


def single(conv: Any, x: Any) -> Tensor:
    """x itself, where only one matrix of features makes sense."""
    if isinstance(x, (tuple, list)):
        raise UnsupportedOp(type(conv).__name__, ["it takes no pairs of node features"])
    return x


def weight(graph: Graph, edge_weight: Tensor | None) -> Tensor | None:
    """One weight for each edge, if any, in the order of `graph.col`."""
    return None if edge_weight is None else in_rows(graph, vector(edge_weight))


def vector(edge_weight: Tensor) -> Tensor:
    """Weights [E] of edges, which PyG also takes as a column [E, 1]."""
    if edge_weight.dim() != 1 and edge_weight.shape[1:] != (1,):
        raise UnsupportedOp("an aggregation", ["edge_weight is neither a vector nor a column"])
    return edge_weight.flatten()


def in_rows(graph: Graph, value: Tensor, *, looped: bool = False) -> Tensor:
    """A tensor over the edges of `edge_index` in the order of `graph.col`; with added loops behind, of theirs."""
    if looped:
        return value.index_select(0, graph.looped_edge_place.argsort())
    return permuted(value, graph.edge_id, lambda: graph.edge_place)


def with_loops(graph: Graph, value: Tensor, fill: float | str | Tensor, *, by_source: bool = False) -> Tensor:
    """A tensor over the edges of `edge_index` in the order of `graph.with_self_loops.col`.

    Loops of `edge_index` are dropped, as by PyG's `remove_self_loops`, and those added as by its `add_self_loops`.

    Args:
        graph: without the loops to add.
        value: [E, ...] in the order of `edge_index`.
        fill: the value of the loops, or how each node's edges give it, such as "mean".
        by_source: `fill` reduces the edges that leave a node.
    """
    inner, ordered = graph.col != graph.row, in_rows(graph, value)
    node = (graph.col if by_source else graph.row)[inner].long()
    loops = compute_loop_attr(node.expand(2, -1), ordered[inner], min(graph.num_rows, graph.num_cols), False, fill)
    return torch.cat([value, loops]).index_select(0, graph.looped_edge_id)


def with_remaining_loops(graph: Graph, weight: Tensor, fill: float) -> Tensor:
    """Add loops as PyG's `add_remaining_self_loops`: existing ones keep their weight, the last of several."""
    loops = weight.new_full((graph.num_rows,), fill)
    there = graph.once("loops", lambda: (graph.col == graph.row).nonzero().flatten())
    if not len(there):  # so that no edge is left out
        return permuted(torch.cat([weight, loops]), graph.looped_edge_id, lambda: graph.looped_edge_place)
    loops[graph.row[there]] = in_rows(graph, weight)[there]
    return torch.cat([weight, loops]).index_select(0, graph.looped_edge_id)


def in_edge_index(graph: Graph, value: Tensor, *, looped: bool) -> Tensor:
    """The way back: from the order of rows to PyG's, in which added loops follow the other edges."""
    if looped:
        return value.index_select(0, graph.looped_edge_place)
    return permuted(value, graph.edge_place, lambda: graph.edge_id)


def permuted(value: Tensor, order: Tensor | None, back: Callable[[], Tensor | None]) -> Tensor:
    """Put rows in another order, if any; its inverse, `back`, is the gradient's, so that nothing is scattered."""
    return value if order is None else _Permuted.apply(value, order, back)


class _Permuted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, order: Tensor, back: Callable[[], Tensor]) -> Tensor:
        ctx.orders = order, back
        return value.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        order, back = ctx.orders
        return _Permuted.apply(grad, back(), lambda: order), None, None


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


def once(make: Callable[[Graph, torch.dtype], T], graph: Graph, dtype: torch.dtype) -> T:
    """`make(graph, dtype)`, computed once and kept on the graph."""
    key = make.__name__, dtype
    if torch.compiler.is_compiling() or key not in graph.cache:
        _keep(make, graph.handle, dtype)
    kept: T = graph.cache[key]
    return kept


# torch.compile cannot trace these: they run when tracing reaches them, so that the lookup that follows succeeds.


@torch.compiler.assume_constant_result
def _add_self_loops(handle: str) -> None:
    _ = handles.find(handle).with_self_loops


@torch.compiler.assume_constant_result
def _keep(make: Callable[[Graph, torch.dtype], Any], handle: str, dtype: torch.dtype) -> None:
    graph: Graph = handles.find(handle)
    graph.once((make.__name__, dtype), lambda: make(graph, dtype))
