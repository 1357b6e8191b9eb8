"""Union: many graphs side by side, checked and sorted once, from which batches are put together without a sort."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gnnbench.errors import GraphError
from gnnbench.graph import CSRBuilder, Graph, rows_of
from gnnbench.graph.layout import Members, Picked, check_edge_index, check_size


class Batched(NamedTuple):
    """A batch of B graphs with n nodes."""

    graph: Graph
    x: Tensor  # [n, ...]
    ptr: Tensor  # [B + 1] int64, where the nodes of each graph begin
    edge_attr: Tensor | None = None  # [e, ...], in the order of `graph.col`


class Union:
    """G graphs with N nodes and E edges; batches are numbered as by PyG's `Batch.from_data_list`.

    Batches come from any thread, and compiled code puts them together without Python's lock. `ids` [B] are any
    integers from 0 to G - 1, in any order, repeated or none.

    Args:
        graph_ptr: [G + 1], where the nodes of each graph begin, and their number.
        edge_ptr: [G + 1], the same of edges.
        edge_index: [2, E] source and destination, numbered from 0 in each graph; kept, so do not change it.
        layout: the code that sorts and concatenates edges; batches have it too.
        rows: False where `collate`, which alone needs a sort, is not wanted.

    Raises:
        GraphError: pointers that do not rise from 0 to the number of nodes or edges, an index out of range, or
            more than 2^31 - 1 nodes or edges.
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        graph_ptr: Tensor,
        edge_ptr: Tensor,
        edge_index: Tensor,
        layout: CSRBuilder | None = None,
        *,
        rows: bool = True,
    ) -> None:
        self.graph_ptr, self.edge_ptr = checked(graph_ptr, edge_ptr, edge_index)
        self._edge_index, self.layout = edge_index.to(torch.int32).contiguous(), layout or CSRBuilder()
        self._members: Members | None = None
        self._symmetric: Tensor | None = None  # which graphs are, [G] bool; None if all
        if rows:
            self._sort()

    def _sort(self) -> None:
        """Put the edges of all graphs in rows."""
        graph_ptr, edge_ptr, edge_index = self.graph_ptr, self.edge_ptr, self._edge_index
        num_nodes, counts = self.num_nodes, edge_ptr.diff()
        first_node, first_edge = (ptr[:-1].repeat_interleave(counts) for ptr in (graph_ptr, edge_ptr))
        src, dst = edge_index + first_node
        rowptr, col, edge_id = self.layout.csr(dst, src, num_nodes, num_nodes)
        transposed: tuple[Tensor | None, Tensor | None] = None, None
        if not self.layout.is_symmetric(rowptr, col):
            turned_rowptr, turned_col, _ = self.layout.transpose(rowptr, col, num_nodes)
            symmetric = torch.ones(graph_ptr.numel() - 1, dtype=torch.bool, device=graph_ptr.device)
            # Graphs of equal degrees have their rows in the same places, so that columns can be compared by place.
            rows_differ, cols_differ = turned_rowptr.diff() != rowptr.diff(), turned_col != col
            for ptr, differs in ((graph_ptr, rows_differ), (edge_ptr, cols_differ)):
                symmetric[_owner(ptr, differs.nonzero().flatten())] = False
            self._symmetric, transposed = symmetric, (turned_rowptr, turned_col.sub_(first_node))
        col.sub_(first_node)
        edge_id.sub_(first_edge)
        self._members = Members(graph_ptr, edge_ptr, rowptr, col, edge_id, *transposed)

    @property
    def num_nodes(self) -> int:
        return int(self.graph_ptr[-1])

    @property
    def num_edges(self) -> int:
        return self._edge_index.size(1)

    @torch.inference_mode(False)
    def collate(self, ids: Tensor, x: Tensor, edge_attr: Tensor | None = None) -> Batched:
        """The graphs `ids` as one, with their rows of x [N, ...] and edge_attr [E, ...].

        The graph equals `Graph.from_edge_index` of `edge_index(ids)`; with `edge_attr`, it counts edges in the
        order of its rows, as those of the result are.

        Raises:
            GraphError: an id that is no graph, more than 2^31 - 1 nodes or edges together, or x or edge_attr of
                others.
        """
        picked = self._picked(ids)
        graph, x = self._graph(picked), self._nodes(picked, x)
        if edge_attr is not None and graph.edge_id is not None:
            edge_attr, graph.edge_id = self._edges(picked, edge_attr).index_select(0, graph.edge_id), None
        return Batched(graph, x, picked.ptr, edge_attr)

    @torch.inference_mode(False)
    def edge_index(self, ids: Tensor) -> Tensor:
        """The `edge_index` of PyG's batch of these graphs, [2, e] int64; errors as `collate`."""
        return self.layout.edge_index(self.edge_ptr, self._picked(ids), self._edge_index)

    @torch.inference_mode(False)
    def gather(self, ids: Tensor, x: Tensor) -> Tensor:
        """The rows of x [N, ...], of any type, that belong to nodes of these graphs; errors as `collate`."""
        return self._nodes(self._picked(ids), x)

    @torch.inference_mode(False)
    def gather_edges(self, ids: Tensor, edge_attr: Tensor) -> Tensor:
        """The rows of edge_attr [E, ...] of these graphs, ordered as `edge_index(ids)`; errors as `collate`."""
        return self._edges(self._picked(ids), edge_attr)

    @torch.inference_mode(False)
    def ptr(self, ids: Tensor) -> Tensor:
        """Where the nodes of each of these graphs begin, and their number, [B + 1] int64."""
        return self._picked(ids).ptr

    def _picked(self, ids: Tensor) -> Picked:
        if ids.dim() != 1 or ids.is_floating_point() or ids.dtype == torch.bool:
            raise GraphError(f"ids are {ids.dtype} of shape {list(ids.shape)}, but must be a vector of integers")
        ids = ids.to(self.graph_ptr.device, torch.int64).contiguous()
        ptr, edge_ptr = self.layout.starts(self.graph_ptr, ids), self.layout.starts(self.edge_ptr, ids)
        picked = Picked(ids, ptr, edge_ptr, int(ptr[-1]), int(edge_ptr[-1]))
        check_size(picked.num_nodes, picked.num_nodes, picked.num_edges)
        return picked

    def _graph(self, picked: Picked) -> Graph:
        if self._members is None:
            raise GraphError("these graphs were not sorted; make the Union with rows=True")
        symmetric = self._symmetric is None or bool(self._symmetric[picked.ids].all())
        rows = self.layout.rows(self._members, picked, not symmetric)
        graph = Graph(rows.rowptr, rows.col, picked.num_nodes, rows.edge_id, self.layout)
        if rows.transposed_rowptr is None or rows.transposed_col is None:
            return graph.known(is_symmetric=True)
        transpose = Graph(rows.transposed_rowptr, rows.transposed_col, picked.num_nodes, None, self.layout)
        return graph.known(is_symmetric=False, transpose=transpose)

    def _edges(self, picked: Picked, edge_attr: Tensor) -> Tensor:
        _check_rows("edge_attr", edge_attr, self.num_edges, "edges")
        return self.layout.take(self.edge_ptr, picked.ids, picked.edge_ptr, picked.num_edges, edge_attr.detach())

    def _nodes(self, picked: Picked, x: Tensor) -> Tensor:
        _check_rows("x", x, self.num_nodes, "nodes")
        return self.layout.take(self.graph_ptr, picked.ids, picked.ptr, picked.num_nodes, x.detach())


def checked(graph_ptr: Tensor, edge_ptr: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """Copies of both pointers in int64; errors as `Union`."""
    check_edge_index(edge_index)
    graph_ptr, edge_ptr = _checked("graph_ptr", graph_ptr), _checked("edge_ptr", edge_ptr)
    if graph_ptr.numel() != edge_ptr.numel():
        raise GraphError(f"graph_ptr is of {graph_ptr.numel() - 1} graphs, but edge_ptr of {edge_ptr.numel() - 1}")
    num_nodes, num_edges = int(graph_ptr[-1]), edge_index.size(1)
    check_size(num_nodes, num_nodes, num_edges)
    if edge_ptr[-1] != num_edges:
        raise GraphError(f"edge_ptr ends at {int(edge_ptr[-1])}, but edge_index has {num_edges} edges")
    _check_range(graph_ptr, edge_ptr, edge_index)
    return graph_ptr, edge_ptr


@torch.inference_mode(False)
def readout(ptr: Tensor, layout: CSRBuilder) -> Graph:
    """The graph from the nodes of a batch to its graphs [B x n], whose row b holds the nodes of graph b.

    An spmm over it is PyG's `global_add_pool` or `global_mean_pool`, its maximum `global_max_pool`.
    """
    num_graphs, num_nodes = ptr.numel() - 1, int(ptr[-1])
    node = torch.arange(num_nodes + 1, device=ptr.device)
    graph = Graph(ptr, node[:-1].int(), num_nodes, None, layout)
    if num_graphs == num_nodes and torch.equal(ptr, node):  # graphs of one node each
        return graph.known(is_symmetric=True)
    owner = rows_of(ptr, num_nodes).int()
    return graph.known(is_symmetric=False, transpose=Graph(node, owner, num_graphs, None, layout))


def _owner(ptr: Tensor, place: Tensor) -> Tensor:
    """The graphs that nodes or edges belong to."""
    return torch.searchsorted(ptr, place, right=True) - 1


def _checked(name: str, ptr: Tensor) -> Tensor:
    """A copy in int64."""
    if ptr.dim() != 1 or not ptr.numel() or ptr.is_floating_point() or ptr.dtype == torch.bool:
        raise GraphError(f"{name} is {ptr.dtype} of shape {list(ptr.shape)}, but must be integers [G + 1]")
    ptr = ptr.to(torch.int64, copy=True).contiguous()
    if ptr[0] != 0:
        raise GraphError(f"{name} begins at {int(ptr[0])}, but must begin at 0")
    if bool((falls := ptr.diff() < 0).any()):
        graph = int(falls.nonzero()[0])
        raise GraphError(f"{name} falls from {int(ptr[graph])} to {int(ptr[graph + 1])} at graph {graph}")
    return ptr


def _check_range(graph_ptr: Tensor, edge_ptr: Tensor, edge_index: Tensor) -> None:
    sizes = graph_ptr.diff()
    limit = torch.repeat_interleave(sizes.int(), edge_ptr.diff(), output_size=edge_index.size(1))
    for name, index in zip(("source", "destination"), edge_index, strict=True):
        if bool((wrong := (index < 0) | (index >= limit)).any()):
            place = wrong.nonzero()[0]
            graph, end = int(_owner(edge_ptr, place)), int(index[place])
            nodes = f"graph {graph} has {int(sizes[graph])} nodes, numbered from 0"
            raise GraphError(f"{nodes}, but an edge with the {name} {end}")


def _check_rows(name: str, values: Tensor, size: int, unit: str) -> None:
    if not values.dim() or values.size(0) != size:
        raise GraphError(f"{name} has shape {list(values.shape)}, but there are {size} {unit}")
