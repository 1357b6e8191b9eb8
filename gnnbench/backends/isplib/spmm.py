"""Aggregation, by `cython_kernels/spmm.pyx`: a row kernel, and one over blocks of columns that fit the cache."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled, choices
from gnnbench.backends.isplib._compiled import addresses
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Choice


class Blocks(NamedTuple):
    """A graph's edges by blocks of 2^shift columns, then by row (see `cython_kernels/spmm_blocked.h`)."""

    start: Tensor  # [blocks, N + 1] int32
    local: Tensor  # [E] uint16
    shift: int


class SpmmKernels(choices.ChoosingKernels):
    """Sum, mean, min and max over the edges of every row."""

    def plan(self, graph: Graph) -> None:
        if choices.worth_blocks(graph):
            self._blocks(graph, choices.SHIFT)

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        out = torch.empty(graph.num_rows, *x.shape[1:], dtype=x.dtype)
        heads = 1 if value is None or value.dim() == 1 else value.size(1)
        width = prod(x.shape[1:])
        mean, is_double = reduce == "mean", x.dtype == torch.float64
        choice = self.chosen("spmm", graph, width, x.dtype)
        if choice["algorithm"] == "blocked" and heads == 1:
            blocks = self._blocks(graph, int(choice["shift"]))
            tile = choices.LINE_BYTES // x.element_size()
            packed = torch.empty(graph.num_cols, tile, dtype=x.dtype)
            sums = torch.empty(graph.num_rows, tile, dtype=x.dtype)
            ordered = None if value is None else torch.empty_like(value)
            tensors = graph.rowptr, blocks.start, blocks.local, value, x, ordered, packed, sums, out
            sizes = graph.num_rows, graph.num_cols, width, len(blocks.start), blocks.shift
            _compiled.spmm.blocked_sum(*addresses(*tensors), *sizes, mean, is_double, self.isa, self.threads)
            return out
        where = addresses(graph.rowptr, graph.col, value, x, out)
        per_head = width // max(heads, 1)
        _compiled.spmm.sum(*where, graph.num_rows, heads, per_head, mean, is_double, self.isa, *self._team(choice))
        return out

    def spmm_extremum(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        choice = self.chosen("spmm_extremum", graph, x.size(1), x.dtype)
        out = torch.empty(graph.num_rows, x.size(1), dtype=x.dtype)
        arg_out = torch.empty(graph.num_rows, x.size(1), dtype=torch.int32)
        _compiled.spmm.extremum(
            *addresses(graph.rowptr, graph.col, value, x, out, arg_out),
            graph.num_rows,
            x.size(1),
            reduce == "min",
            x.dtype == torch.float64,
            self.isa,
            *self._team(choice),
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

    def _blocks(self, graph: Graph, shift: int) -> Blocks:
        """The plan for blocks of 2^shift columns, made once."""
        key = "blocks", shift
        if key not in graph.plans:
            count = choices.blocks(graph, shift)
            start = torch.zeros(count, graph.num_rows + 1, dtype=torch.int32)
            local = torch.empty(graph.num_edges, dtype=torch.uint16)
            tensors = graph.rowptr, graph.col, start, local
            _compiled.spmm.plan(*addresses(*tensors), graph.num_rows, count, shift, self.threads)
            graph.plans[key] = Blocks(start, local, shift)
        found: Blocks = graph.plans[key]
        return found

    def _team(self, choice: Choice) -> tuple[int, int]:
        """Prefetch distance and threads of a row kernel, which also runs where blocks do not serve."""
        return int(choice.get("prefetch", choices.PREFETCH[0])), int(choice.get("threads", self.threads))
