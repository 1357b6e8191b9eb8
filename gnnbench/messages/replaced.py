"""Functions that stand in for torch's and PyG's own while a chunk of edges is evaluated.

What a layer's functions look up under these names, in whatever module, looks at every call: what goes over the
index of the chunk, whose edges lie row by row, is reduced by kernels, without a scatter. Everything else, and
every other thread, gets the original.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import _degree, _scatter, _softmax

from gnnbench.convs._overrides import STAND_INS
from gnnbench.messages import elementwise, lifted
from gnnbench.messages.elementwise import Lazy
from gnnbench.ops._custom import is_transformed
from gnnbench.ops.dense import linear
from gnnbench.ops.edge import edge_softmax, segment
from gnnbench.ops.kernels import REDUCTIONS, Kernels
from gnnbench.ops.stream import Chunk

ALIASES = {"add": "sum", "amin": "min", "amax": "max"}


class _Current(threading.local):
    """The chunk that this thread evaluates."""

    chunk: Chunk | None = None
    kernels: Kernels | None = None
    drops = True  # whether dropout drops; it does not where results are to be compared
    dropped = False  # whether it was asked for meanwhile

    def __init__(self) -> None:
        # Tensors and their reductions, which several aggregations ask for, with the versions of these.
        self.reduced: dict[tuple[Any, ...], tuple[Tensor, Tensor, int]] = {}


_current = _Current()
_lock = threading.Lock()
_users = 0
_held: list[tuple[dict[str, Any], str, Any]] = []  # what modules hold under a name while nothing stands in


@contextmanager
def within(chunk: Chunk, kernels: Kernels) -> Iterator[None]:
    """Evaluate functions of `chunk`."""
    before = _current.chunk, _current.kernels
    _current.chunk, _current.kernels, _current.reduced = chunk, kernels, {}
    try:
        with installed():
            yield
    finally:
        (_current.chunk, _current.kernels), _current.reduced = before, {}


@contextmanager
def without_dropout() -> Iterator[_Current]:
    """Let dropout return what it is given, and note that it was asked for."""
    _current.drops = _current.dropped = False
    try:
        yield _current
    finally:
        _current.drops = True


def _reduced(
    src: Any, index: Any, dim: int = 0, dim_size: int | None = None, reduce: str = "sum"
) -> Tensor | None:
    """`scatter` over the index of the chunk; None where it is another one."""
    chunk, kernels, src = _current.chunk, _current.kernels, lifted.numbers(src)
    reduce = ALIASES.get(reduce, reduce)
    if chunk is None or kernels is None or index is not chunk.index or reduce not in REDUCTIONS:
        return None
    if dim_size != chunk.num_rows or not _is_over_edges(src, dim, chunk):
        return None
    dim %= src.dim()
    if torch.is_inference_mode_enabled() or (type(src) is not Lazy and torch.is_inference(src)):  # no versions
        return _segment(kernels, chunk, src, dim, reduce)
    key = id(src), 0 if type(src) is Lazy else src._version, dim, reduce, torch.is_grad_enabled()
    _, out, version = _current.reduced.get(key, (src, None, 0))
    if out is None or out._version != version:
        out = _segment(kernels, chunk, src, dim, reduce)
        _current.reduced[key] = src, out, out._version
    return out


def _segment(kernels: Kernels, chunk: Chunk, src: Tensor, dim: int, reduce: str) -> Tensor:
    if type(src) is Lazy:
        return elementwise.reduced(src, reduce)
    out = segment(kernels, chunk.rowptr, src.movedim(dim, 0) if dim else src, reduce)
    return out.movedim(0, dim) if dim else out


def _normalised(
    src: Any, index: Any = None, ptr: Any = None, num_nodes: int | None = None, dim: int = 0
) -> Tensor | None:
    """`softmax` over the index of the chunk; None where it is another one."""
    chunk, kernels, src = _current.chunk, _current.kernels, lifted.numbers(src)
    if chunk is None or kernels is None or index is not chunk.index or num_nodes != chunk.num_rows:
        return None
    if not _is_over_edges(src, dim, chunk) or dim % src.dim() or not src.numel():
        return None
    if type(src) is Lazy:
        return elementwise.softmax(src)
    score = src.reshape(chunk.num_edges, -1)
    if kernels.unsupported("edge_softmax", chunk.as_graph, score):
        return None
    return edge_softmax(kernels, chunk.as_graph, score).view(src.shape)


def _degrees(index: Any, num_nodes: int | None = None, dtype: torch.dtype | None = None) -> Tensor | None:
    """`degree` of the index of the chunk; None where it is another one."""
    chunk = _current.chunk
    if chunk is None or index is not chunk.index or num_nodes != chunk.num_rows:
        return None
    return chunk.rowptr.diff().to(dtype or torch.get_default_dtype())


def _is_over_edges(src: Any, dim: int, chunk: Chunk) -> bool:
    if type(src) is Lazy:
        return dim in (0, -src.dim()) and len(src) == chunk.num_edges
    plain = type(src) is Tensor and src.is_floating_point() and -src.dim() <= dim < src.dim()
    return plain and src.size(dim) == chunk.num_edges and not is_transformed(src)


def _multiplied(x: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """`linear` of the rows of edges, where kernels are faster at it."""
    if (out := lifted.linear(x, weight, bias)) is not None:
        return out
    kernels, x = _current.kernels, lifted.numbers(x)
    if kernels is None or type(x) is not Tensor or x.dim() != 2 or is_transformed(x, weight, bias):
        return None
    return linear(kernels, x, weight, bias) if kernels.pays("linear", x, weight) else None


def _kept(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor | None:
    """`dropout`, where it is to be left out."""
    if _current.drops or not training or not p:
        return None
    _current.dropped = True
    return x


REPLACED: list[tuple[str, Callable[..., Any], Callable[..., Any]]] = [
    ("scatter", _scatter.scatter, _reduced),
    ("softmax", _softmax.softmax, _normalised),
    ("degree", _degree.degree, _degrees),
    ("linear", F.linear, _multiplied),
    ("dropout", F.dropout, _kept),
]


@contextmanager
def installed() -> Iterator[None]:
    """Hold the stand-ins wherever a module holds the originals, or what stands in for these."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            for names, name, original, compute in _places(len(sys.modules)):
                held = names.get(name)
                if held is original or (type(held) is FunctionType and STAND_INS.get(held) is original):
                    _held.append((names, name, held))
                    names[name] = _stand_in(held, compute)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            while not _users and _held:
                names, name, held = _held.pop()
                if getattr(names.get(name), "stands_for", None) is held:
                    names[name] = held


@functools.lru_cache(1)
def _places(loaded: int) -> list[tuple[dict[str, Any], str, Any, Callable[..., Any]]]:
    """Find the contents of modules with something under one of the names, once so many are loaded."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [
        (vars(module), name, original, compute)
        for name, original, compute in REPLACED
        for module in ([F] if name in ("linear", "dropout") else modules)
        if callable(vars(module).get(name))
    ]


@functools.lru_cache(256)
def _stand_in(held: Callable[..., Any], compute: Callable[..., Any]) -> Callable[..., Any]:
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if _current.chunk is not None:
            out = compute(*args, **kwargs)
            if out is not None:
                return out
        return held(*args, **kwargs)

    stand_in.stands_for = held  # type: ignore[attr-defined]
    return stand_in
