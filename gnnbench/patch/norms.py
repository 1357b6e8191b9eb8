"""Norms that `gcn_norm` made of a program's edges, kept for all layers as `cached=True` keeps them in one."""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gnnbench.graph.cache import MADE, MAX_GRAPH_BYTES, Stamp, stamp


class _Norm(NamedTuple):
    edge_index: Tensor | None  # with loops; None where it is the one that was given
    norm: Tensor  # a number for each edge
    weight: weakref.ref[Tensor] | None
    stamps: list[Stamp]  # of all tensors, for messages may edit what they are given

    def of(self, edge_index: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """Edges and their norm; None where one of the tensors is another, or was edited."""
        if self.weight is not None and self.weight() is not weight:
            return None
        edges = edge_index if self.edge_index is None else self.edge_index
        tensors = [edge_index, edges, self.norm, *([] if weight is None else [weight])]
        return (edges, self.norm) if all(map(Stamp.holds, self.stamps, tensors)) else None

    @property
    def nbytes(self) -> int:
        return self.norm.nbytes + (0 if self.edge_index is None else self.edge_index.nbytes)


class KnownNorms:
    """Norms of the last few `edge_index`, each forgotten with that tensor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all norms."""
        self._of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # edge_index -> {options: _Norm}

    @property
    def nbytes(self) -> int:
        """Memory of all norms kept."""
        with self._lock:
            return sum(norm.nbytes for known in self._of.values() for norm in known.values())

    def find(self, edge_index: Tensor, weight: Tensor | None, options: Any) -> tuple[Tensor, Tensor] | None:
        """Return what was made of these, None where it is not known."""
        norm = self._of.get(edge_index, {}).get((weight is None, options))
        return None if norm is None else norm.of(edge_index, weight)

    def keep(self, edge_index: Tensor, weight: Tensor | None, options: Any, edges: Tensor, norm: Tensor) -> None:
        """Keep what was made of these, and forget the oldest of too many."""
        tensors = [edge_index, edges, norm, *([] if weight is None else [weight])]
        stamps = [each for each in map(stamp, tensors) if each is not None]
        if len(stamps) < len(tensors):  # an edit would not show
            return
        looped = None if edges is edge_index else edges
        made = _Norm(looped, norm, None if weight is None else weakref.ref(weight), stamps)
        with self._lock:
            known = self._of.pop(edge_index, {})
            self._of[edge_index] = known | {(weight is None, options): made}
        while len(self._of) > MADE or (len(self._of) > 1 and self.nbytes > MAX_GRAPH_BYTES):
            with self._lock:
                self._of.pop(next(iter(self._of.keys())), None)
