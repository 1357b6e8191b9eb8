"""Edges of several relations, as pairs of a relation and a node that has edges of it, some nodes at a time."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.typing import EdgeType

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.graph.cache import stamp
from gnnbench.graph.layout import check_size


class Chunk(NamedTuple):
    """Some rows of a graph, and the pairs of a relation and one of them that have edges, sorted like that."""

    rows: slice
    pairs: Graph  # [pairs x columns]
    sums: Graph  # [rows x pairs]
    row: Tensor  # [pairs] int64, in the graph
    sizes: list[int]  # pairs by relation
    shares: Tensor  # [E] of every edge in the mean of its pair


class SourcePairs(NamedTuple):
    """A graph over the pairs of a relation and a source that have edges, sorted like that."""

    across: Graph  # [rows x pairs]
    within: Graph  # [rows * relations x pairs], a row of each relation, with the same edges in the same order
    source: Tensor  # [pairs] int64
    sizes: list[int]  # pairs by relation


class Relations:
    """The edges of a graph by relation.

    Args:
        graph: E edges.
        types: [E] int64, the relations of its edges in its order, each below `count`.
    """

    def __init__(self, graph: Graph, types: Tensor, count: int) -> None:
        self.graph, self.types, self.count = graph, types, count
        self._chunks: dict[Any, list[Chunk]] = {}

    def chunks(self, pairs: int, dtype: torch.dtype, *, reverse: bool = False) -> list[Chunk]:
        """All rows, or with `reverse` all columns, as many at once as have about that many pairs; kept."""
        edges = pairs * self.graph.num_edges // max(len(self._pairs[1]), 1)
        key = max(edges, 1), dtype, reverse
        if key not in self._chunks:
            self._chunks[key] = self.graph.computed(lambda: self._made(*key))
        return self._chunks[key]

    def _made(self, edges: int, dtype: torch.dtype, reverse: bool) -> list[Chunk]:
        graph, types, shares = self.graph, self.types, self._shares(dtype)
        if reverse:
            graph, types, shares = graph.transpose, types[graph.perm], shares[graph.perm]
        starts = graph.rowptr[:-1] // edges
        chunk = torch.zeros_like(starts)
        torch.cumsum(starts[1:] != starts[:-1], 0, out=chunk[1:])
        count = int(chunk[-1]) + 1 if len(chunk) else 0
        by_group, order, row, first = _sorted(graph, chunk[graph.row] * self.count + types, count * self.count)
        rowptr = torch.cat([first, first.new_tensor([graph.num_edges])])
        col, shares, row = graph.col[order], shares[order], row[first]
        pairs, places = torch.searchsorted(first, by_group).tolist(), by_group.tolist()
        rows = torch.searchsorted(chunk, torch.arange(count + 1, device=graph.device)).tolist()
        made = []
        for number, (begin, end) in enumerate(itertools.pairwise(rows)):
            groups = slice(number * self.count, (number + 1) * self.count + 1)
            (first_pair, *_, last_pair), (place, *_, last_place) = pairs[groups], places[groups]
            own = row[first_pair:last_pair]
            ends = torch.stack([torch.arange(len(own), device=graph.device), own - begin])
            edges_of = rowptr[first_pair : last_pair + 1] - place
            of_pairs = Graph(edges_of, col[place:last_place], graph.num_cols, None, graph.layout)
            sums = Graph.from_edge_index(ends, end - begin, len(own), layout=graph.layout)
            sizes = [after - before for before, after in itertools.pairwise(pairs[groups])]
            made.append(Chunk(slice(begin, end), of_pairs, sums, own, sizes, shares[place:last_place]))
        return made

    @cached_property
    def source_pairs(self) -> SourcePairs:
        """Every edge from the pair of its relation and its source; made at its first use, and kept."""
        return self.graph.computed(self._source_pairs)

    def _source_pairs(self) -> SourcePairs:
        graph, count = self.graph, self.count
        key, pair = torch.unique(self.types * graph.num_cols + graph.col, return_inverse=True)
        edges = torch.stack([pair, graph.row * count + self.types])
        within = Graph.from_edge_index(edges, graph.num_rows * count, len(key), layout=graph.layout)
        across = Graph(within.rowptr[::count].contiguous(), within.col, len(key), within.edge_id, graph.layout)
        relation = key.div(max(graph.num_cols, 1), rounding_mode="floor")
        sizes = torch.bincount(relation, minlength=count).tolist()
        return SourcePairs(across, within, key - relation * graph.num_cols, sizes)

    @cached_property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """The edges sorted by pair, and how many each pair has."""
        _, order, _, first = _sorted(self.graph, self.types, self.count)
        return order, torch.cat([first, first.new_tensor([self.graph.num_edges])]).diff()

    def _shares(self, dtype: torch.dtype) -> Tensor:
        order, sizes = self._pairs
        shares = torch.empty(self.graph.num_edges, dtype=dtype, device=self.graph.device)
        shares[order] = sizes.to(dtype).reciprocal().repeat_interleave(sizes)
        return shares


def relations(conv: Any, graph: Graph, edge_type: Tensor | None) -> Relations:
    """The relations of a graph's edges, kept on it for as long as they are these.

    Args:
        edge_type: [E] int64 in the order of PyG's `edge_index`.

    Raises:
        UnsupportedOp: not one relation of the conv for each edge.
    """
    name, count = type(conv).__name__, conv.num_relations
    if edge_type is None or edge_type.dtype != torch.int64 or edge_type.shape != (graph.num_edges,):
        raise UnsupportedOp(name, ["edge_type is not one whole number for each edge"])
    state = stamp(edge_type), edge_type.stride(), count
    seen, kept = graph.cache.get("relations", (None, None))
    if kept is None or state[0] is None or seen != state:
        if edge_type.numel() and not 0 <= int(edge_type.min()) <= int(edge_type.max()) < count:
            raise UnsupportedOp(name, ["edges have types that the conv has no relation for"])
        types = edge_type if graph.edge_id is None else edge_type[graph.edge_id]
        kept = Relations(graph, types.contiguous(), count)
        graph.cache["relations"] = state, kept
    made: Relations = kept
    return made


def by_relation(x: Tensor, weight: Tensor, sizes: list[int]) -> Tensor:
    """Multiply x [P, F], `sizes` rows of each relation, by weight [R, F, O] or its blocks [R, B, ., .]."""
    return torch.cat([_product(part, each) for part, each in zip(x.split(sizes), weight.unbind(), strict=True)])


def _product(x: Tensor, weight: Tensor) -> Tensor:
    if weight.dim() == 2:
        return x @ weight
    blocks, width, _ = weight.shape
    return torch.bmm(x.unflatten(1, (blocks, width)).transpose(0, 1), weight).transpose(0, 1).flatten(1)


def joined(graphs: dict[EdgeType, Graph], nodes: dict[str, int]) -> Graph:
    """The graphs of all relations as one, from the sources of each relation in turn to `nodes` of all types.

    It is kept on the first of them.
    """
    first, *_ = graphs.values()
    key = *nodes.items(), *((relation[-1], graph.handle) for relation, graph in graphs.items())
    known, made = first.cache.get("joined", (None, None))
    if known != key:
        made = first.computed(lambda: _joined(graphs, nodes, first))
        first.cache["joined"] = key, made
    graph: Graph = made
    return graph


def _joined(graphs: dict[EdgeType, Graph], nodes: dict[str, int], like: Graph) -> Graph:
    rows, columns = sum(nodes.values()), sum(graph.num_cols for graph in graphs.values())
    check_size(rows, columns, sum(graph.num_edges for graph in graphs.values()))
    starts = dict(zip(nodes, itertools.accumulate(nodes.values(), initial=0), strict=False))
    begins = {relation: starts[relation[-1]] for relation in graphs}
    own = {relation: slice(begin, begin + graphs[relation].num_rows) for relation, begin in begins.items()}
    rowptr = like.rowptr.new_zeros(rows + 1)
    for relation, graph in graphs.items():
        rowptr[1:][own[relation]] += graph.degree
    rowptr = rowptr.cumsum(0)
    col, filled, column = like.col.new_empty(int(rowptr[-1])), rowptr[:-1].clone(), 0
    for relation, graph in graphs.items():
        place = (filled[own[relation]] - graph.rowptr[:-1]).repeat_interleave(graph.degree)
        col[place + torch.arange(graph.num_edges, device=col.device)] = graph.col + column
        filled[own[relation]] += graph.degree
        column += graph.num_cols
    return Graph(rowptr, col, columns, None, like.layout)


def _sorted(graph: Graph, group: Tensor, groups: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sort edges by group and row: where groups begin, the edges, their rows, and the first edge of every pair."""
    place = torch.arange(graph.num_edges, device=graph.device)
    by_group, order, _ = graph.layout.csr(group, place, groups, max(graph.num_edges, 1))
    row = graph.row[order]
    begins = torch.ones_like(row, dtype=torch.bool)
    torch.ne(row[1:], row[:-1], out=begins[1:])
    begins[by_group[:-1][by_group.diff() > 0]] = True
    return by_group, order, row, begins.nonzero().flatten()
