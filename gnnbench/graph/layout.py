"""CSRBuilder: edges checked, sorted into rows and put side by side; pairs that are no edges; in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gnnbench.errors import GraphError
from gnnbench.graph.handles import Handled

if TYPE_CHECKING:
    from gnnbench.graph import Graph

MAX_INT32 = 2**31 - 1
SIGN, WORD = -(2**63), 2**32 - 1
GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # 2^64 over the golden ratio; as are the others, a word with its sign


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


class Compressed(NamedTuple):
    """Edges sorted by row, then column; `perm[i]` is where edge `i` stood before the sort."""

    rowptr: Tensor  # [N + 1] int64
    col: Tensor  # [E] int32
    perm: Tensor  # [E] int32


class CSRBuilder(Handled):
    """Sorts edges, puts graphs side by side and draws pairs that are no edges.

    In plain torch on any device, overridden by backends that are faster at it.
    """

    def plan(self, graph: Graph) -> None:
        """Keep in `graph.cache` what kernels want of a graph before their first call; nothing here."""

    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        """Sort COO edges [E] (int64, within range) by row, then column; equal edges keep their order."""
        perm = torch.argsort(row * num_cols + col, stable=True)
        return Compressed(ptr_of(torch.bincount(row, minlength=num_rows)), col[perm].int(), perm.int())

    def transpose(self, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
        """The rows of the transposed matrix; equal edges keep their order."""
        return self.csr(col.long(), rows_of(rowptr, col.numel()), num_cols, rowptr.numel() - 1)

    def is_symmetric(self, rowptr: Tensor, col: Tensor) -> bool:
        """Return whether a square matrix has the same rows as its transpose."""
        transposed = self.transpose(rowptr, col, rowptr.numel() - 1)
        return torch.equal(transposed.rowptr, rowptr) and torch.equal(transposed.col, col)

    def is_of(
        self, rowptr: Tensor, col: Tensor, edge_id: Tensor | None, source: Tensor, destination: Tensor
    ) -> bool:
        """Return whether the edges of rows are these [E] int64, each at its place `edge_id`."""
        if edge_id is not None:
            source, destination = source.index_select(0, edge_id), destination.index_select(0, edge_id)
        return bool((source == col).all() and (destination == rows_of(rowptr, col.numel())).all())

    def with_self_loops(self, rowptr: Tensor, col: Tensor, num_cols: int, first: int = 0) -> tuple[Tensor, Tensor]:
        """`rowptr` and `col` of a matrix with exactly one entry at every place of its diagonal.

        Args:
            first: the column where the diagonal begins.
        """
        num_rows, row = rowptr.numel() - 1, rows_of(rowptr, col.numel())
        loops, inner = torch.arange(min(num_rows, num_cols - first), device=col.device), col != row + first
        row, col = row[inner], col[inner]
        # Edges keep their order: each moves on by the loops before it, which are then what is left.
        before = row.clamp(max=len(loops)) + ((col > row + first) & (row < len(loops)))
        place = torch.arange(len(row), device=col.device) + before
        is_loop = torch.ones(len(row) + len(loops), dtype=torch.bool, device=col.device)
        is_loop[place] = False
        out = torch.empty_like(is_loop, dtype=torch.int32)
        out[place], out[is_loop] = col, (loops + first).int()
        return ptr_of(torch.bincount(torch.cat([row, loops]), minlength=num_rows)), out

    def starts(self, ptr: Tensor, ids: Tensor) -> Tensor:
        """Where the slices `ptr[id]:ptr[id + 1]` begin once they are side by side, and their end, [B + 1] int64.

        Raises:
            GraphError: an id that is no graph.
        """
        check_range("graph", ids, ptr.numel() - 1)
        return ptr_of(ptr[ids + 1] - ptr[ids])

    def take(self, ptr: Tensor, ids: Tensor, starts: Tensor, size: int, values: Tensor) -> Tensor:
        """The slices `values[ptr[id]:ptr[id + 1]]` of any type, [size, ...]."""
        return values[_places(ptr, ids, starts, size)]

    def edge_index(self, edge_ptr: Tensor, picked: Picked, edge_index: Tensor) -> Tensor:
        """A batch's edges by its own numbers of nodes, [2, e] int64, from those of all graphs [2, E] int32."""
        edges = _places(edge_ptr, picked.ids, picked.edge_ptr, picked.num_edges)
        return edge_index[:, edges] + _spread(picked.ptr[:-1], picked.edge_ptr, picked.num_edges)

    def rows(self, members: Members, picked: Picked, transposed: bool) -> Rows:
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

    def draw_pairs(
        self, rowptr: Tensor, col: Tensor, num_cols: int, rows: Tensor | None, count: int, seed: int
    ) -> Tensor:
        """Draw pairs (row, column) that are not in a matrix, each equally likely and independently.

        Nothing is drawn and rejected: of the pairs that are not there, in the order of rows, the one of a random
        rank is found by binary search.

        Args:
            rowptr, col: of the matrix, ascending and distinct in each row.
            rows: [count] int64, the row of each pair, which is not full; None where that is to be drawn too.

        Returns:
            [2, count] int64.
        """
        first = torch.arange(rowptr.numel() - 1, device=col.device) * num_cols
        place = first.repeat_interleave(rowptr.diff(), output_size=col.numel()) + col
        before = place - torch.arange(col.numel(), device=col.device)  # pairs that can be drawn and come first
        stream = _mix(_mix(torch.tensor(signed(seed), device=col.device)) + torch.arange(count, device=col.device))
        if rows is None:
            rank = _draw_below(stream, torch.full_like(stream, (rowptr.numel() - 1) * num_cols - col.numel()))
        else:
            rank = rows * num_cols - rowptr[rows] + _draw_below(stream, num_cols - rowptr[rows + 1] + rowptr[rows])
        place = rank + torch.searchsorted(before, rank, right=True)
        return torch.stack([place // num_cols, place % num_cols])


def ptr_of(counts: Tensor) -> Tensor:
    """Where each of so many [n] begins, and their sum, [n + 1] int64."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))


def rows_of(rowptr: Tensor, num_edges: int) -> Tensor:
    """The row of every edge, [E] int64."""
    rows = torch.arange(rowptr.numel() - 1, device=rowptr.device)
    return torch.repeat_interleave(rows, rowptr.diff(), output_size=num_edges)


def check_edge_index(edge_index: Tensor) -> None:
    """Raise GraphError for what cannot be the edges of any graph."""
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise GraphError(f"edge_index has shape {list(edge_index.shape)}, but must be [2, E]")
    if edge_index.is_floating_point() or edge_index.dtype == torch.bool:
        raise GraphError(f"edge_index has type {edge_index.dtype}, but must hold integers")


def check_size(num_rows: int, num_cols: int, num_edges: int) -> None:
    """Raise GraphError for more than 32 bits can number."""
    for name, count in (("rows", num_rows), ("columns", num_cols), ("edges", num_edges)):
        if not 0 <= count <= MAX_INT32:
            raise GraphError(f"a graph of {count} {name} is outside the range of 0 to {MAX_INT32}")


def check_range(name: str, index: Tensor, size: int) -> None:
    """Raise GraphError for an index that is not in 0 to `size` - 1."""
    if index.numel() and (int(index.min()) < 0 or int(index.max()) >= size):
        wrong = index[(index < 0) | (index >= size)][0]
        raise GraphError(f"{name} index {int(wrong)} is outside the range of 0 to {size - 1}")


def _places(ptr: Tensor, ids: Tensor, starts: Tensor, size: int) -> Tensor:
    """Where the elements of slices come from, [size] int64."""
    return _spread(ptr[ids] - starts[:-1], starts, size) + torch.arange(size, device=ptr.device)


def _spread(values: Tensor, starts: Tensor, size: int) -> Tensor:
    """One of `values` [B] for each element of its slice, [size]."""
    return torch.repeat_interleave(values, starts.diff(), output_size=size)


def _draw_below(stream: Tensor, n: Tensor) -> Tensor:
    """`draw_below` of `cython_kernels/random.h`: one of 0 to n - 1 for each stream, n > 0."""
    least = (((2**63 - 1) % n + 1) % n) * 2 % n  # 2^64 mod n
    drawn, todo = torch.empty_like(n), torch.arange(n.numel(), device=n.device)
    while todo.numel():
        stream[todo] += GOLDEN
        word, below = _mix(stream[todo]), n[todo]
        drawn[todo] = _high(word, below)
        todo = todo[(word * below ^ SIGN) < (least[todo] ^ SIGN)]
    return drawn


def _high(x: Tensor, n: Tensor) -> Tensor:
    """The upper word of the product of two, which have no sign."""
    x_low, x_high, n_low, n_high = x & WORD, _right(x, 32), n & WORD, _right(n, 32)
    middle = x_high * n_low + _right(x_low * n_low, 32)
    return x_high * n_high + _right(middle, 32) + _right(x_low * n_high + (middle & WORD), 32)


def _mix(x: Tensor) -> Tensor:
    """`mix` of `cython_kernels/random.h`."""
    x = (x ^ _right(x, 30)) * (0xBF58476D1CE4E5B9 - 2**64)
    x = (x ^ _right(x, 27)) * (0x94D049BB133111EB - 2**64)
    return x ^ _right(x, 31)


def _right(x: Tensor, bits: int) -> Tensor:
    """Shift a word that has no sign."""
    return (x >> bits) & (2 ** (64 - bits) - 1)


def signed(seed: int) -> int:
    """The lower 64 bits of a number, with a sign."""
    return ((seed + 2**63) & (2**64 - 1)) - 2**63
