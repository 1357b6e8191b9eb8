"""Aggregation, by `cython_kernels/spmm.pyx`: a row kernel, and one over blocks of columns that fit the cache."""

from __future__ import annotations

import os
from math import log2, prod
from typing import NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.backends.isplib._compiled import addresses
from gnnbench.graph import Graph


def _l2_bytes() -> int:
    try:
        found = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        found = 0
    return found if found > 0 else 1 << 20


L2_BYTES = _l2_bytes()
LINE_BYTES = 64  # of a cache line, and so of a tile of features
EDGES_PER_BLOCK = 8  # and row, below which walking the blocks costs more than it saves


class Blocks(NamedTuple):
    """A graph's edges by blocks of 2^shift columns, then by row (see `cython_kernels/spmm_blocked.h`)."""

    start: Tensor  # [blocks, N + 1] int32
    local: Tensor  # [E] uint16
    shift: int


class SpmmKernels(BaseKernels):
    """Sum, mean, min and max over the edges of every row."""

    def plan(self, graph: Graph) -> None:
        if "blocks" in graph.plans:
            return
        shift = min(16, int(log2(L2_BYTES / 2 / LINE_BYTES)))
        count = -(-graph.num_cols // (1 << shift))
        graph.plans["blocks"] = None
        if 0 < EDGES_PER_BLOCK * graph.num_rows * count <= graph.num_edges:
            start = torch.zeros(count, graph.num_rows + 1, dtype=torch.int32)
            local = torch.empty(graph.num_edges, dtype=torch.uint16)
            tensors = graph.rowptr, graph.col, start, local
            _compiled.spmm.plan(*addresses(*tensors), graph.num_rows, count, shift, self.threads)
            graph.plans["blocks"] = Blocks(start, local, shift)

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        out = torch.empty(graph.num_rows, *x.shape[1:], dtype=x.dtype)
        heads = 1 if value is None or value.dim() == 1 else value.size(1)
        width = prod(x.shape[1:]) // max(heads, 1)
        common = reduce == "mean", x.dtype == torch.float64, self.isa, self.threads
        # Weights cost a pass to bring them into the order of the blocks.
        if heads == 1 and x.nbytes > (L2_BYTES if value is None else 4 * L2_BYTES):
            self.plan(graph)
            if (blocks := graph.plans["blocks"]) is not None:
                tile = LINE_BYTES // x.element_size()
                packed = torch.empty(graph.num_cols, tile, dtype=x.dtype)
                sums = torch.empty(graph.num_rows, tile, dtype=x.dtype)
                ordered = None if value is None else torch.empty_like(value)
                tensors = graph.rowptr, blocks.start, blocks.local, value, x, ordered, packed, sums, out
                sizes = graph.num_rows, graph.num_cols, width, len(blocks.start), blocks.shift
                _compiled.spmm.blocked_sum(*addresses(*tensors), *sizes, *common)
                return out
        where = addresses(graph.rowptr, graph.col, value, x, out)
        _compiled.spmm.sum(*where, graph.num_rows, heads, width, *common)
        return out

    def spmm_extremum(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        out = torch.empty(graph.num_rows, x.size(1), dtype=x.dtype)
        arg_out = torch.empty(graph.num_rows, x.size(1), dtype=torch.int32)
        _compiled.spmm.extremum(
            *addresses(graph.rowptr, graph.col, value, x, out, arg_out),
            graph.num_rows,
            x.size(1),
            reduce == "min",
            x.dtype == torch.float64,
            self.isa,
            self.threads,
        )
        return out, arg_out

    def spmm_extremum_backward(
        self, graph: Graph, arg_out: Tensor, grad_out: Tensor, value: Tensor | None
    ) -> Tensor:
        grad_out, value = grad_out.contiguous(), None if value is None else value.contiguous()
        grad_x = torch.zeros(graph.num_cols, grad_out.size(1), dtype=grad_out.dtype)
        _compiled.spmm.extremum_backward(
            *addresses(graph.col, value, arg_out, grad_out, grad_x),
            graph.num_rows,
            grad_out.size(1),
            grad_out.dtype == torch.float64,
            self.threads,
        )
        return grad_x
