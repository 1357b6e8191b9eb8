"""Part: the rows of a graph that one of several processes holds, whose sources it fetches from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnbench.errors import GraphError
from gnnbench.graph import CSRBuilder, Graph, Rows, cached
from gnnbench.graph.exchange import Exchange

LEAST = 0.1  # of a part's edges, that rows without halo must have to be worth a pass of their own


class Part(Graph):
    """The in-edges of the nodes of this process; columns are [lower halo | mine | higher halo].

    Columns ascend in the ids of the whole graph, so that rows add up in the same order as there, and the first of
    equal messages is the same. Values over edges are not supported.

    Args:
        rowptr, col: rows that were checked, as those of a Graph.

    Attributes:
        arriving: waits for features that `by_rows` can begin without; None where all are there.
    """

    arriving: Callable[[], None] | None = None

    def __init__(self, rowptr: Tensor, col: Tensor, exchange: Exchange, layout: CSRBuilder | None = None) -> None:
        super().__init__(rowptr, col, exchange.num_rows + exchange.halo, None, layout)
        self.exchange, self.first_col = exchange, exchange.lower
        self.first_edge = exchange.before(self.num_edges)

    @classmethod
    def of(cls, rowptr: Tensor, col: Tensor, exchange: Exchange, layout: CSRBuilder | None = None) -> Part:
        """Rows that are checked here; raises GraphError as `Graph.from_csr`."""
        if rowptr.numel() != exchange.num_rows + 1:
            raise GraphError(f"rowptr is of {rowptr.numel() - 1} rows, but this process has {exchange.num_rows}")
        graph = Graph.from_csr(rowptr, col, exchange.num_rows + exchange.halo)
        return cls(graph.rowptr, graph.col, exchange, layout)

    def sources(self, *x: Tensor, later: bool = False) -> tuple[Tensor, ...]:
        self.check_own(*x)
        fetched: tuple[Tensor, ...] = _Halo.apply(self, *x)
        autocast = torch.is_autocast_enabled(self.device.type)  # of which a copy would miss what is on its way
        if autocast or not (later and self.exchange.overlap):
            self.arrived()
        return fetched

    def fetching(self, x: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Features [M, ...] of x [n, ...], of which `arrived` or `by_rows` completes the halo."""
        columns, self.arriving = self.exchange.fetching(x)
        return columns

    @torch.no_grad()
    def arrived(self) -> None:
        """Wait for what is on its way, which `_Halo` says the gradient of."""
        arriving, self.arriving = self.arriving, None
        if arriving is not None:
            arriving()

    def by_rows(self, compute: Callable[[Rows], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        if self.arriving is None or self.apart is None:
            self.arrived()
            return super().by_rows(compute)
        interior, boundary = self.apart
        first = compute(interior)
        out = tuple(each.new_empty(self.num_rows, *each.shape[1:]) for each in first)
        _put(out, interior, first)
        self.arrived()
        _put(out, boundary, compute(boundary))
        return out

    def check_own(self, *x: Tensor) -> None:
        """Raise GraphError unless each x [n, ...] is of the nodes of this process."""
        for each in x:
            if each.size(0) != self.num_rows:
                raise GraphError(f"x has {each.size(0)} rows, but this process has {self.num_rows} nodes")

    @property
    def passes(self) -> tuple[Graph, ...]:
        if not self.exchange.overlap:
            return super().passes
        rows = (self,) if self.apart is None else tuple(rows.graph for rows in self.apart)
        return *rows, *self.transpose_apart

    @cached
    def apart(self) -> tuple[Rows, Rows] | None:
        """The rows without halo columns, and those with them; None where the first have few edges or all."""
        if not self.num_edges:
            return None
        first, last = self.rowptr[:-1].clamp(max=self.num_edges - 1), (self.rowptr[1:] - 1).clamp(min=0)
        mine = (self.col[first] >= self.first_col) & (self.col[last] < self.first_col + self.num_rows)
        mine |= self.degree == 0
        share = int(self.degree[mine].sum()) / self.num_edges
        return (self._rows(mine), self._rows(~mine)) if LEAST <= share < 1 else None

    def _rows(self, chosen: Tensor) -> Rows:
        row = chosen.nonzero().flatten()
        degree = self.degree[row]
        rowptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
        col = self.col[chosen.repeat_interleave(self.degree)]
        return Rows(Graph(rowptr, col, self.num_cols, None, self.layout), row)

    @cached
    def transpose_apart(self) -> tuple[Graph, Graph, Graph]:
        """The rows of the transpose that are [lower halo | mine | higher halo]; its edges are not copied."""
        whole, mine = self.transpose, self.first_col + self.num_rows
        ranges = (0, self.first_col), (self.first_col, mine), (mine, self.num_cols)
        lower, own, higher = (_range(whole, begin, end) for begin, end in ranges)
        return lower, own, higher

    def _with_edges(self, rowptr: Tensor, col: Tensor) -> Part:
        return Part(rowptr, col, self.exchange, self.layout)


def _range(graph: Graph, begin: int, end: int) -> Graph:
    rowptr = graph.rowptr[begin : end + 1]
    col = graph.col[int(rowptr[0]) : int(rowptr[-1])]
    return Graph(rowptr - rowptr[0], col, graph.num_cols, None, graph.layout)


def _put(out: Sequence[Tensor], rows: Rows, values: Sequence[Tensor]) -> None:
    for each, value in zip(out, values, strict=True):
        each[rows.row] = value


class _Halo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Part, *x: Tensor) -> tuple[Tensor, ...]:
        ctx.exchange = part.exchange
        return part.fetching(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        begin, end = ctx.exchange.lower, ctx.exchange.lower + ctx.exchange.num_rows
        added = ctx.exchange.returning([torch.cat([each[:begin], each[end:]]) for each in grads])
        mine = [each[begin:end].clone(memory_format=torch.contiguous_format) for each in grads]
        return None, *added(mine)
