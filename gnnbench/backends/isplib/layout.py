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
        native.sort(self.threads, row, col, None, None, *out, row.numel(), num_rows, num_cols)
        return out

    def transpose(self, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
        out = _compressed(num_cols, col.numel())
        sizes = col.numel(), num_cols, rowptr.numel() - 1
        native.sort(self.threads, None, None, rowptr, col, *out, *sizes)
        return out

    def is_symmetric(self, rowptr: Tensor, col: Tensor) -> bool:
        symmetric: bool = native.is_symmetric(self.threads, rowptr, col, rowptr.numel() - 1)
        return symmetric

    def with_self_loops(self, rowptr: Tensor, col: Tensor, num_cols: int, first: int = 0) -> tuple[Tensor, Tensor]:
        rows, out_rowptr = rowptr.numel() - 1, torch.empty_like(rowptr)
        if rows != num_cols:
            return super().with_self_loops(rowptr, col, num_cols, first)
        native.self_loop_rows(rowptr, col, rows, out_rowptr)
        out_col = torch.empty(int(out_rowptr[-1]), dtype=torch.int32)
        native.self_loop_cols(self.threads, rowptr, col, rows, out_rowptr, out_col)
        return out_rowptr, out_col


def _compressed(rows: int, edges: int) -> Compressed:
    return Compressed(
        torch.empty(rows + 1, dtype=torch.int64),
        torch.empty(edges, dtype=torch.int32),
        torch.empty(edges, dtype=torch.int32),
    )
