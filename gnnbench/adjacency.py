"""GraphCache: the Graph of an adjacency that a program passes around, found by the tensor itself."""

from __future__ import annotations

import itertools
import threading
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gnnbench.graph import Graph, Layout, rows_of


class _Shape(NamedTuple):
    num_rows: int
    num_cols: int
    reverse: bool


class _Entry:
    def __init__(self, graph: Graph, versions: tuple[int, ...], used: int) -> None:
        self.graph, self.versions, self.used = graph, versions, used


class GraphCache:
    """Graphs by the identity and version counters of the tensors they were built from.

    A tensor that was edited in place or freed never finds an old Graph, for its address plays no part. Beyond
    `max_bytes` the Graphs not used for longest are forgotten. Safe to use from several threads.

    Args:
        layout: who sorts the edges.
        max_bytes: memory that the Graphs kept may hold together, the latest aside.

    Attributes:
        found, built: how often a Graph was there, and how often not.
    """

    def __init__(self, layout: Layout, max_bytes: int) -> None:
        self.layout, self.max_bytes = layout, max_bytes
        self.found = self.built = 0
        self._entries: Any = WeakTensorKeyDictionary()  # tensor -> {_Shape: _Entry}
        self._clock = itertools.count()
        self._lock = threading.RLock()

    def graph(self, adjacency: Tensor, num_rows: int, num_cols: int, *, reverse: bool = False) -> Graph:
        """The Graph of `adjacency`, kept until the tensor is edited or freed.

        Args:
            adjacency: `edge_index` [2, E] (source, destination), or a sparse tensor in COO, CSR or CSC whose
                rows are destinations.
            num_rows: destinations.
            num_cols: sources.
            reverse: `edge_index` holds (destination, source), PyG's `flow="target_to_source"`.

        Returns:
            A Graph whose `edge_id` is each edge's position in `edge_index`, or among a sparse tensor's values.

        Raises:
            GraphError: an index out of range, or a wrong shape or type.
        """
        found = self.find(adjacency, num_rows, num_cols, reverse=reverse)
        if found is not None:
            return found
        versions, edge_index = _versions(adjacency), _edge_index(adjacency)
        graph = Graph.from_edge_index(
            edge_index.flip(0) if reverse else edge_index, num_rows, num_cols, layout=self.layout
        )
        with self._lock:
            self.built += 1
            if versions:
                entry = _Entry(graph, versions, next(self._clock))
                self._entries.setdefault(adjacency, {})[_Shape(num_rows, num_cols, reverse)] = entry
                self._forget_oldest()
        return graph

    def find(self, adjacency: Tensor, num_rows: int, num_cols: int, *, reverse: bool = False) -> Graph | None:
        """The same, or None where it would have to be built."""
        versions = _versions(adjacency)
        with self._lock:
            entry = self._entries.get(adjacency, {}).get(_Shape(num_rows, num_cols, reverse))
            if entry is None or not versions or entry.versions != versions:
                return None
            self.found += 1
            entry.used = next(self._clock)
            graph: Graph = entry.graph
            return graph

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._entries.values()))

    @property
    def nbytes(self) -> int:
        """Memory of all Graphs kept, with everything derived from them."""
        with self._lock:
            return sum(entry.graph.nbytes for shapes in self._entries.values() for entry in shapes.values())

    def clear(self) -> None:
        """Forget every Graph."""
        with self._lock:
            self._entries.clear()

    def _forget_oldest(self) -> None:
        kept = [
            (entry.used, shapes, shape) for shapes in self._entries.values() for shape, entry in shapes.items()
        ]
        excess = self.nbytes - self.max_bytes
        for _, shapes, shape in sorted(kept, key=lambda item: int(item[0]))[:-1]:
            if excess <= 0:
                break
            excess -= shapes.pop(shape).graph.nbytes


def _versions(adjacency: Tensor) -> tuple[int, ...]:
    """Version counters of the tensor and its parts; none for inference tensors, whose edits go unnoticed."""
    parts = adjacency, *_indices(adjacency)
    return () if any(part.is_inference() for part in parts) else tuple(part._version for part in parts)


def _indices(adjacency: Tensor) -> tuple[Tensor, ...]:
    """The tensors that hold the edges: of a sparse tensor, or inside PyG's EdgeIndex."""
    if adjacency.layout == torch.sparse_csr:
        return adjacency.crow_indices(), adjacency.col_indices()
    if adjacency.layout == torch.sparse_csc:
        return adjacency.ccol_indices(), adjacency.row_indices()
    if adjacency.layout == torch.sparse_coo:
        return (adjacency._indices(),)
    return (adjacency if type(adjacency) is Tensor else getattr(adjacency, "_data", adjacency),)


def _edge_index(adjacency: Tensor) -> Tensor:
    """(source, destination) of every edge, in the order of `edge_index` or of a sparse tensor's values."""
    parts = _indices(adjacency)
    if len(parts) == 1:
        return parts[0].flip(0) if adjacency.is_sparse else parts[0]
    starts, others = (part.long() for part in parts)
    expanded = rows_of(starts, others.numel())
    return torch.stack([others, expanded] if adjacency.layout == torch.sparse_csr else [expanded, others])
