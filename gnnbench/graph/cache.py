"""GraphCache: the Graph of an adjacency that a program passes around, found by the adjacency itself."""

from __future__ import annotations

import itertools
import threading
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.utils.weak import WeakIdRef, WeakTensorKeyDictionary
from torch_geometric.typing import SparseTensor

from gnnbench.graph import CSRBuilder, Graph, rows_of, synchronize
from gnnbench.graph.stamp import Stamp, stamp

Adjacency: TypeAlias = Any  # Tensor, EdgeIndex or SparseTensor
State: TypeAlias = tuple[int, tuple[Stamp | None, ...]]  # of its owner, and of the tensors that hold its edges
MAX_GRAPH_BYTES = 2 << 30  # that the Graphs of a device may hold together
MAX_PARTS = 16  # of one tensor are remembered, for batches may be cut out of it without end


def is_sparse(adjacency: Adjacency) -> bool:
    """Return whether it is a sparse matrix, whose rows are destinations, rather than indices."""
    return isinstance(adjacency, SparseTensor) or adjacency.layout != torch.strided


def num_edges(adjacency: Adjacency) -> int:
    if isinstance(adjacency, SparseTensor):
        return int(adjacency.nnz())
    return adjacency._nnz() if is_sparse(adjacency) else adjacency.size(-1)


def values(adjacency: Adjacency) -> Tensor | None:
    """The values of a sparse matrix [E]; None for a SparseTensor that has none."""
    if isinstance(adjacency, SparseTensor):
        value: Tensor | None = adjacency.storage.value()
        return value
    return adjacency._values() if adjacency.layout == torch.sparse_coo else adjacency.values()


def owner(adjacency: Adjacency) -> Tensor:
    """The tensor that an adjacency lives and dies with; views are made anew for every call, their base is not."""
    if isinstance(adjacency, SparseTensor):
        return adjacency.storage.col()
    base = adjacency._base if type(adjacency) is Tensor else None
    return adjacency if base is None else base


def part(adjacency: Adjacency) -> Any:
    """A key that tells adjacencies of one owner apart."""
    if isinstance(adjacency, SparseTensor):
        return WeakIdRef(adjacency.storage.rowptr())
    if is_sparse(adjacency):
        return None
    return adjacency.storage_offset(), adjacency.size(), adjacency.stride()


class _Shape(NamedTuple):
    num_rows: int
    num_cols: int
    reverse: bool
    part: Any  # which part of its owner an adjacency is


class _Entry:
    def __init__(self, graph: Graph, state: State, used: int) -> None:
        self.graph, self.state, self.used = graph, state, used


class GraphCache:
    """Graphs by the identity and contents of the tensors they were built from.

    A tensor that was freed, edited in place or given other memory never finds an old Graph; edits that torch does
    not count are found by samples, as `stamp` says. Beyond `max_bytes` the Graphs not used for longest are
    forgotten. Safe to use from several threads.

    Args:
        layout: the code that sorts the edges.
        max_bytes: memory that the Graphs kept may hold together, the latest aside.

    Attributes:
        found, built: how often a Graph was there, and how often not.
    """

    def __init__(self, layout: CSRBuilder, max_bytes: int) -> None:
        self.layout, self.max_bytes = layout, max_bytes
        self.found = self.built = 0
        self._entries: Any = WeakTensorKeyDictionary()  # owner -> {_Shape: _Entry}
        self._clock = itertools.count()
        self._lock = threading.RLock()

    def graph(self, adjacency: Adjacency, num_rows: int, num_cols: int, *, reverse: bool = False) -> Graph:
        """The Graph of `adjacency`, kept until the tensor is edited or freed.

        Args:
            adjacency: `edge_index` [2, E] (source, destination); a sparse matrix of torch in COO, CSR or CSC or of
                torch_sparse, whose rows are destinations; or `index` [E], the destinations of edges that are each
                a source of its own.
            num_rows: destinations.
            num_cols: sources.
            reverse: `edge_index` holds (destination, source), PyG's `flow="target_to_source"`.

        Returns:
            A Graph whose `edge_id` is each edge's position in `edge_index`, or among a sparse matrix's values.

        Raises:
            GraphError: an index out of range, or a wrong shape or type.
        """
        result = self.find(adjacency, num_rows, num_cols, reverse=reverse)
        if result is not None:
            return result
        state = _state(adjacency)
        graph = self._build(adjacency, num_rows, num_cols, reverse)
        synchronize(graph.device)
        with self._lock:
            self.built += 1
            if state is not None:
                entry = _Entry(graph, state, next(self._clock))
                shape = _Shape(num_rows, num_cols, reverse, part(adjacency))
                shapes = self._entries.setdefault(owner(adjacency), {})
                shapes[shape] = entry
                if len(shapes) > MAX_PARTS:
                    del shapes[next(iter(shapes))]
                self._forget_oldest()
        return graph

    def find(self, adjacency: Adjacency, num_rows: int, num_cols: int, *, reverse: bool = False) -> Graph | None:
        """Return the Graph of an adjacency, or None where it would have to be built."""
        state, shape = _state(adjacency), _Shape(num_rows, num_cols, reverse, part(adjacency))
        with self._lock:
            entry: _Entry | None = self._entries.get(owner(adjacency), {}).get(shape)
            if entry is None or entry.state != state:
                return None
            self.found += 1
            entry.used = next(self._clock)
        return entry.graph

    @torch.inference_mode(False)
    def _build(self, adjacency: Adjacency, num_rows: int, num_cols: int, reverse: bool) -> Graph:
        edge_index = _edge_index(adjacency)
        if adjacency.dim() == 1 and _rises(edge_index[1], num_rows):
            rowptr = torch._convert_indices_from_coo_to_csr(edge_index[1], num_rows)
            return Graph(rowptr, edge_index[0].int(), num_cols, None, self.layout)
        edge_index = edge_index.flip(0) if reverse else edge_index
        return Graph.from_edge_index(edge_index, num_rows, num_cols, layout=self.layout)

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


def _state(adjacency: Adjacency) -> State | None:
    """A stamp of the contents of an adjacency; None for inference tensors, whose edits go unnoticed."""
    whole = owner(adjacency)
    if whole.is_inference():
        return None
    stamps = tuple(map(stamp, _indices(adjacency)))
    return None if None in stamps else (whole._version, stamps)


def _indices(adjacency: Adjacency) -> tuple[Tensor, ...]:
    """The tensors that hold the edges: of a sparse matrix, or inside PyG's EdgeIndex."""
    if isinstance(adjacency, SparseTensor):
        return adjacency.storage.rowptr(), adjacency.storage.col()
    if adjacency.layout == torch.sparse_csr:
        return adjacency.crow_indices(), adjacency.col_indices()
    if adjacency.layout == torch.sparse_csc:
        return adjacency.ccol_indices(), adjacency.row_indices()
    if adjacency.layout == torch.sparse_coo:
        return (adjacency._indices(),)
    data: Any = adjacency if type(adjacency) is Tensor else getattr(adjacency, "_data", adjacency)
    return (data,)


def _edge_index(adjacency: Adjacency) -> Tensor:
    """(source, destination) of every edge, in the order of `edge_index` or of a sparse matrix's values."""
    parts = _indices(adjacency)
    if len(parts) == 1:
        only = parts[0]
        if only.dim() == 1:
            return torch.stack([torch.arange(only.numel(), device=only.device), only])
        return only.flip(0) if is_sparse(adjacency) else only
    starts, others = (part.long() for part in parts)
    expanded = rows_of(starts, others.numel())
    by_column = not isinstance(adjacency, SparseTensor) and adjacency.layout == torch.sparse_csc
    return torch.stack([expanded, others] if by_column else [others, expanded])


def _rises(index: Tensor, num_rows: int) -> bool:
    """Return whether rows come in order and within range, so that there is nothing to sort."""
    if not index.numel():
        return True
    return bool(index[0] >= 0) and bool(index[-1] < num_rows) and not bool((index[1:] < index[:-1]).any())
