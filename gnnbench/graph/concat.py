"""Slices of many graphs side by side, in plain torch: what a batch of graphs consists of."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from gnnbench.errors import GraphError


class Members(NamedTuple):
    """G graphs with N nodes and E edges in rows; nodes and edges are numbered from 0 in each graph.

    Graph g has the nodes `graph_ptr[g]:graph_ptr[g + 1]` and the edges `edge_ptr[g]:edge_ptr[g + 1]`.
    """

    graph_ptr: Tensor  # [G + 1] int64
    edge_ptr: Tensor  # [G + 1] int64
    rowptr: Tensor  # [N + 1] int64, of all graphs
    col: Tensor  # [E] int32
    edge_id: Tensor  # [E] int32, where each edge stands in its graph's edge_index
    transposed_rowptr: Tensor | None = None  # the same with all edges reversed; None where that changes nothing
    transposed_col: Tensor | None = None


class Picked(NamedTuple):
    """B graphs in the order of a batch, each as often as it is asked for."""

    ids: Tensor  # [B] int64
    ptr: Tensor  # [B + 1] int64, where the nodes of each begin
    edge_ptr: Tensor  # [B + 1] int64, where its edges begin
    num_nodes: int
    num_edges: int


class Rows(NamedTuple):
    """The CSR matrix of a batch, and its transpose if that was asked for."""

    rowptr: Tensor  # [n + 1] int64
    col: Tensor  # [e] int32
    edge_id: Tensor  # [e] int32
    transposed_rowptr: Tensor | None = None
    transposed_col: Tensor | None = None


class Concatenation:
    """How slices are put side by side: plain torch on any device, overridden by backends that are faster at it.

    `threads` are those of compiled code.
    """

    def starts(self, ptr: Tensor, ids: Tensor) -> Tensor:
        """Where the slices `ptr[id]:ptr[id + 1]` begin once they are side by side, and their end, [B + 1] int64.

        Raises:
            GraphError: an id that is no graph.
        """
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= ptr.numel() - 1):
            refuse(ids, ptr.numel() - 1)
        starts = torch.zeros(ids.numel() + 1, dtype=torch.int64, device=ptr.device)
        torch.cumsum(ptr[ids + 1] - ptr[ids], 0, out=starts[1:])
        return starts

    def take(
        self, ptr: Tensor, ids: Tensor, starts: Tensor, size: int, values: Tensor, threads: int = 1
    ) -> Tensor:
        """The slices `values[ptr[id]:ptr[id + 1]]` of any type, [size, ...]."""
        return values[_places(ptr, ids, starts, size)]

    def edge_index(self, edge_ptr: Tensor, picked: Picked, edge_index: Tensor, threads: int = 1) -> Tensor:
        """A batch's edges by its own numbers of nodes, [2, e] int64, from those of all graphs [2, E] int32."""
        edges = _places(edge_ptr, picked.ids, picked.edge_ptr, picked.num_edges)
        return edge_index[:, edges] + _spread(picked.ptr[:-1], picked.edge_ptr, picked.num_edges)

    def rows(self, members: Members, picked: Picked, transposed: bool, threads: int = 1) -> Rows:
        """The rows of a batch; `transposed` asks for those of its transpose, which `members` must have."""
        nodes = _places(members.graph_ptr, picked.ids, picked.ptr, picked.num_nodes)
        edges = _places(members.edge_ptr, picked.ids, picked.edge_ptr, picked.num_edges)
        moved = picked.edge_ptr[:-1] - members.edge_ptr[picked.ids]
        moved = torch.cat([_spread(moved, picked.ptr, picked.num_nodes), picked.edge_ptr[-1:]])
        first_node = _spread(picked.ptr[:-1].int(), picked.edge_ptr, picked.num_edges)
        first_edge = _spread(picked.edge_ptr[:-1].int(), picked.edge_ptr, picked.num_edges)

        def rowptr_of(rowptr: Tensor) -> Tensor:
            moved_rowptr = moved.clone()
            moved_rowptr[:-1] += rowptr[nodes]
            return moved_rowptr

        result = Rows(
            rowptr_of(members.rowptr), members.col[edges] + first_node, members.edge_id[edges] + first_edge
        )
        if not transposed:
            return result
        assert members.transposed_rowptr is not None
        assert members.transposed_col is not None
        return result._replace(
            transposed_rowptr=rowptr_of(members.transposed_rowptr),
            transposed_col=members.transposed_col[edges] + first_node,
        )


def refuse(ids: Tensor, num_graphs: int) -> NoReturn:
    """Raise the GraphError of ids [B] of which one is no graph."""
    wrong = ids[(ids < 0) | (ids >= num_graphs)][0]
    raise GraphError(f"there is no graph {int(wrong)}; the {num_graphs} graphs are numbered from 0")


def _places(ptr: Tensor, ids: Tensor, starts: Tensor, size: int) -> Tensor:
    """Where the elements of slices come from, [size] int64."""
    return _spread(ptr[ids] - starts[:-1], starts, size) + torch.arange(size, device=ptr.device)


def _spread(values: Tensor, starts: Tensor, size: int) -> Tensor:
    """One of `values` [B] for each element of its slice, [size]."""
    return torch.repeat_interleave(values, starts.diff(), output_size=size)
