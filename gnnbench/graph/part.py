"""Part: the rows of a graph that one of several processes holds, whose sources it fetches from the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnbench.errors import GraphError
from gnnbench.graph import CSRBuilder, Graph
from gnnbench.graph.exchange import Exchange


class Part(Graph):
    """The in-edges of the nodes of this process; columns are [lower halo | mine | higher halo].

    Columns ascend in the ids of the whole graph, so that rows add up in the same order as there, and the first of
    equal messages is the same. Values over edges are not supported.

    Args:
        rowptr, col: rows that were checked, as those of a Graph.
    """

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

    def sources(self, *x: Tensor) -> tuple[Tensor, ...]:
        for each in x:
            if each.size(0) != self.num_rows:
                raise GraphError(f"x has {each.size(0)} rows, but this process has {self.num_rows} nodes")
        fetched: tuple[Tensor, ...] = _Halo.apply(self.exchange, *x)
        return fetched

    def _with_edges(self, rowptr: Tensor, col: Tensor) -> Part:
        return Part(rowptr, col, self.exchange, self.layout)


class _Halo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, exchange: Exchange, *x: Tensor) -> tuple[Tensor, ...]:
        ctx.exchange = exchange
        return exchange.fetched(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        begin, end = ctx.exchange.lower, ctx.exchange.lower + ctx.exchange.num_rows
        halo = [torch.cat([each[:begin], each[end:]]) for each in grads]
        mine = [each[begin:end].clone(memory_format=torch.contiguous_format) for each in grads]
        return None, *ctx.exchange.returned(mine, halo)
