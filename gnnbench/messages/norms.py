"""Norms that `gcn_norm` made of a program's edges, kept for all layers as `cached=True` keeps them in one."""

from __future__ import annotations

import inspect
import threading
import weakref
from types import NoneType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gnnbench.graph.cache import MADE, MAX_GRAPH_BYTES, Stamp, is_sparse, stamp

OPTIONS = int, bool, str, NoneType, torch.dtype
_SIGNATURE = inspect.signature(gcn_norm)


class Asked(NamedTuple):
    """A call of `gcn_norm` whose result follows from the numbers in plain tensors, and needs no gradient."""

    edge_index: Tensor
    weight: Tensor | None
    options: Any  # whatever else the result depends on


def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked | None:
    """The call of these arguments; None where its result cannot be kept."""
    try:
        given = _SIGNATURE.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    edge_index, weight = given.pop("edge_index"), given.pop("edge_weight", None)
    if type(edge_index) is not Tensor or is_sparse(edge_index):
        return None
    if weight is not None and (type(weight) is not Tensor or weight.requires_grad):
        return None
    if any(type(each) not in OPTIONS for each in given.values()):
        return None
    device = edge_index.device.type
    autocast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
    return Asked(edge_index, weight, (weight is None, autocast, frozenset(given.items())))


class _Norm(NamedTuple):
    edge_index: Tensor | None  # with loops; None where it is the one that was given
    norm: Tensor  # a number for each edge
    weight: weakref.ref[Tensor] | None
    stamps: list[Stamp]  # of all tensors, for messages may edit what they are given

    @property
    def nbytes(self) -> int:
        return self.norm.nbytes + (0 if self.edge_index is None else self.edge_index.nbytes)


class KnownNorms:
    """Norms of the last few `edge_index`, each forgotten with that tensor."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.clear()

    def clear(self) -> None:
        """Forget all norms."""
        self._of: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # edge_index -> {options: _Norm}

    @property
    def nbytes(self) -> int:
        """Memory of all norms kept."""
        with self._lock:
            return sum(norm.nbytes for known in self._of.values() for norm in known.values())

    def find(self, asked: Asked) -> tuple[Tensor, Tensor] | None:
        """Return edges and their norm; None where they have to be made, of tensors that are new or were edited."""
        kept = self._of.get(asked.edge_index, {}).get(asked.options)
        if kept is None or (kept.weight is not None and kept.weight() is not asked.weight):
            return None
        edges = asked.edge_index if kept.edge_index is None else kept.edge_index
        unchanged = all(map(Stamp.holds, kept.stamps, _tensors(asked, edges, kept.norm)))
        return (edges, kept.norm) if unchanged else None

    def make(self, asked: Asked, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Run PyG's own code, keep what it returns, and forget the oldest of too many."""
        with torch.inference_mode(False):
            edges, norm = gcn_norm(*args, **kwargs)
        tensors = _tensors(asked, edges, norm)
        stamps = [each for each in map(stamp, tensors) if each is not None]
        if len(stamps) < len(tensors):  # an edit would not show
            return edges, norm
        looped = None if edges is asked.edge_index else edges
        made = _Norm(looped, norm, None if asked.weight is None else weakref.ref(asked.weight), stamps)
        with self._lock:
            self._of[asked.edge_index] = self._of.pop(asked.edge_index, {}) | {asked.options: made}
            for oldest in list(self._of.keys())[:-1]:
                if len(self._of) <= MADE and self.nbytes <= MAX_GRAPH_BYTES:
                    break
                self._of.pop(oldest, None)
        return edges, norm


def _tensors(asked: Asked, edges: Tensor, norm: Tensor) -> list[Tensor]:
    return [asked.edge_index, edges, norm, *([] if asked.weight is None else [asked.weight])]
