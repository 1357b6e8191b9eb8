"""Edges sorted into rows, graphs side by side, and pairs that are no edges; by modules of `cython_kernels/`."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.graph import Compressed
from gnnbench.graph.layout import Members, Picked, Rows, check_range, signed

native_layout, native_collate, native_negatives = map(_compiled.load, ("layout", "collate", "negatives"))
THREADS = 1  # of batches, as another core trains meanwhile


class LayoutKernels(BaseKernels):
    """CSR, its transpose, symmetry, self-loops; batches in main memory, without Python's lock; draws of pairs."""

    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        row, col = row.contiguous(), col.contiguous()
        out = _compressed(num_rows, row.numel())
        sizes = {"num_edges": row.numel(), "num_rows": num_rows, "num_cols": num_cols}
        native_layout.sort(self.threads, coo_row=row, coo_col=col, **out._asdict(), **sizes)
        return out

    def transpose(self, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
        out = _compressed(num_cols, col.numel())
        sizes = {"num_edges": col.numel(), "num_rows": num_cols, "num_cols": rowptr.numel() - 1}
        native_layout.sort(self.threads, csr_rowptr=rowptr, csr_col=col, **out._asdict(), **sizes)
        return out

    def is_symmetric(self, rowptr: Tensor, col: Tensor) -> bool:
        return bool(native_layout.is_symmetric(self.threads, rowptr=rowptr, col=col, rows=rowptr.numel() - 1))

    def is_of(
        self, rowptr: Tensor, col: Tensor, edge_id: Tensor | None, source: Tensor, destination: Tensor
    ) -> bool:
        given = {"source": source.contiguous(), "destination": destination.contiguous()}
        rows = {"rowptr": rowptr, "col": col, "edge_id": edge_id, "rows": rowptr.numel() - 1}
        return bool(native_layout.is_of(self.threads, **rows, **given))

    def with_self_loops(self, rowptr: Tensor, col: Tensor, num_cols: int, first: int = 0) -> tuple[Tensor, Tensor]:
        rows, out_rowptr = rowptr.numel() - 1, torch.empty_like(rowptr)
        if rows != num_cols:
            return super().with_self_loops(rowptr, col, num_cols, first)
        given = {"rowptr": rowptr, "col": col, "rows": rows, "out_rowptr": out_rowptr}
        native_layout.self_loop_rows(**given)
        out_col = torch.empty(int(out_rowptr[-1]), dtype=torch.int32)
        native_layout.self_loop_cols(self.threads, **given, out_col=out_col)
        return out_rowptr, out_col

    def starts(self, ptr: Tensor, ids: Tensor) -> Tensor:
        starts, num_graphs = torch.empty(ids.numel() + 1, dtype=torch.int64), ptr.numel() - 1
        if not native_collate.starts(ptr=ptr, ids=ids, out=starts, count=ids.numel(), graphs=num_graphs):
            check_range("graph", ids, num_graphs)
        return starts

    def take(self, ptr: Tensor, ids: Tensor, starts: Tensor, size: int, values: Tensor) -> Tensor:
        if not values.is_contiguous() or values.device.type != "cpu":
            return super().take(ptr, ids, starts, size, values)
        out = in_huge_pages(torch.empty(size, *values.shape[1:], dtype=values.dtype))
        row_bytes = prod(values.shape[1:]) * values.itemsize
        tensors = {"ptr": ptr, "ids": ids, "starts": starts, "values": values, "out": out}
        sizes = {"count": ids.numel(), "graphs": ptr.numel() - 1, "row_bytes": row_bytes}
        native_collate.take(THREADS, **tensors, **sizes)
        return out

    def edge_index(self, edge_ptr: Tensor, picked: Picked, edge_index: Tensor) -> Tensor:
        out = torch.empty(2, picked.num_edges, dtype=torch.int64)
        sizes = {"graphs": edge_ptr.numel() - 1, "num_edges": edge_index.size(1), "out_edges": picked.num_edges}
        tensors = {"edge_ptr": edge_ptr, "edge_index": edge_index, "out": out}
        native_collate.edge_index(THREADS, **tensors, **_batch(picked), **sizes)
        return out

    def rows(self, members: Members, picked: Picked, transposed: bool) -> Rows:
        copies = 2 if transposed else 1
        rowptrs = [torch.empty(picked.num_nodes + 1, dtype=torch.int64) for _ in range(copies)]
        cols = [torch.empty(picked.num_edges, dtype=torch.int32) for _ in range(copies)]
        edge_id = torch.empty(picked.num_edges, dtype=torch.int32)
        out = Rows(rowptrs[0], cols[0], edge_id, *rowptrs[1:], *cols[1:])
        outs = {f"out_{name}": tensor for name, tensor in out._asdict().items()}
        graphs = len(members.graph_ptr) - 1
        native_collate.rows(THREADS, **members._asdict(), **_batch(picked), **outs, graphs=graphs)
        return out

    def draw_pairs(
        self, rowptr: Tensor, col: Tensor, num_cols: int, rows: Tensor | None, count: int, seed: int
    ) -> Tensor:
        if not rowptr.is_cpu:
            return super().draw_pairs(rowptr, col, num_cols, rows, count, seed)
        out = torch.empty(2, count, dtype=torch.int64)
        sizes = {"rows": rowptr.numel() - 1, "cols": num_cols, "count": count, "seed": signed(seed)}
        native_negatives.draw(self.threads, rowptr=rowptr, col=col, row=rows, out=out, **sizes)
        return out


def _compressed(rows: int, edges: int) -> Compressed:
    col, perm = (torch.empty(edges, dtype=torch.int32) for _ in range(2))
    return Compressed(torch.empty(rows + 1, dtype=torch.int64), col, perm)


def _batch(picked: Picked) -> dict[str, Any]:
    """The fields by which kernels take a batch."""
    starts = {"starts": picked.ptr, "edge_starts": picked.edge_ptr}
    return {"ids": picked.ids, "count": picked.ids.numel(), **starts}
