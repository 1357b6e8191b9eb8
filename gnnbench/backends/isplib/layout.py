"""Sorting of edges into rows, by `cython_kernels/layout.pyx`."""

from __future__ import annotations

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.graph import Compressed

native = _compiled.load("layout")


class LayoutKernels(BaseKernels):
    """CSR, its transpose, symmetry and self-loops."""

    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        row, col = row.contiguous(), col.contiguous()
        out = _compressed(num_rows, row.numel())
        sizes = {"num_edges": row.numel(), "num_rows": num_rows, "num_cols": num_cols}
        native.sort(self.threads, coo_row=row, coo_col=col, **out._asdict(), **sizes)
        return out

    def transpose(self, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
        out = _compressed(num_cols, col.numel())
        sizes = {"num_edges": col.numel(), "num_rows": num_cols, "num_cols": rowptr.numel() - 1}
        native.sort(self.threads, csr_rowptr=rowptr, csr_col=col, **out._asdict(), **sizes)
        return out

    def is_symmetric(self, rowptr: Tensor, col: Tensor) -> bool:
        symmetric: bool = native.is_symmetric(self.threads, rowptr=rowptr, col=col, rows=rowptr.numel() - 1)
        return symmetric

    def is_of(
        self, rowptr: Tensor, col: Tensor, edge_id: Tensor | None, source: Tensor, destination: Tensor
    ) -> bool:
        given = {"source": source.contiguous(), "destination": destination.contiguous()}
        rows = {"rowptr": rowptr, "col": col, "edge_id": edge_id, "rows": rowptr.numel() - 1}
        same: bool = native.is_of(self.threads, **rows, **given)
        return same

    def with_self_loops(self, rowptr: Tensor, col: Tensor, num_cols: int, first: int = 0) -> tuple[Tensor, Tensor]:
        rows, out_rowptr = rowptr.numel() - 1, torch.empty_like(rowptr)
        if rows != num_cols:
            return super().with_self_loops(rowptr, col, num_cols, first)
        given = {"rowptr": rowptr, "col": col, "rows": rows, "out_rowptr": out_rowptr}
        native.self_loop_rows(**given)
        out_col = torch.empty(int(out_rowptr[-1]), dtype=torch.int32)
        native.self_loop_cols(self.threads, **given, out_col=out_col)
        return out_rowptr, out_col


def _compressed(rows: int, edges: int) -> Compressed:
    return Compressed(
        torch.empty(rows + 1, dtype=torch.int64),
        torch.empty(edges, dtype=torch.int32),
        torch.empty(edges, dtype=torch.int32),
    )
