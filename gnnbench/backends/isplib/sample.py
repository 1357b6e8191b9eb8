"""Sampled neighbourhoods of seed nodes, by `cython_kernels/sample.pyx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.isplib.batch import Asked, Edges, How, Nodes, Positions, Rows, counted, native
from gnnbench.errors import ConfigError, GraphError
from gnnbench.graph import Compressed, CSRBuilder, Graph
from gnnbench.graph.layout import check_size

CPU = torch.device("cpu")
GOLDEN = 0x9E3779B97F4A7C15  # far from each other are its multiples in 64 bits: keys of relations
NODE, EDGE = "", ("", "", "")  # of graphs without types
Relation = tuple[str, str, str]  # types of the sources and destinations of its edges, its name between them


class Sample(NamedTuple):
    """n nodes and e edges, hop by hop; edge i runs from `node[row[i]]` to `node[col[i]]`."""

    node: Tensor  # [n] int64, the seeds first
    row: Tensor  # [e] int64
    col: Tensor  # [e] int64, ascending
    edge: Tensor  # [e] int64, by `edge_id`, or by their places in the rows where there is none
    num_nodes: list[int]  # seeds, then those that each hop added
    num_edges: list[int]  # of each hop
    elsewhere: int = 0  # other edges of the batch that it is a part of

    @property
    def total(self) -> int:
        """How many edges the batch has."""
        return self.row.numel() + self.elsewhere

    @property
    def edges(self) -> SampledEdges:
        """All of them, between any two of the nodes."""
        return SampledEdges(self.row, self.col, self.node.numel(), self.node.numel())

    def hops(self) -> list[SampledEdges]:
        """For each layer of a model, the edges to the nodes that the layers after it gather from.

        Those of the first layer come from all nodes; those of the last go to the seeds.
        """
        nodes, edges = [*accumulate(self.num_nodes)], [*accumulate(self.num_edges)]
        return [
            SampledEdges(self.row[:end], self.col[:end], rows, cols)
            for end, rows, cols in zip(edges[::-1], nodes[-2::-1], nodes[:0:-1], strict=True)
        ]


class SampledEdges(NamedTuple):
    """Edges of a sample: from `row[i]`, one of the first `num_cols` nodes, to `col[i]`, one of `num_rows`."""

    row: Tensor  # [e] int64
    col: Tensor  # [e] int64, ascending
    num_rows: int
    num_cols: int

    @property
    def edge_index(self) -> Tensor:
        """[2, e] int64."""
        return torch.stack([self.row, self.col])

    @torch.inference_mode(False)
    def graph(self, device: torch.device = CPU, layout: CSRBuilder | None = None) -> Graph:
        """In rows on `device`, with the transpose: counted, never sorted.

        Raises:
            GraphError: edges that do not come by destination or name no node, or more than 2^31 - 1 of them.
        """
        row, col, rows, cols = self
        edges = row.numel()
        check_size(rows, cols, edges)
        rowptr, turned_rowptr = row.new_empty(rows + 1), row.new_empty(cols + 1)
        out_col, turned_col, perm = (torch.empty(edges, dtype=torch.int32) for _ in range(3))
        out = rowptr, out_col, turned_rowptr, turned_col, perm
        cursor = row.new_empty(max(rows, cols))
        names = "rowptr", "col", "turned_rowptr", "turned_col", "perm"
        sizes = {"rows": rows, "cols": cols, "edges": edges, "most": cursor.numel()}
        given = {"row": row.contiguous(), "place": col.contiguous(), "cursor": cursor}
        if not native.compress(**given, **dict(zip(names, out, strict=True)), **sizes):
            raise GraphError(
                f"the edges of a batch must come by destination, and lead from {cols} nodes to the first {rows}"
            )
        symmetric = torch.equal(rowptr, turned_rowptr) and torch.equal(out_col, turned_col)
        rowptr, out_col, *turned = (values.to(device) for values in out)
        graph = Graph(rowptr, out_col, cols, None, layout)
        return graph.known(is_symmetric=symmetric, transposed=Compressed(*turned))


class TypedSample(NamedTuple):
    """Nodes by type and edges by relation, hop by hop; edge i of a relation runs from place row[i] to col[i]."""

    node: dict[str, Tensor]  # [n] int64, seeds first
    row: dict[Relation, Tensor]  # [e] int64, places among the nodes of the relation's first type
    col: dict[Relation, Tensor]  # [e] int64, ascending, among those of its last
    edge: dict[Relation, Tensor]  # [e] int64, by `edge_id`, or by their places in the rows where there is none
    num_nodes: dict[str, list[int]]  # seeds, then those that each hop added
    num_edges: dict[Relation, list[int]]  # of each hop
    tree: dict[str, Tensor] | None = None  # [n] int64, the seed that a node was reached from, in disjoint trees
    elsewhere: int = 0  # other edges of the batch that it is a part of

    @property
    def total(self) -> int:
        """How many edges the batch has, of all relations."""
        return sum(row.numel() for row in self.row.values()) + self.elsewhere

    @property
    def sizes(self) -> dict[str, int]:
        """How many nodes there are of each type."""
        return {type_: node.numel() for type_, node in self.node.items()}

    @property
    def edges(self) -> dict[Relation, SampledEdges]:
        """All of them, by relation, from the nodes of its first type to those of its last."""
        sizes = self.sizes
        return {
            relation: SampledEdges(row, self.col[relation], sizes[relation[2]], sizes[relation[0]])
            for relation, row in self.row.items()
        }


class TypedNeighbors:
    """In-edges in rows by relation. A batch is the work of one thread; many may sample at once.

    Args:
        num_nodes: by type.
        rows: by relation, those of its destinations.

    Raises:
        ConfigError: a relation between types that are none.
        GraphError: rows that do not fit the numbers of nodes, or more than 2^31 - 1 nodes of a type.
    """

    def __init__(self, num_nodes: Mapping[str, int], rows: Mapping[Relation, Rows]) -> None:
        self.num_nodes, self.rows = dict(num_nodes), dict(rows)
        for relation, of in rows.items():
            source, _, destination = relation
            if missing := {source, destination} - num_nodes.keys():
                types = ", ".join(map(repr, num_nodes))
                raise ConfigError(
                    f"relation {relation} is of node type {missing.pop()!r}, but there are only {types}"
                )
            if (num_nodes[destination], num_nodes[source]) != (of.num_rows, of.num_cols):
                raise GraphError(
                    f"relation {relation} has rows of {of.num_rows} nodes from {of.num_cols}, but there are "
                    f"{num_nodes[destination]} of type {destination!r} and {num_nodes[source]} of {source!r}"
                )
        for size in num_nodes.values():
            check_size(size, size, 0)
        self._positions: dict[tuple[str, bool], list[Positions]] = {}  # that no thread uses at the moment

    def __reduce__(self) -> tuple[Any, ...]:
        return TypedNeighbors, (self.num_nodes, self.rows)

    @torch.inference_mode(False)
    def sample(
        self,
        seeds: Mapping[str, Tensor],
        fanouts: Mapping[Relation, Sequence[int]],
        key: int,
        *,
        replace: bool = False,
        disjoint: bool = False,
        limit: Tensor | None = None,
        last: bool = False,
        induced: bool = False,
    ) -> TypedSample:
        """A batch; the same for the same arguments.

        Args:
            seeds: [n] int64 by type; repeated ones are nodes of their own with the edges from them at the first.
            fanouts: in-edges to sample of each node that the hop before added, -1 for all, by relation and hop.
            key: 64 bits, the source of all random numbers.
            replace: whether an edge can be drawn more than once.
            disjoint: give every seed nodes of its own, of which `tree` then tells.
            limit: [n] int64 over all seeds, which have trees then: none gets an edge with a later time.
            last: take the last edges up to that, instead of any of them.
            induced: take all edges between the nodes of the batch in the end, instead of those that led to them.

        Raises:
            ConfigError: a seed that is no node, or edges to draw by weights that are all zero.
            GraphError: rows that reach out of `col`, or name what is no node.
        """
        count = sum(map(len, seeds.values()))
        if limit is not None and len(limit) != count:
            raise ConfigError(f"there are {count} seeds, but {len(limit)} times of seeds")
        batch = _Growing(self, seeds, How(replace, last, limit), disjoint or limit is not None)
        for hop in range(_depth(fanouts)):
            batch.add_hop(batch.all(fanouts, hop), key)
        return batch.end(induced)

    @torch.inference_mode(False)
    def sample_at(
        self,
        seeds: Mapping[str, Tensor],
        fanouts: Mapping[Relation, Sequence[int]],
        key: int,
        places: Mapping[str, Tensor],
        hops: int,
        *,
        replace: bool = False,
    ) -> TypedSample:
        """Draw what leads to some seeds in so many hops, edge for edge as `sample` does for all.

        By themselves they would have others: an edge is drawn by the place of its destination in the batch, and as
        one of the hop that reaches this first. The last hop, which most edges are of, is drawn for these alone.

        Args:
            seeds: by type, none twice; with `fanouts`, `key` and `replace` as of `sample`, whose errors it raises.
            places: [n] int64 of some of them, each once, by type.
        """
        how, last = How(replace, last=False, limit=None), _depth(fanouts) - 1
        whole = _Growing(self, seeds, how)
        for hop in range(last):
            whole.add_hop(whole.all(fanouts, hop), key)
        total = whole.total + whole.count(whole.all(fanouts, last))
        own = _Growing(self, {type_: of_type[places[type_]] for type_, of_type in seeds.items()}, how)
        for _ in range(hops):
            own.add_hop(own.as_in(whole, fanouts), key)
        whole.end()
        drawn = own.end()
        return drawn._replace(elsewhere=total - drawn.total)

    def take(self, type_: str, by_table: bool) -> Positions:
        """Take positions of nodes of a type that no thread uses, until they are put back."""
        try:  # rather than ask first, as another thread may take the last
            return self._positions.setdefault((type_, by_table), []).pop()
        except IndexError:
            return Positions(self.num_nodes[type_], by_table)

    def put_back(self, type_: str, by_table: bool, positions: Positions) -> None:
        self._positions[type_, by_table].append(positions)


class _Growing:
    """A batch to which hops are added.

    Args:
        disjoint: whether every seed has nodes of its own.
    """

    def __init__(
        self, neighbors: TypedNeighbors, seeds: Mapping[str, Tensor], how: How, disjoint: bool = False
    ) -> None:
        if unknown := seeds.keys() - neighbors.num_nodes.keys():
            known = ", ".join(map(repr, neighbors.num_nodes))
            raise ConfigError(f"there is no node type {unknown.pop()!r}, only {known}")
        self.neighbors, self.how, self.disjoint = neighbors, how, disjoint
        first = dict(zip(seeds, accumulate(map(len, seeds.values()), initial=0), strict=False))
        self.nodes = dict[str, Nodes]()
        for type_ in neighbors.num_nodes:
            of_type = seeds.get(type_, torch.empty(0)).to(torch.int64).contiguous()
            trees = torch.arange(len(of_type), dtype=torch.int32) + first.get(type_, 0) if disjoint else None
            self.nodes[type_] = Nodes(neighbors.take(type_, disjoint), of_type, trees)
        self.edges = {relation: Edges() for relation in neighbors.rows}

    @property
    def total(self) -> int:
        """Edges so far."""
        return sum(each.row.numel() for each in self.edges.values())

    def all(self, fanouts: Mapping[Relation, Sequence[int]], hop: int) -> dict[Relation, Asked]:
        """Ask for the edges of a hop of every destination that the one before added, by its place in the batch."""
        asked = {}
        for relation, of_hops in fanouts.items():
            to = self.nodes[relation[2]]
            asked[relation] = Asked(torch.full((len(to.last),), of_hops[hop]), torch.arange(to.first, to.end))
        return asked

    def as_in(self, whole: _Growing, fanouts: Mapping[Relation, Sequence[int]]) -> dict[Relation, Asked]:
        """Ask for the edges that destinations have in another batch, by place and hop there; none of others."""
        place, hop = {}, {}
        for type_, there in whole.nodes.items():
            place[type_] = there.positions.of(self.nodes[type_].last)
            of_place = torch.bucketize(place[type_], torch.tensor(there.num_nodes).cumsum(0), right=True)
            hop[type_] = of_place.where(place[type_] >= 0, _depth(fanouts))
        return {
            relation: Asked(torch.tensor([*of_hops, 0])[hop[relation[2]]], place[relation[2]])
            for relation, of_hops in fanouts.items()
        }

    def count(self, asked: Mapping[Relation, Asked]) -> int:
        """Count the edges that a hop would add."""
        rows, nodes, total = self.neighbors.rows, self.nodes, 0
        for relation, each in asked.items():
            drawn, _ = counted(rows[relation], nodes[relation[2]], each.fanout, self.how)
            total += int(drawn["offset"][-1])
        return total

    def add_hop(self, asked: Mapping[Relation, Asked], key: int) -> None:
        for number, (relation, rows) in enumerate(self.neighbors.rows.items()):
            own = (key + number * GOLDEN + 2**63) % 2**64 - 2**63
            ends = self.nodes[relation[0]], self.nodes[relation[2]]
            self.edges[relation].add_hop(rows, *ends, asked[relation], own, self.how)
        for each in self.nodes.values():
            each.end_hop()

    def end(self, induced: bool = False) -> TypedSample:
        """The batch, with all edges between its nodes where it is to be induced."""
        nodes, edges = self.nodes, self.edges
        if induced:
            rows = self.neighbors.rows.items()
            edges = {name: Edges.between(each, nodes[name[0]], nodes[name[2]]) for name, each in rows}
        for type_, each in nodes.items():
            self.neighbors.put_back(type_, self.disjoint, each.release())
        return TypedSample(
            {type_: each.node[: each.count].long() for type_, each in nodes.items()},
            {relation: each.row for relation, each in edges.items()},
            {relation: each.col for relation, each in edges.items()},
            {relation: each.edge for relation, each in edges.items()},
            {type_: each.num_nodes for type_, each in nodes.items()},
            {relation: each.num_edges for relation, each in edges.items()},
            {type_: each.trees() for type_, each in nodes.items()} if self.disjoint else None,
        )


def _depth(fanouts: Mapping[Relation, Sequence[int]]) -> int:
    return max(map(len, fanouts.values()), default=0)


class Neighbors:
    """The in-edges of N nodes of one type in rows, sampled as by `TypedNeighbors`.

    Args:
        rowptr: [N + 1] int64, where rows begin.
        col: [E] int32 or int64, the sources of their edges in any order.
        edge_id: [E] int32, the names of edges; None for their places in `col`.

    Raises:
        GraphError: other types, shapes or devices, or more than 2^31 - 1 nodes.
    """

    def __init__(self, rowptr: Tensor, col: Tensor, edge_id: Tensor | None = None) -> None:
        rows = Rows(rowptr, col, edge_id)
        self.rowptr, self.col, self.edge_id, self.num_nodes = rowptr, col, edge_id, rows.num_rows
        self.typed = TypedNeighbors({NODE: rows.num_rows}, {EDGE: rows})

    def __reduce__(self) -> tuple[Any, ...]:
        return Neighbors, (self.rowptr, self.col, self.edge_id)

    def sample(self, seeds: Tensor, fanouts: Sequence[int], key: int, replace: bool = False) -> Sample:
        """A batch by the arguments of `TypedNeighbors.sample`, whose errors it raises."""
        return _of_one_type(self.typed.sample({NODE: seeds}, {EDGE: fanouts}, key, replace=replace))

    def sample_at(
        self,
        seeds: Tensor,
        fanouts: Sequence[int],
        key: int,
        places: Tensor,
        hops: int,
        replace: bool = False,
    ) -> Sample:
        """A part of a batch by the arguments of `TypedNeighbors.sample_at`, whose errors it raises."""
        given = {NODE: seeds}, {EDGE: fanouts}, key, {NODE: places}, hops
        return _of_one_type(self.typed.sample_at(*given, replace=replace))


def _of_one_type(typed: TypedSample) -> Sample:
    of_type = typed.node[NODE], typed.row[EDGE], typed.col[EDGE], typed.edge[EDGE]
    return Sample(*of_type, typed.num_nodes[NODE], typed.num_edges[EDGE], typed.elsewhere)
