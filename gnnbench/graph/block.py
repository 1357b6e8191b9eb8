"""Block: some rows of a graph, over which a conv is computed in passes, each up to what it gathers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from gnnbench.graph import Graph, cached


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

    @cached
    def with_self_loops(self) -> Graph:
        """Cut these nodes out of `whole.with_self_loops`."""
        looped = self.whole.with_self_loops
        return Block(looped, self.first_col, self.first_col + self.num_rows, self.fetched)
