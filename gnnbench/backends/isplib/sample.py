"""Sampled neighbourhoods of seed nodes, by `cython_kernels/sample.pyx`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.errors import ConfigError, GraphError
from gnnbench.graph import Compressed, CSRBuilder, Graph
from gnnbench.graph.check import MAX_INT32, check_size

native = _compiled.load("sample")
CPU = torch.device("cpu")
BY_NODE = 1 << 22  # nodes of a graph, beyond which positions are in a hash table


class Sample(NamedTuple):
    """n nodes and e edges, hop by hop; edge i runs from `node[row[i]]` to `node[col[i]]`."""

    node: Tensor  # [n] int64, the seeds first
    row: Tensor  # [e] int64
    col: Tensor  # [e] int64, ascending
    edge: Tensor  # [e] int64, by `edge_id`, or by their places in the rows where there is none
    num_nodes: list[int]  # seeds, then those that each hop added
    num_edges: list[int]  # of each hop

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


class _Positions:
    """Where nodes stand in a batch, counted from `base`, which rises so that nothing has to be cleared.

    A number for each node of the graph, or, of a large graph, a hash table that grows with the largest batch.
    """

    def __init__(self, num_nodes: int) -> None:
        self.position = torch.zeros(num_nodes, dtype=torch.int32) if num_nodes <= BY_NODE else None
        self.table = torch.zeros(0, 2, dtype=torch.int32) if self.position is None else None
        self.num_nodes, self.base = num_nodes, 1

    def start_batch(self, size: int) -> None:
        """Start a batch of at most `size` nodes."""
        if self.base + size > MAX_INT32:
            for kept in (self.position, self.table):
                if kept is not None:
                    kept.zero_()
            self.base = 1

    def put(self, seeds: Tensor, node: Tensor) -> bool:
        """Give seeds [n] int64 the first places, and write them to node [n]; False where one is no node."""
        self._make_room(node[:0], len(seeds))
        return self._put(seeds, node)

    def relabel(self, row: Tensor, begin: int, end: int, node: Tensor, count: int) -> int:
        """Places for the nodes in `row[begin:end]`, of which new ones are added to node[:count]; the new count."""
        self._make_room(node[:count], count + end - begin)
        sizes = {"begin": begin, "end": end, "count": count, "room": node.numel()}
        places: int = native.relabel(row=row[:end], node=node, **sizes, **self._fields())
        return places

    def _put(self, seeds: Tensor, node: Tensor) -> bool:
        known: bool = native.start(seeds=seeds, node=node, count=len(seeds), **self._fields())
        return known

    def _fields(self) -> dict[str, Any]:
        """The fields by which kernels take positions."""
        mask = 0 if self.table is None else len(self.table) - 1
        sizes = {"num_nodes": self.num_nodes, "base": self.base, "mask": mask}
        return {"position": self.position, "table": self.table, **sizes}

    def _make_room(self, node: Tensor, size: int) -> None:
        """In the table, for `size` nodes, of which `node` are there."""
        if self.table is not None and len(self.table) < 2 * size:
            self.table = torch.zeros(1 << (2 * size - 1).bit_length(), 2, dtype=torch.int32)
            self._put(node.long(), node)


class Neighbors:
    """The in-edges of N nodes in rows. A batch is the work of one thread; many may sample at once.

    Args:
        rowptr: [N + 1] int64, where rows begin.
        col: [E] int32 or int64, the sources of their edges in any order.
        edge_id: [E] int32, the names of edges; None for their places in `col`.

    Raises:
        GraphError: other types, shapes or devices, or more than 2^31 - 1 nodes.
    """

    def __init__(self, rowptr: Tensor, col: Tensor, edge_id: Tensor | None = None) -> None:
        _check("rowptr", rowptr, torch.int64)
        _check("col", col, torch.int32, torch.int64)
        if edge_id is not None:
            _check("edge_id", edge_id, torch.int32)
        if not rowptr.numel() or (edge_id is not None and edge_id.numel() != col.numel()):
            raise GraphError("rowptr must have an entry more than there are nodes, and edge_id as many as col")
        self.rowptr, self.col, self.edge_id = rowptr, col, edge_id
        self._columns = {"col" if col.dtype == torch.int32 else "wide_col": col, "edge_id": edge_id}
        self.num_nodes = rowptr.numel() - 1
        check_size(self.num_nodes, self.num_nodes, 0)
        self._positions: list[_Positions] = []  # that no thread uses at the moment

    def __reduce__(self) -> tuple[Any, ...]:
        return Neighbors, (self.rowptr, self.col, self.edge_id)

    @torch.inference_mode(False)
    def sample(self, seeds: Tensor, fanouts: Sequence[int], key: int, replace: bool = False) -> Sample:
        """A batch; the same for the same arguments.

        Args:
            seeds: [n] int64, repeated ones are nodes of their own with the edges from them at the first.
            fanouts: in-edges to sample of each node that the hop before added, -1 for all.
            key: 64 bits, the source of all random numbers.
            replace: whether an edge can be drawn more than once.

        Raises:
            ConfigError: a seed that is no node.
            GraphError: rows that reach out of `col`, or name what is no node.
        """
        seeds = seeds.to(torch.int64).contiguous()
        count = seeds.numel()
        if self.num_nodes + count > MAX_INT32:
            raise GraphError(f"{self.num_nodes} nodes and {count} seeds are more than 2^31 - 1 together")
        try:  # rather than ask first, as another thread may take the last
            positions = self._positions.pop()
        except IndexError:
            positions = _Positions(self.num_nodes)
        positions.start_batch(self.num_nodes + count)
        node = torch.empty(count, dtype=torch.int32)
        if not positions.put(seeds, node):
            wrong = seeds[(seeds < 0) | (seeds >= self.num_nodes)][0]
            raise ConfigError(f"there is no node {int(wrong)}; the {self.num_nodes} nodes are numbered from 0")
        row = col = edge = seeds.new_empty(0)
        first, end, num_nodes, num_edges = 0, 0, [count], list[int]()
        sizes = {"num_nodes": self.num_nodes, "num_edges": self.col.numel(), "replace": replace}
        for fanout in fanouts:
            rows, done = count - first, end
            begin, degree, offset = (seeds.new_empty(size) for size in (rows, rows, rows + 1))
            offset[0] = done
            drawn = {"begin": begin, "degree": degree, "offset": offset, "count": rows, "fanout": fanout}
            longest = native.count(rowptr=self.rowptr, node=node[first:count], **drawn, **sizes)
            if longest < 0:
                raise GraphError(f"rowptr does not rise from 0 to the number of edges, {self.col.numel()}")
            end = int(offset[-1])
            row, col, edge = (_grown(values, end) for values in (row, col, edge))
            node = _grown(node[:count], count + end - done + 1)
            seen = torch.zeros((longest + 63) // 64, dtype=torch.int64)
            out = {"row": row, "out_col": col, "edge": edge, "seen": seen, "words": len(seen)}
            if not native.draw(**self._columns, **drawn, **sizes, **out, first=first, key=key):
                raise GraphError(f"col has an index outside the range of 0 to {self.num_nodes - 1}")
            first, count = count, positions.relabel(row, done, end, node, count)
            num_nodes.append(count - first)
            num_edges.append(end - done)
        positions.base += count
        self._positions.append(positions)
        return Sample(node[:count].long(), row, col, edge, num_nodes, num_edges)


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
