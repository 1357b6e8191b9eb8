"""Aggregation, by `cython_kernels/spmm.pyx`: row by row, or over blocks of columns that fit the cache."""

from __future__ import annotations

import weakref
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled, choices
from gnnbench.backends.isplib._compiled import addresses
from gnnbench.graph import Graph
from gnnbench.graph.stamp import Stamp, stamp
from gnnbench.ops.kernels import Choice


class Blocks(NamedTuple):
    """A graph's edges by blocks of 2^shift columns, then by row (see `cython_kernels/spmm_blocked.inc`)."""

    start: Tensor  # [blocks, N + 1] int32
    local: Tensor  # [E] uint16
    shift: int


class Ordered(NamedTuple):
    """Weights in the order of `Blocks`, kept for those that do not change, such as a GCN's.

    What is kept is replaced and never written to, for other threads may be reading it.
    """

    source: weakref.ref[Tensor]
    state: Stamp  # of the source
    value: Tensor  # [E]


class SpmmKernels(choices.ChoosingKernels):
    """Sum, mean, min and max over the edges of every row."""

    def plan(self, graph: Graph) -> None:
        shifts = {self._pair_shift(graph)} if choices.worth_blocks(graph) else set()
        # A copy, for another thread may add a choice meanwhile.
        every = [choice for key, choice in list(graph.plans.items()) if key[0] == "choice"]
        tuned = [choice for choice in every if self._possible(choice, graph)]
        for shift in shifts | {int(choice["shift"]) for choice in tuned if "shift" in choice}:
            self._blocks(graph, shift)

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        out = torch.empty(graph.num_rows, *x.shape[1:], dtype=x.dtype)
        heads = 1 if value is None or value.dim() == 1 else value.size(1)
        width, mean, is_double = prod(x.shape[1:]), reduce == "mean", x.dtype == torch.float64
        choice = self.chosen("spmm", graph, width, x.dtype)
        bf16 = self.precision == "bf16" and heads == 1 and choices.worth_bf16(graph, x, width)
        if choice["algorithm"] == "blocked" and heads == 1:
            blocks = self._blocks(graph, int(choice["shift"]))
            packed = _lines(2 * graph.num_cols, x.dtype)
            sums = _lines(graph.num_rows * (4 if bf16 else 2), x.dtype)
            ordered = self._ordered(graph, blocks, value)
            tensors = graph.rowptr, blocks.start, blocks.local, ordered, x, packed, sums, out
            sizes = graph.num_rows, graph.num_cols, width, len(blocks.start), blocks.shift
            _compiled.spmm.blocked_sum(*addresses(*tensors), *sizes, mean, bf16, is_double, self.isa, self.threads)
        elif bf16:
            packed = _lines(graph.num_cols * -(-width // choices.BF16_TILE), x.dtype)
            where = addresses(graph.rowptr, graph.col, value, x, packed, out)
            shape = graph.num_rows, graph.num_cols, width
            _compiled.spmm.bf16_sum(*where, *shape, mean, self.isa, *self._team(choice))
        else:
            where = addresses(graph.rowptr, graph.col, value, x, out)
            per_head = width // max(heads, 1)
            _compiled.spmm.sum(
                *where, graph.num_rows, heads, per_head, mean, is_double, self.isa, *self._team(choice)
            )
        return out

    def spmm_extremum(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        width, how = x.size(1), (reduce == "min", x.dtype == torch.float64, self.isa)
        choice = self.chosen("spmm_extremum", graph, width, x.dtype)
        out = torch.empty(graph.num_rows, width, dtype=x.dtype)
        arg_out = torch.empty(graph.num_rows, width, dtype=torch.int32)
        if choice["algorithm"] == "blocked":
            blocks = self._blocks(graph, int(choice["shift"]))
            packed, best, origin = (_lines(rows, x.dtype) for rows in (graph.num_cols, *[graph.num_rows] * 2))
            seen, ordered = torch.empty(graph.num_rows, dtype=torch.int32), self._ordered(graph, blocks, value)
            where = addresses(
                *(graph.rowptr, blocks.start, blocks.local, ordered, x),
                *(packed, best, origin, seen, out, arg_out),
            )
            sizes = graph.num_rows, graph.num_cols, width, len(blocks.start), blocks.shift
            _compiled.spmm.blocked_extremum(*where, *sizes, *how, self.threads)
        else:
            where = addresses(graph.rowptr, graph.col, value, x, out, arg_out)
            _compiled.spmm.extremum(*where, graph.num_rows, width, *how, *self._team(choice))
        return out, arg_out

    def spmm_extremum_backward(
        self, graph: Graph, arg_out: Tensor, grad_out: Tensor, value: Tensor | None
    ) -> Tensor:
        grad_out, value = grad_out.contiguous(), None if value is None else value.contiguous()
        grad_x = torch.zeros(graph.num_cols, grad_out.size(1), dtype=grad_out.dtype)
        _compiled.spmm.extremum_backward(
            *addresses(graph.col, value, arg_out, grad_out, grad_x),
            graph.num_rows,
            graph.num_cols,
            grad_out.size(1),
            grad_out.dtype == torch.float64,
            self.threads,
        )
        return grad_x

    def _blocks(self, graph: Graph, shift: int) -> Blocks:
        """The plan for blocks of 2^shift columns, made once."""

        def make() -> Blocks:
            count = choices.blocks(graph, shift)
            start = torch.zeros(count, graph.num_rows + 1, dtype=torch.int32)
            local = torch.empty(graph.num_edges, dtype=torch.uint16)
            tensors = graph.rowptr, graph.col, start, local
            _compiled.spmm.plan(*addresses(*tensors), graph.num_rows, count, shift, self.threads)
            return Blocks(start, local, shift)

        return graph.once(("blocks", shift), make)

    def _ordered(self, graph: Graph, blocks: Blocks, value: Tensor | None) -> Tensor | None:
        """Weights in the order of `blocks`; those of the call before, if they are the same."""
        if value is None:
            return None
        key, state = ("ordered", blocks.shift), stamp(value)
        kept: Ordered | None = graph.plans.get(key)
        if kept is not None and kept.source() is value and kept.state == state:
            return kept.value
        ordered = torch.empty_like(value)
        where = addresses(graph.rowptr, blocks.start, value, ordered)
        sizes = graph.num_rows, len(blocks.start)
        _compiled.spmm.order(*where, *sizes, value.dtype == torch.float64, self.isa, self.threads)
        if state is not None:
            graph.plans[key] = Ordered(weakref.ref(value), state, ordered)
        return ordered

    def _team(self, choice: Choice) -> tuple[int, int]:
        """Prefetch distance and threads of a row kernel, which also runs where blocks do not serve."""
        return int(choice.get("prefetch", 16)), int(choice.get("threads", self.threads))


def _lines(count: int, dtype: torch.dtype) -> Tensor:
    """Cache lines to work in; torch aligns them."""
    return torch.empty(count, choices.LINE_BYTES // dtype.itemsize, dtype=dtype)
