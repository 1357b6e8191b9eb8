"""Functions of edges, reduced by destination or not, evaluated for some destinations at a time.

The forward keeps nothing over edges. The backward evaluates every chunk again, with gradients, and adds what it
gets to those of the nodes, so that memory is that of a chunk however many edges there are. Whatever is local to a
destination, such as a softmax over its edges, is exact, for a chunk holds all edges of its destinations.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from gnnbench.graph import Graph, rows_of
from gnnbench.ops.kernels import Kernels

LEAST, MOST = 1 << 8, 1 << 17  # edges of a chunk
AT_ONCE = 8  # chunks

Place: TypeAlias = Literal["source", "destination", "edge", "shared", "parameter"]


class Chunk:
    """Some destinations of a graph with all their edges, in the order of `graph.col`.

    Attributes:
        rows, edges: which they are.
        rowptr: [r + 1] int64 of these rows, from 0 on.
    """

    def __init__(self, graph: Graph, rows: slice, edges: slice) -> None:
        self.graph, self.rows, self.edges = graph, rows, edges
        self.rowptr = graph.rowptr[rows.start : rows.stop + 1] - edges.start
        self.num_rows, self.num_edges = rows.stop - rows.start, edges.stop - edges.start

    @cached_property
    def index(self) -> Tensor:
        """Destination of every edge, counted within the chunk, [e] int64."""
        return rows_of(self.rowptr, self.num_edges)

    @cached_property
    def col(self) -> Tensor:
        """Source of every edge, [e] int32."""
        return self.graph.col[self.edges]

    @cached_property
    def edge_id(self) -> Tensor:
        """Position of every edge in `edge_index`, [e] int64."""
        edge_id = self.graph.edge_id
        if edge_id is None:
            return torch.arange(self.edges.start, self.edges.stop, device=self.col.device)
        return edge_id[self.edges].long()

    @cached_property
    def as_graph(self) -> Graph:
        """Its rows over their edges, each a column of its own."""
        col = torch.arange(self.num_edges, dtype=torch.int32, device=self.col.device)
        return Graph(self.rowptr, col, self.num_edges, None, self.graph.layout)


Function: TypeAlias = Callable[..., tuple[Tensor, ...]]  # of a Chunk, and of its share of each tensor


class Operands(NamedTuple):
    """Tensors with their places.

    A function is given of each tensor
        source: rows [e, ...], those of the sources of the edges;
        destination: likewise of the destinations;
        edge: the rows of the edges, of a tensor in the order of `edge_index`;
        shared: all of it;
        parameter: nothing, as it finds these itself.
    """

    tensors: Sequence[Tensor]
    places: Sequence[Place]

    def of(self, kernels: Kernels, chunk: Chunk) -> list[Tensor]:
        """The share of a chunk in each tensor."""
        pairs = zip(self.tensors, self.places, strict=True)
        return [_share(kernels, chunk, tensor, place) for tensor, place in pairs]

    def given(self, shares: Sequence[Tensor]) -> list[Tensor]:
        """Those among `shares` that a function takes."""
        return [share for share, place in zip(shares, self.places, strict=True) if place != "parameter"]


def chunk_length(kernels: Kernels, graph: Graph, bytes_per_edge: float) -> int:
    """Edges of a chunk: all where that keeps alive no more than a few chunks, for they are then computed once."""
    if bytes_per_edge * graph.num_edges <= AT_ONCE * kernels.chunk_bytes:
        return graph.num_edges
    length = int(kernels.chunk_bytes / bytes_per_edge)
    return 1 << (min(max(length, LEAST), MOST).bit_length() - 1)


def chunks(graph: Graph, edges: int) -> Iterator[Chunk]:
    """The rows of a graph in turn, as many at once as have `edges` edges, one at least."""
    bounds = graph.once(("chunks", edges), lambda: _bounds(graph.rowptr.tolist(), edges))
    for (row, edge), (next_row, next_edge) in itertools.pairwise(bounds):
        yield Chunk(graph, slice(row, next_row), slice(edge, next_edge))


def stream(
    kernels: Kernels,
    graph: Graph,
    function: Function,
    operands: Operands,
    *,
    edges: int,
    over_edges: Sequence[bool] = (False,),
    draws: bool = False,
) -> tuple[Tensor, ...]:
    """Evaluate `function` chunk by chunk.

    Args:
        kernels: they gather, and reduce gradients.
        graph: N destinations, E edges.
        function: chunk, *shares -> tensors [r, ...], rows for its destinations, or [e, ...], for its edges.
        operands: what it computes from; gradients go to these and nowhere else.
        edges: of a chunk, unless a destination alone has more.
        over_edges: of each result, whether it is over edges.
        draws: whether it draws random numbers; the backward then draws them again.

    Returns:
        [N, ...], or [E, ...] in the order of `edge_index`, each; differentiable in the operands, to any order.
    """
    how = _How(kernels, graph, function, tuple(operands.places), edges, tuple(over_edges), draws)
    if graph.num_edges <= edges:  # nothing to save by computing it again
        (chunk,) = chunks(graph, edges)
        shares = [
            tensor if place in ("shared", "parameter") else _Share.apply(tensor, place, kernels, chunk)
            for tensor, place in zip(*operands, strict=True)
        ]
        return _joined(how, [function(chunk, *operands.given(shares))])
    outs: tuple[Tensor, ...] = _Stream.apply(how, *operands.tensors)
    return outs


class _How(NamedTuple):
    kernels: Kernels
    graph: Graph
    function: Function
    places: tuple[Place, ...]
    edges: int
    over_edges: tuple[bool, ...]
    draws: bool


class _Stream(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: _How, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.how = how
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        device = how.graph.device
        ctx.autocast = autocast_of(device)
        ctx.states = []
        operands, outs = Operands(tensors, how.places), []
        with in_types_of(device, ctx.autocast):
            for chunk in chunks(how.graph, how.edges):
                if how.draws:
                    ctx.states.append(_random_state(device))
                outs.append(how.function(chunk, *operands.given(operands.of(how.kernels, chunk))))
        return _joined(how, outs)

    @staticmethod
    def backward(ctx: Any, *grad_outs: Tensor | None) -> tuple[Any, ...]:
        how, tensors, needed = ctx.how, ctx.saved_tensors, ctx.needs_input_grad[1:]
        with in_types_of(how.graph.device, ctx.autocast):
            if torch.is_grad_enabled():
                return None, *_at_once(how, tensors, needed, grad_outs, ctx.states)
            gradients = [
                _Gradient(how.kernels, tensor, place) if need else None
                for tensor, place, need in zip(tensors, how.places, needed, strict=True)
            ]
            with _random_kept(how.graph.device, how.draws):
                for k, chunk in enumerate(chunks(how.graph, how.edges)):
                    if how.draws:
                        _set_random_state(how.graph.device, ctx.states[k])
                    _add_chunk(how, chunk, tensors, gradients, grad_outs)
        return None, *(None if gradient is None else gradient.total for gradient in gradients)


class _Share(torch.autograd.Function):
    """The share of the one chunk of a graph in an operand over nodes or edges."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, place: Place, kernels: Kernels, chunk: Chunk) -> Tensor:
        ctx.how = place, kernels, chunk, tensor.shape
        return _share(kernels, chunk, tensor, place)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        place, kernels, chunk, shape = ctx.how
        if torch.is_grad_enabled():  # which autograd follows
            index = {"source": chunk.col, "destination": chunk.index, "edge": chunk.edge_id}[place]
            return grad.new_zeros(shape).index_add(0, index, grad), None, None, None
        gradient = _Gradient(kernels, grad.new_empty(shape), place)
        gradient.add(chunk, grad)
        return gradient.total, None, None, None


class _Gradient:
    """The gradient of one operand, to which chunks add theirs."""

    def __init__(self, kernels: Kernels, tensor: Tensor, place: Place) -> None:
        self.kernels, self.place = kernels, place
        # Chunks write the rows of destinations and edges once each, and add to those of sources.
        new = torch.zeros_like if place == "source" else torch.empty_like
        self.total: Tensor | None = None
        self.like, self.new = tensor, new

    def add(self, chunk: Chunk, grad: Tensor | None) -> None:
        if self.place in ("shared", "parameter"):
            if grad is not None:
                self.total = grad if self.total is None else self.total.add_(grad)
            return
        if self.total is None:
            self.total = self.new(self.like, memory_format=torch.contiguous_format)
        if grad is None:
            grad = self.like.new_zeros(chunk.num_edges, *self.like.shape[1:])
        flat = grad.contiguous().view(chunk.num_edges, self.like.shape[1:].numel())
        if self.place == "source":
            self.kernels.add_rows(self.total.view(len(self.total), -1), chunk.col, flat)
        elif self.place == "destination":
            self.total[chunk.rows] = self.kernels.segment(chunk.rowptr, flat, "sum").view(
                chunk.num_rows, *grad.shape[1:]
            )
        else:
            self.total[chunk.edge_id] = grad


def _add_chunk(
    how: _How,
    chunk: Chunk,
    tensors: Sequence[Tensor],
    gradients: Sequence[_Gradient | None],
    grad_outs: Sequence[Tensor | None],
) -> None:
    shares: list[Tensor] = []
    for tensor, place, gradient in zip(tensors, how.places, gradients, strict=True):
        if place == "parameter":
            shares.append(tensor)
        else:
            share = _share(how.kernels, chunk, tensor.detach(), place)
            shares.append(share.requires_grad_(gradient is not None))
    with torch.enable_grad():
        outs = how.function(chunk, *Operands(tensors, how.places).given(shares))
    asked = [
        (out, grad[chunk.edge_id if over_edges else chunk.rows])
        for out, grad, over_edges in zip(outs, grad_outs, how.over_edges, strict=True)
        if grad is not None and out.requires_grad
    ]
    wanted = [share for share, gradient in zip(shares, gradients, strict=True) if gradient is not None]
    found: Iterator[Tensor | None] = iter(())
    if asked:
        results, grads = zip(*asked, strict=True)
        found = iter(torch.autograd.grad(results, wanted, grads, allow_unused=True))
    for gradient in gradients:
        if gradient is not None:
            gradient.add(chunk, next(found, None))


def _at_once(
    how: _How,
    tensors: Sequence[Tensor],
    needed: Sequence[bool],
    grad_outs: Sequence[Tensor | None],
    states: list[Any],
) -> list[Tensor | None]:
    """Gradients that can be differentiated in turn, by plain kernels over all edges, as many as there are."""
    plain, outs = Kernels(), []
    operands = Operands(tensors, how.places)
    with _random_kept(how.graph.device, how.draws):
        for k, chunk in enumerate(chunks(how.graph, how.edges)):
            if how.draws:
                _set_random_state(how.graph.device, states[k])
            outs.append(how.function(chunk, *operands.given(operands.of(plain, chunk))))
    given = [(out, grad) for out, grad in zip(_joined(how, outs), grad_outs, strict=True) if grad is not None]
    wanted = [tensor for tensor, need in zip(tensors, needed, strict=True) if need]
    results, grads = zip(*given, strict=True)
    found = iter(torch.autograd.grad(results, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needed]


def _joined(how: _How, outs: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Results of all chunks, those over edges in the order of `edge_index`."""
    place = how.graph.edge_place if any(how.over_edges) else None
    joined = (each[0] if len(each) == 1 else torch.cat(each) for each in zip(*outs, strict=True))
    return tuple(
        out.index_select(0, place) if over_edges and place is not None else out
        for out, over_edges in zip(joined, how.over_edges, strict=True)
    )


def _share(kernels: Kernels, chunk: Chunk, tensor: Tensor, place: Place) -> Tensor:
    if place == "source":
        return tensor.index_select(0, chunk.col)
    if place == "edge":
        return tensor.index_select(0, chunk.edge_id)
    if place == "destination":
        rows = tensor[chunk.rows]
        if torch.is_grad_enabled() or not rows.is_floating_point():
            return rows.index_select(0, chunk.index)
        flat = rows.contiguous().view(chunk.num_rows, tensor.shape[1:].numel())
        return kernels.segment_backward(chunk.rowptr, flat, "sum").view(chunk.num_edges, *tensor.shape[1:])
    return tensor


def _bounds(rowptr: list[int], edges: int) -> list[tuple[int, int]]:
    """Where chunks begin and the last one ends, by row and edge; a graph without rows is one chunk."""
    row, rows = 0, len(rowptr) - 1
    bounds = [(0, 0)]
    while row < rows or len(bounds) == 1:
        row = min(max(bisect_right(rowptr, rowptr[row] + edges) - 1, row + 1), rows)
        bounds.append((row, rowptr[row]))
    return bounds


def autocast_of(device: torch.device) -> tuple[bool, torch.dtype]:
    """Return whether autocast is on, and to what type it casts."""
    return torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)


@contextmanager
def in_types_of(device: torch.device, autocast: tuple[bool, torch.dtype]) -> Iterator[None]:
    """Compute in the types that `autocast_of` told, and keep no cast of a parameter: it has no gradient here."""
    enabled, dtype = autocast
    if not enabled and not torch.is_autocast_enabled(device.type):
        yield
        return
    with torch.autocast(device.type, dtype, enabled=enabled, cache_enabled=False):
        yield


@contextmanager
def _random_kept(device: torch.device, draws: bool) -> Iterator[None]:
    """Leave the generators as they were."""
    state = _random_state(device) if draws else None
    try:
        yield
    finally:
        if state is not None:
            _set_random_state(device, state)


def _random_state(device: torch.device) -> list[Tensor]:
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_gpu]


def _set_random_state(device: torch.device, state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1], device)
