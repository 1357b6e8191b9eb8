"""Rows of a graph whose sources are fetched: a Part from other processes, a Block from earlier passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from gnnbench.errors import GraphError, WorkerLost
from gnnbench.graph import CSRBuilder, Graph, cached


class Sums:
    """Sums over all processes of the group, each of which asks for as many as the others, in the same order."""

    def __init__(self) -> None:
        # `phase("exchange")` surrounds communication.
        self.phase: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()

    def summed(self, x: Tensor) -> Tensor:
        """x, to which the same of all other processes is added in place, whose result is the same on all."""
        with self.phase("exchange"), communicating():
            dist.all_reduce(x)
        return x

    def table(self, row: Tensor) -> Tensor:
        """[P, n] of which each process gives a row [n]."""
        rows = row.new_zeros(dist.get_world_size(), row.numel())
        rows[dist.get_rank()] = row
        return self.summed(rows)


class Exchange(Sums):
    """Features of halo nodes, which are those of other processes that have edges to mine.

    Every process of the group calls it as often as the others, in the same order and with features of the same
    width and type. Rank r owns the nodes `offsets[r]:offsets[r + 1]`.

    Args:
        offsets: [P + 1] int64.
        halo: [h] int64, the nodes to fetch, ascending; on the device of the features.
        narrow: whether float32 features and gradients travel as bfloat16.

    Attributes:
        num_rows: nodes of this process.
        halo: nodes whose features are fetched.
        lower: halo nodes of lower ranks, whose columns come before those of mine.
        sent_bytes, received_bytes: what went from and to this process.

    Raises:
        GraphError: `offsets` are of another number of processes, or `halo` does not ascend among others' nodes.
        WorkerLost: another process ended, or does not answer.
    """

    def __init__(self, offsets: Tensor, halo: Tensor, *, narrow: bool = False) -> None:
        super().__init__()
        rank, size = dist.get_rank(), dist.get_world_size()
        if offsets.numel() != size + 1:
            raise GraphError(f"a graph in {offsets.numel() - 1} parts needs as many processes, found {size}")
        begin, end, nodes = int(offsets[rank]), int(offsets[rank + 1]), int(offsets[-1])
        outside = (halo < 0) | (halo >= nodes) | ((halo >= begin) & (halo < end))
        if bool(outside.any() or (halo.diff() <= 0).any()):
            raise GraphError("halo must ascend, and be of nodes that other processes have")
        self.num_rows, self.narrow = end - begin, narrow
        self.sent_bytes = self.received_bytes = 0
        wanted = torch.bincount(torch.bucketize(halo, offsets[1:].to(halo.device), right=True), minlength=size)
        asked = torch.empty_like(wanted)
        with communicating():
            dist.all_to_all_single(asked, wanted)
        self._received, self._sent = wanted.tolist(), asked.tolist()
        self._send = self._swapped(halo.unsqueeze(1), self._sent, self._received).flatten() - begin
        if bool(((self._send < 0) | (self._send >= self.num_rows)).any()):
            raise GraphError(
                "another process asks for nodes that this one does not have; their parts are not of one graph"
            )
        self.halo, self.lower = halo.numel(), int(sum(self._received[:rank]))
        self.sent_bytes = self.received_bytes = 0

    def fetched(self, x: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Features [lower halo | mine | higher halo, ...] of x [n, ...], all of which travel in one message."""
        sent = self._message([each.index_select(0, self._send) for each in x])
        halo = self._swapped(sent, self._received, self._sent).split([prod(each.shape[1:]) for each in x], 1)
        columns = []
        for mine, theirs in zip(x, halo, strict=True):
            others = theirs.to(mine.dtype).view(len(theirs), *mine.shape[1:])
            columns.append(torch.cat([others[: self.lower], mine, others[self.lower :]]))
        return tuple(columns)

    def returned(self, mine: Sequence[Tensor], halo: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Send gradients [h, ...] of the halo to where they belong, in the order of `fetched`.

        Returns:
            Gradients `mine` [n, ...], to which those that others found are added in place.
        """
        arrived = self._swapped(self._message(halo), self._sent, self._received)
        for each, theirs in zip(mine, arrived.split([prod(each.shape[1:]) for each in halo], 1), strict=True):
            _flat(each).index_add_(0, self._send, theirs.to(each.dtype))
        return tuple(mine)

    def gathered(self, x: Tensor) -> Tensor:
        """The rows x [m, ...] of all processes, by rank, on every one of them."""
        sizes = self.table(torch.tensor([len(x)], device=x.device)).flatten().tolist()
        rows = self._swapped(_flat(x).repeat(len(sizes), 1), sizes, [len(x)] * len(sizes))
        return rows.view(len(rows), *x.shape[1:])

    def _message(self, x: Sequence[Tensor]) -> Tensor:
        """[m, F] of several [m, ...]."""
        rows = torch.cat([_flat(each) for each in x], 1)
        return rows.bfloat16() if self.narrow and rows.dtype == torch.float32 else rows

    def _swapped(self, rows: Tensor, to_receive: list[int], to_send: list[int]) -> Tensor:
        """Send `rows` [., F], ordered by rank, and wait for those that others send."""
        theirs = rows.new_empty(sum(to_receive), rows.size(1))
        with self.phase("exchange"), communicating():
            dist.all_to_all_single(theirs, rows, to_receive, to_send)
        self.sent_bytes += rows.nbytes
        self.received_bytes += theirs.nbytes
        return theirs


@contextmanager
def communicating() -> Iterator[None]:
    """Say in one sentence that another process is gone, or does not answer.

    Raises:
        WorkerLost: as it seems from here.
    """
    try:
        yield
    except RuntimeError as error:
        silent = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        raise WorkerLost(
            "another worker did not answer in time; it hangs, or batch.timeout_s is too short"
            if silent
            else "the connection to another worker was lost; its own output says why"
        ) from error


def _flat(x: Tensor) -> Tensor:
    """View it as a matrix, which may have no rows; a view of what is contiguous."""
    return x.reshape(x.size(0), prod(x.shape[1:]))


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
        edges = exchange.table(torch.tensor([self.num_edges], device=self.device))
        self.first_edge = int(edges[: dist.get_rank()].sum())

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
        return _Halo.apply(self.exchange, *x)

    @cached
    def gcn_scale_of_sources(self) -> Tensor:
        return self.sources(self.gcn_scale)[0]

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


class Asked(Exception):
    """A conv asks for features of all nodes that no pass has computed yet; `rows` are those of its block."""

    def __init__(self, rows: tuple[Tensor, ...]) -> None:
        super().__init__("features of all nodes are not there yet")
        self.rows = rows


class Block(Graph):
    """The in-edges of nodes `begin` to `end` of a graph; columns are all of its nodes.

    Args:
        whole: the graph, by which kernels choose an order of summation, so that sums are equal to the last bit.
        fetched: what earlier passes computed for all nodes, in the order in which the conv asks for it.
    """

    def __init__(self, whole: Graph, begin: int, end: int, fetched: Iterator[Sequence[Tensor]]) -> None:
        rowptr = whole.rowptr[begin : end + 1]
        first, last = rowptr[[0, -1]].tolist()
        super().__init__(rowptr - first, whole.col[first:last], whole.num_cols, None, whole.layout)
        self._whole, self.first_col, self.first_edge, self.fetched = whole, begin, first, fetched

    @property
    def whole(self) -> Graph:
        return self._whole

    def sources(self, *x: Tensor) -> tuple[Tensor, ...]:
        fetched = next(self.fetched, None)
        if fetched is None:
            raise Asked(x)
        return tuple(fetched)

    @property
    def gcn_scale_of_sources(self) -> Tensor:
        return self.whole.gcn_scale

    @cached
    def with_self_loops(self) -> Graph:
        """Cut these nodes out of `whole.with_self_loops`."""
        return Block(self.whole.with_self_loops, self.first_col, self.first_col + self.num_rows, self.fetched)
