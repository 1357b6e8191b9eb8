"""Segments of edges: rows, or slices of rows with many edges, found on the device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.graph.check import MAX_INT32


@dataclass(frozen=True)
class Segments:
    """Segment s is of the edges begin[s]:end[s], if they are not more than `longest`, and belongs to row[s]."""

    begin: Tensor  # [S] int64
    end: Tensor  # [S] int64
    row: Tensor | None = None  # [S] int64; None where it is s itself
    longest: int = MAX_INT32

    @property
    def count(self) -> int:
        return self.begin.numel()

    @property
    def apart(self) -> Segments:
        """Return these segments, each belonging to itself: what kernels make of them are partial results."""
        return replace(self, row=None)


class Hubs(NamedTuple):
    """The rows with many edges, and their slices in the order of rows and edges."""

    slices: Segments  # of edges
    begin: Tensor  # [S] int64: slices begin[s]:end[s] are of the same row as slice s
    end: Tensor
    rows: Segments  # of slices


def rows(graph: Graph, longest: int) -> Segments:
    """Every row that has at most `longest` edges."""
    return Segments(graph.rowptr[:-1], graph.rowptr[1:], None, longest)


def longest_row(graph: Graph) -> int:
    """Edges of the row that has most; the device is asked once."""
    return graph.once("longest", lambda: int(graph.degree.max()) if graph.num_rows else 0)


def hubs(graph: Graph, longest: int) -> Hubs | None:
    """The other rows, in slices of `longest` edges; made once; None if there is none."""
    return graph.once(("hubs", longest), lambda: _hubs(graph, longest))


def _hubs(graph: Graph, longest: int) -> Hubs | None:
    hub = (graph.degree > longest).nonzero().flatten()
    if not hub.numel():
        return None
    counts = (graph.degree[hub] + longest - 1) // longest
    last = counts.cumsum(0)
    row, begin, end = (tensor.repeat_interleave(counts) for tensor in (hub, last - counts, last))
    first_edge = graph.rowptr[row] + (torch.arange(row.numel(), device=row.device) - begin) * longest
    last_edge = torch.minimum(first_edge + longest, graph.rowptr[row + 1])
    return Hubs(Segments(first_edge, last_edge, row), begin, end, Segments(last - counts, last, hub))
