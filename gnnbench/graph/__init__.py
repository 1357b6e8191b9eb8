"""Graph: in-edges in compressed rows (row = destination), checked once, with everything derived from it cached.

cache        the Graph of an adjacency that a program passes around, and whether tensors were edited
union        many graphs, of which batches are put together without a sort
part         the rows of one of several processes, which fetch what their edges need of others, and how; blocks of
             rows, of which convs are computed one after the other
layout       how edges are checked and sorted into rows, what a batch consists of, and how pairs that are no edges
             are drawn, in plain torch
handles      names by which torch's custom ops find Graphs and kernels
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from gnnbench.errors import GraphError
from gnnbench.graph.handles import Handled
from gnnbench.graph.layout import Compressed, CSRBuilder, check_edge_index, check_range, check_size, rows_of

T = TypeVar("T")


class cached(cached_property[T]):
    """A cached property of a Graph; its tensors can be trained with, even if first asked for in inference mode."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        super().__init__(lambda graph: graph.computed(lambda: compute(graph)))
        self.__doc__ = compute.__doc__


class Graph(Handled):
    """A directed, possibly rectangular graph whose rows are destinations and columns are sources.

    Build one with `Graph.from_edge_index` or `Graph.from_csr`, which check the indices once; kernels then
    trust them. Tensors of a Graph are its own and must not be changed: `check_unchanged` notices edits. What is
    derived from them is never written to once it is kept, so that threads can share a Graph.

    Attributes:
        rowptr: [N + 1] int64, non-decreasing; row i holds the edges `rowptr[i]:rowptr[i + 1]`.
        col: [E] int32, ascending within a row; duplicates are distinct edges.
        num_cols: number of source nodes (equal to `num_rows` for an ordinary graph).
        edge_id: [E] int32, the position of each edge in the `edge_index` it came from, or None where
            the graph was given as rows.
        cache: per-graph precomputation of backends, by their own keys.
        first_col: the column of the node that row 0 is.
        first_edge: how many edges stand before these, where other processes have them.
    """

    first_col = 0
    first_edge = 0

    def __init__(
        self,
        rowptr: Tensor,
        col: Tensor,
        num_cols: int,
        edge_id: Tensor | None = None,
        layout: CSRBuilder | None = None,
    ) -> None:
        self.rowptr, self.col, self.num_cols, self.edge_id = rowptr, col, num_cols, edge_id
        self.layout = layout or CSRBuilder()
        self.cache: dict[Any, Any] = {}
        self._checked = (rowptr, col, num_cols, rowptr._version, col._version)

    @classmethod
    @torch.inference_mode(False)
    def from_edge_index(
        cls, edge_index: Tensor, num_rows: int, num_cols: int | None = None, layout: CSRBuilder | None = None
    ) -> Graph:
        """Sort `edge_index` [2, E] (source, destination; any integer type) by destination.

        Raises:
            GraphError: wrong shape or type, an index out of range, or more than 2^31 - 1 edges or nodes.
        """
        num_cols = num_rows if num_cols is None else num_cols
        check_edge_index(edge_index)
        check_size(num_rows, num_cols, edge_index.size(1))
        src, dst = edge_index.long().contiguous()
        check_range("source", src, num_cols)
        check_range("destination", dst, num_rows)
        layout = layout or CSRBuilder()
        rowptr, col, edge_id = layout.csr(dst, src, num_rows, num_cols)
        return cls(rowptr, col, num_cols, edge_id, layout)

    @classmethod
    @torch.inference_mode(False)
    def from_csr(
        cls, rowptr: Tensor, col: Tensor, num_cols: int | None = None, layout: CSRBuilder | None = None
    ) -> Graph:
        """Copy rows that are already sorted: `rowptr` [N + 1], `col` [E] ascending within each row.

        Raises:
            GraphError: `rowptr` not running from 0 to E without falling, or `col` out of range or unsorted.
        """
        if rowptr.dim() != 1 or col.dim() != 1 or not rowptr.numel():
            raise GraphError("rowptr and col must be vectors, rowptr with one entry more than there are rows")
        num_rows = rowptr.numel() - 1
        num_cols = num_rows if num_cols is None else num_cols
        check_size(num_rows, num_cols, col.numel())
        rowptr = rowptr.to(torch.int64, copy=True, memory_format=torch.contiguous_format)
        if rowptr[0] != 0 or rowptr[-1] != col.numel() or bool((rowptr.diff() < 0).any()):
            raise GraphError(f"rowptr must rise from 0 to the number of edges, {col.numel()}, and never fall")
        check_range("col", col, num_cols)
        col = col.to(torch.int32, copy=True, memory_format=torch.contiguous_format)
        falls = col.diff() < 0
        row_starts = rowptr[1:-1][(rowptr[1:-1] > 0) & (rowptr[1:-1] < col.numel())]
        falls[row_starts - 1] = False
        if bool(falls.any()):
            raise GraphError(f"col must ascend within each row, but falls after edge {int(falls.nonzero()[0])}")
        return cls(rowptr, col, num_cols, None, layout)

    def known(
        self, *, is_symmetric: bool, transpose: Graph | None = None, transposed: Compressed | None = None
    ) -> Graph:
        """Return this graph, told what it would take a sort to find out, by a builder that is certain of it.

        Args:
            transposed: the transpose with `perm`, instead of `transpose`.
        """
        self.is_symmetric = is_symmetric
        if transposed is not None:
            self._transposed = transposed
            transpose = Graph(transposed.rowptr, transposed.col, self.num_rows, None, self.layout)
        if transpose is not None:
            self._reversed, transpose.is_symmetric = transpose, is_symmetric
        return self

    def sources(self, *x: Tensor) -> tuple[Tensor, ...]:
        """Features [M, ...] of the columns, from those [n, ...] of this process's nodes; here the same."""
        return x

    @property
    def whole(self) -> Graph:
        """The graph that these are rows of; here the same."""
        return self

    @property
    def num_rows(self) -> int:
        return self.rowptr.numel() - 1

    @property
    def num_edges(self) -> int:
        return self.col.numel()

    @property
    def device(self) -> torch.device:
        return self.col.device

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """The result of `make()`, kept in `cache`; where several threads ask at once, all get the same."""
        if key not in self.cache:
            self.cache.setdefault(key, self.computed(make))
        return self.cache[key]

    @torch.inference_mode(False)
    def computed(self, make: Callable[[], T]) -> T:
        """`make()`, whose tensors every mode and every stream can use."""
        made = make()
        synchronize(self.device)
        return made

    @property
    def nbytes(self) -> int:
        """Memory of the graph's tensors and of all that was derived from them and kept, in bytes."""
        return sum({id(tensor): tensor.nbytes for tensor in _tensors(vars(self), {id(self)})}.values())

    def __repr__(self) -> str:
        return f"Graph({self.num_rows} x {self.num_cols}, {self.num_edges} edges, {self.device})"

    @cached
    def degree(self) -> Tensor:
        """In-edges of each destination, [N] int64."""
        return self.rowptr.diff()

    @cached
    def row(self) -> Tensor:
        """Destination of every edge, [E] int64; only the plain-torch kernels need it."""
        return rows_of(self.rowptr, self.num_edges)

    @cached
    def is_symmetric(self) -> bool:
        """Return whether every edge has its reverse, so that the transpose is this graph itself."""
        return self.num_rows == self.num_cols and self.layout.is_symmetric(self.rowptr, self.col)

    @cached
    def _transposed(self) -> Compressed:
        return self.layout.transpose(self.rowptr, self.col, self.num_cols)

    @property
    def transpose(self) -> Graph:
        """The reversed graph; a symmetric one shares this graph's tensors and cache."""
        return self if self.is_symmetric else self._reversed

    @cached
    def _reversed(self) -> Graph:  # never this graph itself: a circle of references would outlive its batch
        return Graph(self._transposed.rowptr, self._transposed.col, self.num_rows, None, self.layout)

    @cached
    def perm(self) -> Tensor:
        """[E] int32: edge i of the transpose is edge `perm[i]` here."""
        if self.is_symmetric and "_transposed" not in vars(self):  # which would keep a second rowptr and col
            return self.layout.transpose(self.rowptr, self.col, self.num_cols).perm
        return self._transposed.perm

    @cached
    def with_self_loops(self) -> Graph:
        """Return the graph with exactly one self-loop per node that is source and destination, as in PyG.

        Equals `add_remaining_self_loops` without edge weights: existing loops, repeated ones too, become one.
        """
        looped = self._with_edges(
            *self.layout.with_self_loops(self.rowptr, self.col, self.num_cols, self.first_col)
        )
        if "is_symmetric" in vars(self):  # which loops do not change
            transpose = self._reversed.with_self_loops if "_reversed" in vars(self) else None
            looped.known(is_symmetric=self.is_symmetric, transpose=transpose)
        return looped

    def _with_edges(self, rowptr: Tensor, col: Tensor) -> Graph:
        """Return a graph of these nodes with other edges."""
        return Graph(rowptr, col, self.num_cols, None, self.layout)

    @cached
    def looped_edge_id(self) -> Tensor:
        """[E'] int64: each edge of `with_self_loops` by its place in `edge_index`, loops by num_edges + node."""
        looped, inner = self.with_self_loops, self.col != self.row
        edge_id = torch.arange(self.num_edges, device=self.device) if self.edge_id is None else self.edge_id.long()
        result = self.num_edges + looped.row
        result[looped.col != looped.row] = edge_id[inner]
        return result

    @cached
    def edge_place(self) -> Tensor | None:
        """[E] int32: where each edge of `edge_index` stands here, the inverse of `edge_id`."""
        if self.edge_id is None:
            return None
        place = torch.arange(self.num_edges, dtype=torch.int32, device=self.device)
        return torch.empty_like(place).scatter_(0, self.edge_id.long(), place)

    @cached
    def looped_edge_place(self) -> Tensor:
        """[E'] int64: where in `with_self_loops` are the edges in the order of PyG, which puts loops last."""
        return self.looped_edge_id.argsort()

    @cached
    def gcn_scale(self) -> Tensor:
        """[N] float64: degree^-1/2, zero for an isolated node (Kipf & Welling 2017, equation 2)."""
        scale = self.degree.double().pow(-0.5)
        return scale.masked_fill_(scale == torch.inf, 0.0)

    @property
    def gcn_scale_of_sources(self) -> Tensor:
        """[M] float64: `gcn_scale` of the columns."""
        return self.gcn_scale

    def check_unchanged(self) -> None:
        """Raise GraphError if `rowptr`, `col` or `num_cols` are not what was checked when the graph was made."""
        rowptr, col, num_cols, *versions = self._checked
        if self.rowptr is not rowptr or self.col is not col or self.num_cols != num_cols:
            raise GraphError("the Graph's rowptr, col or num_cols was replaced; build a new Graph instead")
        if [rowptr._version, col._version] != versions:
            raise GraphError("the Graph's rowptr or col was edited in place; build a new Graph instead")


def synchronize(device: torch.device) -> None:
    """Wait for what was computed, lest another stream of a GPU finds it kept, but not there yet."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def _tensors(value: Any, met: set[int]) -> Iterator[Tensor]:
    """Every tensor that `value` holds, through containers and other Graphs."""
    if isinstance(value, Tensor):
        yield value
    elif id(value) not in met:
        met.add(id(value))
        inner = vars(value) if isinstance(value, Graph) else value
        if isinstance(inner, (dict, tuple, list)):
            # A copy, for other threads may be adding to it.
            for item in list(inner.values() if isinstance(inner, dict) else inner):
                yield from _tensors(item, met)
