"""CSRBuilder: how edges are sorted into rows, in plain torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gnnbench.graph.complement import Complement
from gnnbench.graph.concat import Concatenation
from gnnbench.graph.handles import Handled

if TYPE_CHECKING:
    from gnnbench.graph import Graph


class Compressed(NamedTuple):
    """Edges sorted by row, then column; `perm[i]` is where edge `i` stood before the sort."""

    rowptr: Tensor  # [N + 1] int64
    col: Tensor  # [E] int32
    perm: Tensor  # [E] int32


class CSRBuilder(Complement, Concatenation, Handled):
    """Sorts edges, puts graphs side by side and draws pairs that are no edges.

    In plain torch, overridden by backends that are faster at it.
    """

    def plan(self, graph: Graph) -> None:
        """Keep in `graph.cache` what kernels want of a graph before their first call; nothing here."""

    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        """Sort COO edges [E] (int64, within range) by row, then column; equal edges keep their order."""
        perm = torch.argsort(row * num_cols + col, stable=True)
        rowptr = torch.zeros(num_rows + 1, dtype=torch.int64, device=row.device)
        torch.cumsum(torch.bincount(row, minlength=num_rows), 0, out=rowptr[1:])
        return Compressed(rowptr, col[perm].int(), perm.int())

    def transpose(self, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
        """The rows of the transposed matrix; equal edges keep their order."""
        return self.csr(col.long(), rows_of(rowptr, col.numel()), num_cols, rowptr.numel() - 1)

    def is_symmetric(self, rowptr: Tensor, col: Tensor) -> bool:
        """Return whether a square matrix has the same rows as its transpose."""
        transposed = self.transpose(rowptr, col, rowptr.numel() - 1)
        return torch.equal(transposed.rowptr, rowptr) and torch.equal(transposed.col, col)

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
        out_rowptr = torch.zeros_like(rowptr)
        torch.cumsum(torch.bincount(torch.cat([row, loops]), minlength=num_rows), 0, out=out_rowptr[1:])
        return out_rowptr, out


def rows_of(rowptr: Tensor, num_edges: int) -> Tensor:
    """The row of every edge, [E] int64."""
    rows = torch.arange(rowptr.numel() - 1, device=rowptr.device)
    return torch.repeat_interleave(rows, rowptr.diff(), output_size=num_edges)
