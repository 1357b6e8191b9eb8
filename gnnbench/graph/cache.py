"""GraphCache: the Graph of an adjacency that a program passes around, found by it as long as it is unchanged."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Collection
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdRef
from torch_geometric.typing import SparseTensor

from gnnbench.graph import CSRBuilder, Graph, rows_of, synchronize

Adjacency: TypeAlias = Any  # Tensor, EdgeIndex or SparseTensor
MAX_GRAPH_BYTES = 2 << 30  # that the Graphs of a device may hold together
MADE = 4  # edge indices that a program makes again and again, whose Graphs are kept without them
MAX_PARTS = 16  # of one tensor are remembered, for batches may be cut out of it without end
MIN_SAMPLED = 4096  # numbers, of which all are compared
SAMPLES = 64  # of each dimension of a larger tensor, about


class Stamp(NamedTuple):
    """Equal as long as nothing was edited in place, by torch, nor other memory given to the tensor by `.data`.

    An edit that torch does not count (of `.data`, or of the array that `.numpy()` shares) shows on the CPU if it
    changes one of the numbers that are compared. A GPU would have to be waited for.
    """

    version: int
    memory: weakref.ref[torch.UntypedStorage]  # an address alone could be another tensor's by now
    address: int
    sample: bytes

    def holds(self, tensor: Tensor, numbers: np.ndarray | None = None) -> bool:
        """Return whether the tensor that this stamp is of was left as it was; `numbers` are those sampled."""
        return (
            tensor._version == self.version
            and tensor.data_ptr() == self.address
            and tensor.untyped_storage() is self.memory()
            and (not self.sample or (sample(tensor) if numbers is None else numbers.tobytes()) == self.sample)
        )


def stamp(tensor: Tensor) -> Stamp | None:
    """A stamp of the contents of `tensor`; None for an inference tensor, where no edit by torch would show."""
    if tensor.is_inference():
        return None
    memory = weakref.ref(tensor.untyped_storage())
    return Stamp(tensor._version, memory, tensor.data_ptr(), sample(tensor) if tensor.is_cpu else b"")


def sample(tensor: Tensor) -> bytes:
    """Bytes of all numbers of a tensor in main memory, of about 64 in each dimension where there are many."""
    return sampled(tensor).tobytes()


def sampled(tensor: Tensor) -> np.ndarray:
    """The numbers that `sample` compares; in the memory of the tensor, but where that holds their negatives."""
    if tensor.dtype is not torch.int64:
        tensor = tensor.detach().resolve_neg()
        tensor = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
    numbers = tensor.numpy()
    return numbers[_steps(numbers.shape)] if numbers.size > MIN_SAMPLED else numbers


@functools.lru_cache
def _steps(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(None, None, length // SAMPLES + 1) for length in shape)


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
        return adjacency.storage.value()
    return adjacency._values() if adjacency.layout == torch.sparse_coo else adjacency.values()


def owner(adjacency: Adjacency) -> Tensor:
    """The tensor that an adjacency lives and dies with; views are made anew for every call, their base is not."""
    if type(adjacency) is Tensor:
        base = adjacency._base
        return adjacency if base is None else base
    return adjacency.storage.col() if isinstance(adjacency, SparseTensor) else adjacency


def view_key(adjacency: Adjacency) -> Any:
    """A key that tells adjacencies of one owner apart."""
    if isinstance(adjacency, SparseTensor):
        return WeakIdRef(adjacency.storage.rowptr())
    if is_sparse(adjacency):
        return None
    return adjacency.storage_offset(), adjacency.size(), adjacency.stride()


class _Key(NamedTuple):
    owner: int  # its id
    num_rows: int
    num_cols: int
    reverse: bool
    view: Any  # which view of its owner an adjacency is


class _Entry(NamedTuple):
    graph: Graph
    owner: weakref.ref[Tensor]  # which drops the entry when the tensor is freed
    version: int
    stamps: list[Stamp]  # of the tensors that hold the edges
    samples: list[np.ndarray | None]  # in the memory of these tensors, where it is main memory

    def holds(self, whole: Tensor, adjacency: Adjacency) -> bool:
        """Return whether the edges of an adjacency, `whole` or a part of it, are still those of the Graph."""
        if self.owner() is not whole or self.version != whole._version:
            return False
        return all(map(Stamp.holds, self.stamps, _indices(adjacency), self.samples))


class _Made(NamedTuple):
    graph: weakref.ref[Graph]
    kept: Graph | None  # the same, if its edges were made twice, and may be again when no tensor holds them


class GraphCache:
    """Graphs by the identity and contents of the tensors they were built from.

    A tensor that was freed, edited in place or given other memory never finds an old Graph; edits that torch does
    not count are found by samples, as `stamp` says. Another `edge_index` finds the Graph of an equal one, as of a
    layer whose forward makes its edges anew: it is compared as a whole, which takes much less than to sort it.
    Beyond `max_bytes` the Graphs not used for longest are forgotten. Safe to use from several threads.

    Args:
        layout: the code that sorts the edges.
        max_bytes: memory that the Graphs kept may hold together, the latest aside.
    """

    def __init__(self, layout: CSRBuilder, max_bytes: int) -> None:
        self.layout, self.max_bytes = layout, max_bytes
        self.found = self.built = 0  # how often a Graph was there, and how often not
        self._entries: dict[_Key, _Entry] = {}  # the one used last comes last
        self._made: dict[Any, _Made] = {}  # by the contents of an edge_index, those met last
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
        graph = self.find(adjacency, num_rows, num_cols, reverse=reverse)
        if graph is not None:
            return graph
        whole = owner(adjacency)
        stamps = [stamp(edges) for edges in _indices(adjacency)]  # as they are before they are read
        place = num_rows, num_cols, reverse, contents(adjacency)
        made = self._made.get(place)
        last = None if made is None else made.graph()
        if last is not None and _is_of(last, adjacency, reverse):
            graph = last
        else:
            graph = self._build(adjacency, num_rows, num_cols, reverse)
            synchronize(graph.device)
        is_new = graph is not last
        again = made is not None and (last is None or not is_new)
        with self._lock:
            self.built += is_new
            self.found += not is_new
            self._made.pop(place, None)
            self._made[place] = _Made(weakref.ref(graph), graph if again else None)
            if len(self._made) > MADE:
                del self._made[next(iter(self._made))]
            if not whole.is_inference() and None not in stamps:  # whose edits would go unnoticed
                key = _Key(id(whole), num_rows, num_cols, reverse, view_key(adjacency))
                # Of detached tensors: an array keeps alive what it is of, and `whole` has to be seen to be freed.
                samples = [sampled(edges.detach()) if edges.is_cpu else None for edges in _indices(adjacency)]
                self._keep(key, graph, whole, stamps, samples)
            if is_new:
                self._forget_oldest()
        return graph

    def find(self, adjacency: Adjacency, num_rows: int, num_cols: int, *, reverse: bool = False) -> Graph | None:
        """Return the Graph of an adjacency, or None where it would have to be built."""
        whole = owner(adjacency)
        key = _Key(id(whole), num_rows, num_cols, reverse, view_key(adjacency))
        entry = self._entries.get(key)
        if entry is None or not entry.holds(whole, adjacency):
            return None
        with self._lock:
            self.found += 1
            if self._entries.pop(key, None) is not None:
                self._entries[key] = entry
        return entry.graph

    def _keep(self, key: _Key, graph: Graph, whole: Tensor, stamps: list[Any], samples: list[Any]) -> None:
        this = weakref.ref(self)

        def forget(dead: weakref.ref[Tensor]) -> None:
            cache = this()
            if cache is not None and (entry := cache._entries.get(key)) and entry.owner is dead:
                cache._entries.pop(key, None)

        self._entries.pop(key, None)
        self._entries[key] = _Entry(graph, weakref.ref(whole, forget), whole._version, stamps, samples)
        parts = [each for each in list(self._entries) if each.owner == key.owner]
        for each in parts[:-MAX_PARTS]:
            self._entries.pop(each, None)

    @torch.inference_mode(False)
    def _build(self, adjacency: Adjacency, num_rows: int, num_cols: int, reverse: bool) -> Graph:
        edge_index = _edge_index(adjacency)
        if adjacency.dim() == 1 and _rises(edge_index[1], num_rows):
            rowptr = torch._convert_indices_from_coo_to_csr(edge_index[1], num_rows)
            return Graph(rowptr, edge_index[0].int(), num_cols, None, self.layout)
        edge_index = edge_index.flip(0) if reverse else edge_index
        return Graph.from_edge_index(edge_index, num_rows, num_cols, layout=self.layout)

    def _graphs(self) -> Collection[Graph]:
        """All Graphs that are kept, each once."""
        kept = [entry.graph for entry in list(self._entries.values())]
        kept += [made.kept for made in list(self._made.values()) if made.kept is not None]
        return {id(graph): graph for graph in kept}.values()

    def __len__(self) -> int:
        return len(self._graphs())

    @property
    def nbytes(self) -> int:
        """Memory of all Graphs kept, with everything derived from them."""
        return sum(graph.nbytes for graph in self._graphs())

    def clear(self) -> None:
        """Forget every Graph."""
        self._entries.clear()
        self._made.clear()

    def _forget_oldest(self) -> None:
        for kept in self._made, self._entries:
            for key in list(kept)[:-1]:
                if self.nbytes <= self.max_bytes:
                    return
                kept.pop(key, None)


def contents(adjacency: Adjacency) -> tuple[Any, ...]:
    """A key that adjacencies of equal edges have in common, and others hardly ever; on a GPU, all of one shape."""
    return tuple(
        (edges.shape, edges.device, hash(sample(edges)) if edges.is_cpu else 0) for edges in _indices(adjacency)
    )


def _is_of(graph: Graph, adjacency: Adjacency, reverse: bool) -> bool:
    """Return whether a Graph is that of an `edge_index`, in its order of edges, by all of them."""
    if is_sparse(adjacency) or adjacency.dim() != 2:
        return False
    edge_index = _edge_index(adjacency).long()
    source, destination = edge_index.flip(0) if reverse else edge_index
    return graph.layout.is_of(graph.rowptr, graph.col, graph.edge_id, source, destination)


def _indices(adjacency: Adjacency) -> tuple[Tensor, ...]:
    """The tensors that hold the edges: of a sparse matrix, or inside PyG's EdgeIndex."""
    if type(adjacency) is Tensor and adjacency.layout is torch.strided:
        return (adjacency,)
    if isinstance(adjacency, SparseTensor):
        return adjacency.storage.rowptr(), adjacency.storage.col()
    if adjacency.layout == torch.sparse_csr:
        return adjacency.crow_indices(), adjacency.col_indices()
    if adjacency.layout == torch.sparse_csc:
        return adjacency.ccol_indices(), adjacency.row_indices()
    if adjacency.layout == torch.sparse_coo:
        return (adjacency._indices(),)
    data: Any = getattr(adjacency, "_data", adjacency)
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
    return not index.numel() or bool(index[0] >= 0 and index[-1] < num_rows and (index[1:] >= index[:-1]).all())
