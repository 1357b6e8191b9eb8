"""Functions of edges, reduced by destination or not, evaluated for some destinations at a time.

The forward keeps nothing over edges. The backward evaluates every chunk again, with gradients, and adds what it
gets to those of the nodes, so that memory is that of a chunk however many edges there are. Whatever is local to a
destination, such as a softmax over its edges, is exact, for a chunk holds all edges of its destinations.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from gnnbench.graph import Graph, rows_of
from gnnbench.ops.kernels import Kernels

LEAST, MOST = 1 << 8, 1 << 17  # edges of a chunk
ALIVE = 2  # times `chunk_bytes` that it keeps alive, as many functions of Python run for each, however short it is
AT_ONCE = 4  # chunks

Place: TypeAlias = Literal["source", "destination", "edge", "shared", "parameter"]
Grads: TypeAlias = Sequence[Tensor | None]  # None for those of nothing


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
        """Return its rows over their edges, each a column of its own."""
        return self.over(torch.arange(self.num_edges, dtype=torch.int32, device=self.col.device), self.num_edges)

    def over(self, col: Tensor, num_cols: int) -> Graph:
        """Return its rows as a graph, with a column for each edge."""
        with torch.inference_mode(False):  # whose tensors a Graph could not watch for edits
            rowptr, col = (each.clone() if each.is_inference() else each for each in (self.rowptr, col))
            return Graph(rowptr, col, num_cols, None, self.graph.layout)


Function: TypeAlias = Callable[..., tuple[Tensor, ...]]  # of a Chunk and its Shares


class Operands(NamedTuple):
    """Tensors with their places.

    The share of a chunk in a tensor of place
        source: rows [e, ...], those of the sources of its edges;
        destination: likewise of the destinations;
        edge: the rows of its edges, of a tensor in the order of `edge_index`;
        shared: all of it;
        parameter: is not asked for, as a function finds these itself.
    """

    tensors: Sequence[Tensor]
    places: Sequence[Place]


class Shares:
    """The shares of a chunk in operands, each gathered once, when it is asked for.

    Attributes:
        gathered: what was, by the positions of the operands that were added up in it.
    """

    def __init__(self, kernels: Kernels, chunk: Chunk, operands: Operands) -> None:
        self.kernels, self.chunk = kernels, chunk
        self.tensors, self.places = operands
        self.gathered: dict[tuple[int, ...], Tensor] = {}

    def of(self, *positions: int) -> Tensor:
        """The share in an operand, or the sum of those in a source and a destination of one type and shape."""
        if positions not in self.gathered:
            self.gathered[positions] = self.gather(positions)
        return self.gathered[positions]

    def gather(self, positions: tuple[int, ...]) -> Tensor:
        return _gathered(self.kernels, self.chunk, {self.places[k]: self.tensors[k] for k in positions})


class Leaves(Shares):
    """Shares that gradients end in."""

    def gather(self, positions: tuple[int, ...]) -> Tensor:
        needed = any(self.tensors[k].requires_grad for k in positions)
        with torch.no_grad():
            return super().gather(positions).detach().requires_grad_(needed)


class _Differentiable(Shares):
    """Shares of the one chunk of a graph, through which gradients go on to the operands."""

    def gather(self, positions: tuple[int, ...]) -> Tensor:
        given = [self.tensors[k] for k in positions], [self.places[k] for k in positions]
        if given[1] == ["shared"]:
            return given[0][0]
        return _Gather.apply(self.kernels, self.chunk, given[1], *given[0])


def chunk_length(kernels: Kernels, graph: Graph, bytes_per_edge: float) -> int:
    """Edges of a chunk: all where that keeps alive no more than a few chunks, for they are then computed once."""
    alive = ALIVE * kernels.chunk_bytes
    if bytes_per_edge * graph.num_edges <= AT_ONCE * alive:
        return graph.num_edges
    length = min(max(int(alive / bytes_per_edge), LEAST), MOST)
    step = 1 << max(length.bit_length() - 4, 0)  # so that graphs keep the bounds of few lengths
    return length // step * step


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
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> tuple[Tensor, ...]:
    """Evaluate `function` chunk by chunk.

    Args:
        kernels: they gather, and reduce gradients.
        graph: N destinations, E edges.
        function: chunk, shares -> tensors [r, ...], rows for its destinations, or [e, ...], for its edges.
        operands: what it computes from; gradients go to these and nowhere else.
        edges: of a chunk, unless a destination alone has more.
        over_edges: of each result, whether it is over edges.
        draws: whether it draws random numbers; the backward then draws them again.
        around: makes what every pass over the chunks runs within.

    Returns:
        [N, ...], or [E, ...] in the order of `edge_index`, each; differentiable in the operands, to any order.
    """
    how = _How(kernels, graph, function, tuple(operands.places), edges, tuple(over_edges), draws, around)
    if graph.num_edges <= edges:  # nothing to save by computing it again
        (chunk,) = chunks(graph, edges)
        with around():
            outs = function(chunk, _Differentiable(kernels, chunk, operands))
        return _in_order(how, outs)
    return _Stream.apply(how, *operands.tensors)


class _How(NamedTuple):
    kernels: Kernels
    graph: Graph
    function: Function
    places: tuple[Place, ...]
    edges: int
    over_edges: tuple[bool, ...]
    draws: bool
    around: Callable[[], AbstractContextManager[Any]]


class _Stream(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, how: _How, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.how = how
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        device = how.graph.device
        ctx.autocast = autocast_of(device)
        ctx.states = []
        results: list[Tensor] = []
        with in_types_of(device, ctx.autocast), how.around():
            for chunk in chunks(how.graph, how.edges):
                if how.draws:
                    ctx.states.append(_random_state(device))
                shares = Shares(how.kernels, chunk, Operands(tensors, how.places))
                _write(how, chunk, how.function(chunk, shares), results)
                ctx.gathered = {k for positions in shares.gathered for k in positions}
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grad_outs: Tensor | None) -> tuple[Any, ...]:
        how, tensors, needed = ctx.how, ctx.saved_tensors, ctx.needs_input_grad[1:]
        with in_types_of(how.graph.device, ctx.autocast), how.around():
            if torch.is_grad_enabled():
                return None, *_at_once(how, tensors, needed, grad_outs, ctx.states)
            gradients = [
                _Gradient(how.kernels, tensor, place) if need else None
                for tensor, place, need in zip(tensors, how.places, needed, strict=True)
            ]
            for gradient in (gradients[k] for k in ctx.gathered):
                if gradient is not None:
                    gradient.make_room()
            with torch.random.fork_rng(_gpus(how.graph.device), how.draws):
                for k, chunk in enumerate(chunks(how.graph, how.edges)):
                    if how.draws:
                        _set_random_state(how.graph.device, ctx.states[k])
                    _add_chunk(how, chunk, tensors, gradients, grad_outs)
        return None, *(None if gradient is None else gradient.total for gradient in gradients)


class _Gather(torch.autograd.Function):
    """The share of the one chunk of a graph in operands over nodes or edges, added up."""

    @staticmethod
    def forward(ctx: Any, kernels: Kernels, chunk: Chunk, places: list[Place], *tensors: Tensor) -> Tensor:
        ctx.how = kernels, chunk, places, [each.shape for each in tensors]
        return _gathered(kernels, chunk, dict(zip(places, tensors, strict=True)))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        kernels, chunk, places, shapes = ctx.how
        grads: list[Tensor | None] = []
        for place, shape in zip(places, shapes, strict=True):
            if torch.is_grad_enabled():  # which autograd follows
                index = {"source": chunk.col, "destination": chunk.index, "edge": chunk.edge_id}[place]
                grads.append(grad.new_zeros(shape).index_add(0, index, grad))
            else:
                gradient = _Gradient(kernels, grad.new_empty(shape), place)
                gradient.add(chunk, grad)
                grads.append(gradient.total)
        return None, None, None, *grads


class _Gradient:
    """The gradient of one operand, to which chunks add theirs; None as long as there is none."""

    def __init__(self, kernels: Kernels, tensor: Tensor, place: Place) -> None:
        self.kernels, self.place, self.like = kernels, place, tensor
        self.total: Tensor | None = None

    def make_room(self) -> None:
        """Begin with zeros; before the first chunk, whose memory would be broken up by what lasts longer."""
        if self.total is None and self.place not in ("shared", "parameter"):
            self.total = torch.zeros_like(self.like, memory_format=torch.contiguous_format)

    def add(self, chunk: Chunk, grad: Tensor) -> None:
        if self.place in ("shared", "parameter"):
            self.total = grad if self.total is None else self.total.add_(grad)
            return
        self.make_room()
        assert self.total is not None
        flat = grad.contiguous().view(chunk.num_edges, self.like.shape[1:].numel())
        if self.place == "source":
            self.kernels.add_rows(self.total.view(len(self.total), flat.size(1)), chunk.col, flat)
        elif self.place == "destination":
            total = self.kernels.segment(chunk.rowptr, flat, "sum")
            self.total[chunk.rows] += total.view(chunk.num_rows, *grad.shape[1:])
        else:
            self.total[chunk.edge_id] = grad


def _add_chunk(
    how: _How, chunk: Chunk, tensors: Sequence[Tensor], gradients: Sequence[_Gradient | None], grad_outs: Grads
) -> None:
    shares = Leaves(how.kernels, chunk, Operands(tensors, how.places))
    with torch.enable_grad():
        outs = how.function(chunk, shares)
    asked = [
        (out, grad[chunk.edge_id if over_edges else chunk.rows])
        for out, grad, over_edges in zip(outs, grad_outs, how.over_edges, strict=True)
        if grad is not None and out.requires_grad
    ]
    if not asked:
        return
    ends = {positions: share for positions, share in shares.gathered.items() if share.requires_grad}
    for k, place in enumerate(how.places):
        if place == "parameter" and gradients[k] is not None:
            ends[k,] = tensors[k]
    results, grads = zip(*asked, strict=True)
    found = torch.autograd.grad(results, list(ends.values()), grads, allow_unused=True)
    for positions, grad in zip(ends, found, strict=True):
        for gradient in (gradients[k] for k in positions):
            if grad is not None and gradient is not None:
                gradient.add(chunk, grad)


def _at_once(
    how: _How, tensors: Sequence[Tensor], needed: Sequence[bool], grad_outs: Grads, states: list[Any]
) -> list[Tensor | None]:
    """Gradients that can be differentiated in turn, by plain kernels over all edges, as many as there are."""
    plain, outs, gate = Kernels(), [], _Gate()
    tensors = [
        _Gated.apply(tensor, gate) if tensor.requires_grad and place != "parameter" else tensor
        for tensor, place in zip(tensors, how.places, strict=True)
    ]
    with torch.random.fork_rng(_gpus(how.graph.device), how.draws):
        for k, chunk in enumerate(chunks(how.graph, how.edges)):
            if how.draws:
                _set_random_state(how.graph.device, states[k])
            outs.append(how.function(chunk, Shares(plain, chunk, Operands(tensors, how.places))))
    joined = _in_order(how, [torch.cat(each) for each in zip(*outs, strict=True)])
    given = [(out, grad) for out, grad in zip(joined, grad_outs, strict=True) if grad is not None]
    wanted = [tensor for tensor, need in zip(tensors, needed, strict=True) if need]
    results, grads = zip(*given, strict=True)
    found = iter(torch.autograd.grad(results, wanted, grads, create_graph=True, allow_unused=True))
    gate.is_open = True
    return [next(found) if need else None for need in needed]


class _Gate:
    is_open = False


class _Gated(torch.autograd.Function):
    """An operand whose gradient goes no further before a gate is open.

    Operands may be computed from each other or from parameters; autograd adds what flows on to these.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, gate: _Gate) -> Tensor:
        ctx.gate = gate
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None]:
        return grad if ctx.gate.is_open else None, None


def _in_order(how: _How, outs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Results of all edges, those over edges in the order of `edge_index`."""
    place = how.graph.edge_place if any(how.over_edges) else None
    return tuple(
        out.index_select(0, place) if over_edges and place is not None else out
        for out, over_edges in zip(outs, how.over_edges, strict=True)
    )


def _write(how: _How, chunk: Chunk, outs: Sequence[Tensor], results: list[Tensor]) -> None:
    """Put what a chunk gave where it belongs in the results of all, which the first one makes room for."""
    graph = how.graph
    for k, (out, over_edges) in enumerate(zip(outs, how.over_edges, strict=True)):
        if len(out) != (chunk.num_edges if over_edges else chunk.num_rows):
            raise ValueError(f"{len(out)} rows of {chunk.num_rows} destinations with {chunk.num_edges} edges")
        if k == len(results):
            results.append(out.new_empty(graph.num_edges if over_edges else graph.num_rows, *out.shape[1:]))
        results[k][chunk.edge_id if over_edges else chunk.rows] = out


def _gathered(kernels: Kernels, chunk: Chunk, given: dict[Place, Tensor]) -> Tensor:
    """The share in a tensor, or the sum of those in a source and a destination."""
    place, tensor = next(iter(given.items()))
    if place == "shared":
        return tensor
    if place == "edge":
        return tensor.index_select(0, chunk.edge_id)
    rows = given.get("destination")
    destination = None if rows is None else rows[chunk.rows]
    return kernels.gather_rows(chunk.rowptr, chunk.col, given.get("source"), destination)


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


def _random_state(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, _gpus(device))]


def _set_random_state(device: torch.device, state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    for gpu, of_gpu in zip(_gpus(device), state[1:], strict=True):
        torch.cuda.set_rng_state(of_gpu, gpu)


def _gpus(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []
