"""Graphs side by side, by `cython_kernels/collate.pyx`."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.backends.isplib.workspace import in_huge_pages
from gnnbench.graph.layout import Members, Picked, Rows, check_range

native = _compiled.load("collate")
THREADS = 1  # as another core trains meanwhile


class CollateKernels(BaseKernels):
    """Concatenation of graphs in main memory, without Python's lock."""

    def starts(self, ptr: Tensor, ids: Tensor) -> Tensor:
        starts, num_graphs = torch.empty(ids.numel() + 1, dtype=torch.int64), ptr.numel() - 1
        if not native.starts(ptr=ptr, ids=ids, out=starts, count=ids.numel(), graphs=num_graphs):
            check_range("graph", ids, num_graphs)
        return starts

    def take(self, ptr: Tensor, ids: Tensor, starts: Tensor, size: int, values: Tensor) -> Tensor:
        if not values.is_contiguous() or values.device.type != "cpu":
            return super().take(ptr, ids, starts, size, values)
        out = in_huge_pages(torch.empty(size, *values.shape[1:], dtype=values.dtype))
        row_bytes = prod(values.shape[1:]) * values.itemsize
        tensors = {"ptr": ptr, "ids": ids, "starts": starts, "values": values, "out": out}
        sizes = {"count": ids.numel(), "graphs": ptr.numel() - 1, "row_bytes": row_bytes}
        native.take(THREADS, **tensors, **sizes)
        return out

    def edge_index(self, edge_ptr: Tensor, picked: Picked, edge_index: Tensor) -> Tensor:
        out = torch.empty(2, picked.num_edges, dtype=torch.int64)
        sizes = {"graphs": edge_ptr.numel() - 1, "num_edges": edge_index.size(1), "out_edges": picked.num_edges}
        native.edge_index(THREADS, edge_ptr=edge_ptr, edge_index=edge_index, out=out, **_batch(picked), **sizes)
        return out

    def rows(self, members: Members, picked: Picked, transposed: bool) -> Rows:
        copies = 2 if transposed else 1
        rowptrs = [torch.empty(picked.num_nodes + 1, dtype=torch.int64) for _ in range(copies)]
        cols = [torch.empty(picked.num_edges, dtype=torch.int32) for _ in range(copies)]
        edge_id = torch.empty(picked.num_edges, dtype=torch.int32)
        out = Rows(rowptrs[0], cols[0], edge_id, *rowptrs[1:], *cols[1:])
        outs = {f"out_{name}": tensor for name, tensor in out._asdict().items()}
        native.rows(THREADS, **members._asdict(), **_batch(picked), **outs, graphs=len(members.graph_ptr) - 1)
        return out


def _batch(picked: Picked) -> dict[str, Any]:
    """The fields by which kernels take a batch."""
    starts = {"starts": picked.ptr, "edge_starts": picked.edge_ptr}
    return {"ids": picked.ids, "count": picked.ids.numel(), **starts}
