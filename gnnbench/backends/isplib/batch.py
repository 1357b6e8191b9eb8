"""A batch of sampled neighbourhoods as it grows: nodes of each type, edges of each relation, where nodes stand."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.errors import ConfigError, GraphError
from gnnbench.graph.layout import MAX_INT32

native = _compiled.load("sample")
BY_NODE = 1 << 22  # nodes of a type, beyond which positions are in a hash table
MOST = 1 << 30  # nodes of a batch in disjoint trees


class How(NamedTuple):
    """How edges of rows are drawn."""

    replace: bool
    last: bool
    limit: Tensor | None  # [trees] int64, the latest time of each


class Asked(NamedTuple):
    """Name what is to be drawn of each of n rows."""

    fanout: Tensor  # [n] int64, so many edges; -1: all
    stream: Tensor  # [n] int64, by random numbers of this stream


class Rows:
    """In-edges of the destinations of a relation in rows.

    Args:
        rowptr: [num_rows + 1] int64, where rows begin.
        col: [E] int32 or int64, the sources of their edges in any order, or by `time`.
        edge_id: [E] int32, the names of edges; None for their places in `col`.
        num_cols: the number of sources; None for as many as rows.
        weight: [E] float64, to draw edges by; None for each as likely as another.
        time: [E] int64, ascending in each row; None for edges that are of any time.

    Raises:
        GraphError: other types, shapes or devices.
    """

    def __init__(
        self,
        rowptr: Tensor,
        col: Tensor,
        edge_id: Tensor | None = None,
        *,
        num_cols: int | None = None,
        weight: Tensor | None = None,
        time: Tensor | None = None,
    ) -> None:
        _check("rowptr", rowptr, torch.int64)
        _check("col", col, torch.int32, torch.int64)
        given = {"edge_id": (edge_id, torch.int32), "weight": (weight, torch.float64), "time": (time, torch.int64)}
        for name, (values, dtype) in given.items():
            if values is not None:
                _check(name, values, dtype)
                if values.numel() != col.numel():
                    raise GraphError(
                        f"{name} must have as many entries as col, {col.numel()}, not {values.numel()}"
                    )
        if not rowptr.numel():
            raise GraphError("rowptr must have an entry more than there are nodes")
        self.rowptr, self.col, self.edge_id, self.weight, self.time = rowptr, col, edge_id, weight, time
        self.num_rows = rowptr.numel() - 1
        self.num_cols = self.num_rows if num_cols is None else num_cols
        self.columns = {"col" if col.dtype == torch.int32 else "wide_col": col, "edge_id": edge_id}


class Positions:
    """Where nodes stand in a batch, counted from `base`, which rises so that nothing has to be cleared.

    A number for each node of the graph, or, of a large graph and in trees, a hash table that grows with the
    largest batch.
    """

    def __init__(self, num_nodes: int, by_table: bool = False) -> None:
        by_table = by_table or num_nodes > BY_NODE
        self.position = None if by_table else torch.zeros(num_nodes, dtype=torch.int32)
        self.table = torch.zeros(2, 2, dtype=torch.int32) if by_table else None
        self.num_nodes, self.base = num_nodes, 1

    def start_batch(self, size: int) -> None:
        """Start a batch of at most `size` nodes."""
        if self.base + size > MAX_INT32:
            for kept in (self.position, self.table):
                if kept is not None:
                    kept.zero_()
            self.base = 1

    def put(self, seeds: Tensor, node: Tensor, tree: Tensor | None) -> bool:
        """Give seeds [n] int64 the first places, and write them to node [n]; False where one is no node."""
        return native.start(seeds=seeds, node=node, tree=tree, count=len(seeds), **self.fields())

    def make_room(self, node: Tensor, tree: Tensor | None, size: int) -> None:
        """In the table, for `size` nodes, of which `node`, of the trees `tree`, are there."""
        if self.table is not None and len(self.table) < 2 * size:
            self.table = torch.zeros(1 << (2 * size - 1).bit_length(), 2, dtype=torch.int32)
            self.put(node.long(), node, tree)

    def of(self, node: Tensor) -> Tensor:
        """Places [n] int64 of nodes [n] int32 in the batch; -1 of one that is not there."""
        place = torch.empty(len(node), dtype=torch.int64)
        native.places(node=node, place=place, count=len(node), **self.fields())
        return place

    def fields(self) -> dict[str, Any]:
        """The fields by which kernels take positions."""
        mask = 0 if self.table is None else len(self.table) - 1
        sizes = {"num_nodes": self.num_nodes, "base": self.base, "mask": mask}
        return {"position": self.position, "table": self.table, **sizes}


class Nodes:
    """The nodes of one type in a batch, by their places; those from `first` to `end` are sampled in this hop.

    Attributes:
        node: [count or more] int32.
        tree: the same of the seeds that nodes were reached from; None where all share nodes.
        num_nodes: seeds, then those that each hop added.
    """

    def __init__(self, positions: Positions, seeds: Tensor, tree: Tensor | None) -> None:
        """Begin with seeds [n] int64, of trees [n] int32 of their own or of none."""
        self.positions, self.tree = positions, tree
        self.first, self.end = 0, len(seeds)
        self.count, self.num_nodes = self.end, [self.end]
        self.node = torch.empty(self.end, dtype=torch.int32)
        in_graph = positions.num_nodes
        if in_graph + self.end > MAX_INT32:
            raise GraphError(f"{in_graph} nodes and {self.end} seeds are more than 2^31 - 1 together")
        positions.start_batch(MOST if tree is not None else in_graph + self.end)
        positions.make_room(self.node[:0], None, self.end)
        if not positions.put(seeds, self.node, tree):
            wrong = seeds[(seeds < 0) | (seeds >= in_graph)][0]
            raise ConfigError(f"there is no node {int(wrong)}; the {in_graph} nodes are numbered from 0")

    def relabel(self, edges: Edges, begin: int, destinations: Nodes) -> None:
        """Give the sources of edges from `begin` on their places, of which new ones are added."""
        end = edges.row.numel()
        room = self.count + end - begin
        if self.tree is not None and room >= MOST:
            raise GraphError(f"a batch has more than {MOST} nodes in disjoint trees")
        known = slice(self.count)
        self.node = _grown(self.node[known], room + 1)
        row_tree = destinations.tree  # before it grows, where both are one
        if self.tree is not None:
            self.tree = _grown(self.tree[known], room + 1)
        self.positions.make_room(self.node[known], None if self.tree is None else self.tree[known], room)
        sizes = {"begin": begin, "end": end, "count": self.count, "room": room + 1}
        trees = {"row_tree": row_tree, "tree": self.tree, "rows": 0 if row_tree is None else len(row_tree)}
        columns = {"row": edges.row, "out_col": edges.col, "node": self.node}
        self.count = native.relabel(**columns, **sizes, **trees, **self.positions.fields())

    @property
    def last(self) -> Tensor:
        """[n] int32, the nodes that are sampled in this hop."""
        return self.node[self.first : self.end]

    def end_hop(self) -> None:
        self.first, self.end = self.end, self.count
        self.num_nodes.append(self.end - self.first)

    def trees(self) -> Tensor:
        """[count] int64."""
        assert self.tree is not None
        return self.tree[: self.count].long()

    def release(self) -> Positions:
        """Give up the positions, of which the next batch has those that follow."""
        self.positions.base += self.count
        return self.positions


class Edges:
    """The edges of one relation in a batch, with those of each hop in `num_edges`."""

    def __init__(self) -> None:
        self.row = self.col = self.edge = torch.empty(0, dtype=torch.int64)
        self.num_edges = list[int]()

    def add_hop(self, rows: Rows, sources: Nodes, destinations: Nodes, asked: Asked, key: int, how: How) -> None:
        """Draw from the rows of the destinations that the hop before added, and add their sources."""
        self.num_edges.append(0)
        if not asked.fanout.any():
            return
        done = self.row.numel()
        drawn, longest = counted(rows, destinations, asked.fanout, how, done)
        end = int(drawn["offset"][-1])
        self.row, self.col, self.edge = (_grown(values, end) for values in (self.row, self.col, self.edge))
        seen = torch.zeros((longest + 63) // 64, dtype=torch.int64)
        out = {"row": self.row, "out_col": self.col, "edge": self.edge, "seen": seen, "words": len(seen)}
        if rows.weight is not None:
            scratch = torch.empty(longest, dtype=torch.float64)
            out |= {"weight": rows.weight, "scratch": scratch, "most": longest}
        sizes = {"num_nodes": rows.num_cols, "num_edges": rows.col.numel(), "first": destinations.first}
        how_drawn = {"stream": asked.stream, "key": key, "replace": how.replace}
        wrong = native.draw(**rows.columns, **drawn, **sizes, **out, **how_drawn)
        if wrong == 1:
            raise GraphError(f"col has an index outside the range of 0 to {rows.num_cols - 1}")
        if wrong:
            raise ConfigError("the weights of all edges of a node are zero, so that none can be drawn by them")
        self.num_edges[-1] = end - done
        sources.relabel(self, done, destinations)

    @staticmethod
    def between(rows: Rows, sources: Nodes, destinations: Nodes) -> Edges:
        """All edges between nodes of a batch."""
        edges = Edges()
        sizes = {"num_rows": rows.num_rows, "num_edges": rows.col.numel(), "count": destinations.count}
        given = {"rowptr": rows.rowptr, "node": destinations.node[: destinations.count], **rows.columns}
        given |= sources.positions.fields()
        count = native.induce(**given, **sizes)
        if count < 0:
            raise GraphError(f"rows reach out of the {rows.col.numel()} edges or of {rows.num_cols} nodes")
        edges.row, edges.col, edges.edge = (edges.row.new_empty(count) for _ in range(3))
        native.induce(**given, **sizes, row=edges.row, out_col=edges.col, edge=edges.edge, edges=count)
        return edges


def counted(
    rows: Rows, destinations: Nodes, fanout: Tensor, how: How, done: int = 0
) -> tuple[dict[str, Any], int]:
    """Count the edges to draw in a hop, behind `done`: fields for kernels, and the longest row to draw from."""
    count = len(fanout)
    begin, degree, offset = (fanout.new_empty(size) for size in (count, count, count + 1))
    offset[0] = done
    drawn = {"begin": begin, "degree": degree, "offset": offset, "count": count, "fanout": fanout}
    times: dict[str, Any] = {}
    if rows.time is not None and how.limit is not None and destinations.tree is not None:
        tree = destinations.tree[destinations.first : destinations.end]
        times = {"time": rows.time, "limit": how.limit, "tree": tree, "trees": len(how.limit), "last": how.last}
    given = {"rowptr": rows.rowptr, "num_rows": rows.num_rows, "node": destinations.last, "replace": how.replace}
    longest = native.count(**given, **drawn, **times, num_edges=rows.col.numel())
    if longest < 0:
        raise GraphError(f"rowptr does not rise from 0 to the number of edges, {rows.col.numel()}")
    return drawn, longest


def _grown(values: Tensor, size: int) -> Tensor:
    out = values.new_empty(size)
    out[: values.numel()] = values
    return out


def _check(name: str, values: Tensor, *dtypes: torch.dtype) -> None:
    if values.dim() != 1 or values.dtype not in dtypes or not values.is_cpu or not values.is_contiguous():
        raise GraphError(
            f"{name} is {values.dtype} of shape {list(values.shape)} on {values.device}, but must be a contiguous "
            f"vector of {' or '.join(map(str, dtypes))} in main memory"
        )
