"""Elementwise functions of the ends and attributes of edges, reduced by node: as Programs, and their gradients.

A Program has steps over registers, each a row of numbers for every edge. Kernels run all steps on a few edges at a
time, so that nothing over edges is kept. Gradients are Programs too, which compute the function again and go on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.graph import Graph

Place: TypeAlias = Literal["source", "destination", "edge"]
SWAPPED: dict[Place, Place] = {"source": "destination", "destination": "source", "edge": "edge"}


class Leaf(NamedTuple):
    """A tensor [N, width] over nodes, or [E, width] over edges in the order of `edge_index`."""

    place: Place
    width: int


class Step(NamedTuple):
    """One operation, of `OPS`, on registers `a` and `b` (`a` alone has `b` equal to it)."""

    op: str
    a: int
    b: int
    number: float
    width: int


class Sink(NamedTuple):
    """A register's rows, reduced over the edges of each node, or written for each edge.

    With `ties`, beside an extremum stands how many edges have it: [2, N, width].
    """

    value: int
    place: Place
    reduce: str = "sum"
    ties: bool = False


class Program(NamedTuple):
    """Steps over registers, which are those of the leaves and then one of each step.

    A register has `heads * width` numbers for an edge, or `heads`: one for each run of `width` of others.
    """

    heads: int
    width: int
    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]

    def width_of(self, register: int) -> int:
        each = self.leaves[register] if register < len(self.leaves) else self.steps[register - len(self.leaves)]
        return each.width


class Op(NamedTuple):
    """An operation in plain torch, on values [E, heads, width or 1], with its gradient."""

    compute: Callable[[Tensor, Tensor, float], Tensor]
    gradient: Callable[[Writer, Step, int, int], Sequence[tuple[int, int]]] = lambda *_: ()


class Writer:
    """Writes a Program; a step that is there already is not written again.

    Attributes:
        widths: numbers that each register has for an edge.
        moved: where the registers of the Program that it began with are.
    """

    def __init__(self, program: Program, leaves: Sequence[Leaf]) -> None:
        """Begin with the steps of `program`, and with `leaves` beside its own."""
        self.heads, self.width, self.leaves = program.heads, program.width, [*program.leaves, *leaves]
        self.steps: dict[Step, int] = {}
        self.widths = [leaf.width for leaf in self.leaves]
        self.moved = [*range(len(program.leaves))]
        for step in program.steps:
            self.moved.append(self.append(step._replace(a=self.moved[step.a], b=self.moved[step.b])))

    def append(self, step: Step) -> int:
        if step not in self.steps:
            self.steps[step] = len(self.widths)
            self.widths.append(step.width)
        return self.steps[step]

    def write(self, op: str, a: int, b: int | None = None, number: float = 0.0) -> int:
        """A step, whose register it returns."""
        b = a if b is None else b
        width = max(self.widths[a], self.widths[b])
        width = {"total": self.heads, "spread": self.heads * self.width}.get(op, width)
        return self.append(Step(op, a, b, number, width))

    def fitted(self, register: int, width: int) -> int:
        """Give a register as many numbers as another: the gradient of what was repeated is a total."""
        if (have := self.widths[register]) == width:
            return register
        return self.write("total" if have > width else "spread", register)

    def program(self, sinks: Sequence[Sink]) -> tuple[Program, tuple[int, ...]]:
        """The Program of these sinks, without what they do not need; and which leaves they do."""
        every = [*self.steps]
        needed, first = {sink.value for sink in sinks}, len(self.leaves)
        for k in reversed(range(len(every))):
            if first + k in needed:
                needed |= {every[k].a, every[k].b}
        kept = sorted(needed)
        at = {register: k for k, register in enumerate(kept)}
        used = tuple(register for register in kept if register < first)
        steps = (every[register - first] for register in kept if register >= first)
        moved = tuple(step._replace(a=at[step.a], b=at[step.b]) for step in steps)
        ends = tuple(sink._replace(value=at[sink.value]) for sink in sinks)
        return Program(self.heads, self.width, tuple(self.leaves[k] for k in used), moved, ends), used


class Gradient(NamedTuple):
    """The Program of a gradient.

    Attributes:
        used: its leaves, by position among those of the function, gradients of its sinks, and the extrema there.
        leaves: those of the function that its sinks are the gradients of.
    """

    program: Program
    used: tuple[int, ...]
    leaves: tuple[int, ...]


@functools.lru_cache(1024)
def gradient(program: Program, wanted: tuple[int, ...]) -> Gradient:
    """Find the gradients of the leaves `wanted` from those of sinks; that of an extremum, from shares of it."""
    given = [Leaf(sink.place, program.width_of(sink.value)) for sink in program.sinks]
    writer = Writer(program, given * 2)
    first, moved = len(program.leaves), writer.moved
    found: dict[int, int] = {}

    def add(register: int, grad: int) -> None:
        grad = writer.fitted(grad, writer.widths[register])
        found[register] = writer.write("add", found[register], grad) if register in found else grad

    for k, sink in enumerate(program.sinks):
        value, grad = moved[sink.value], first + k
        if sink.reduce != "sum":
            grad = writer.write("mul", writer.write("equal", value, first + len(given) + k), grad)
        add(value, grad)
    for k in reversed(range(len(program.steps))):
        step, register = program.steps[k], moved[first + k]
        if register in found:
            step = step._replace(a=moved[step.a], b=moved[step.b])
            for operand, grad in OPS[step.op].gradient(writer, step, register, found[register]):
                add(operand, grad)
    leaves = tuple(k for k in wanted if k in found)
    return Gradient(*writer.program([Sink(found[k], program.leaves[k].place) for k in leaves]), leaves)


def _equal(a: Tensor, b: Tensor, _: float) -> Tensor:
    """Compare what was computed twice, which torch rounds otherwise at other places of a tensor."""
    return torch.isclose(a, b, rtol=4 * torch.finfo(a.dtype).eps, atol=0).to(a.dtype)


def _tanh(w: Writer, s: Step, out: int, g: int) -> list[tuple[int, int]]:
    square = w.write("scale", w.write("mul", out, out), None, -1.0)
    return [(s.a, w.write("mul", g, w.write("shift", square, None, 1.0)))]


def _by_sign(w: Writer, s: Step, out: int, g: int) -> list[tuple[int, int]]:
    return [(s.a, w.write("mul", g, w.write("slope", s.a, None, s.number)))]


OPS: dict[str, Op] = {
    "add": Op(lambda a, b, _: a + b, lambda w, s, out, g: [(s.a, g), (s.b, g)]),
    "sub": Op(lambda a, b, _: a - b, lambda w, s, out, g: [(s.a, g), (s.b, w.write("scale", g, None, -1.0))]),
    "mul": Op(
        lambda a, b, _: a * b, lambda w, s, out, g: [(s.a, w.write("mul", g, s.b)), (s.b, w.write("mul", g, s.a))]
    ),
    "div": Op(
        lambda a, b, _: a / b,
        lambda w, s, out, g: [
            (s.a, w.write("div", g, s.b)),
            (s.b, w.write("mul", w.write("div", g, s.b), w.write("scale", out, None, -1.0))),
        ],
    ),
    "equal": Op(_equal),
    "scale": Op(
        lambda a, _, number: a * number, lambda w, s, out, g: [(s.a, w.write("scale", g, None, s.number))]
    ),
    "shift": Op(lambda a, _, number: a + number, lambda w, s, out, g: [(s.a, g)]),
    "exp": Op(lambda a, *_: a.exp(), lambda w, s, out, g: [(s.a, w.write("mul", g, out))]),
    "sigmoid": Op(
        lambda a, *_: a.sigmoid(),
        lambda w, s, out, g: [(s.a, w.write("mul", g, w.write("sub", out, w.write("mul", out, out))))],
    ),
    "tanh": Op(lambda a, *_: a.tanh(), _tanh),
    "softplus": Op(
        lambda a, *_: F.softplus(a),
        lambda w, s, out, g: [(s.a, w.write("mul", g, w.write("sigmoid", s.a)))],
    ),
    "relu": Op(lambda a, *_: a.relu(), _by_sign),
    "leaky_relu": Op(lambda a, _, number: F.leaky_relu(a, number), _by_sign),
    "slope": Op(lambda a, _, number: (a <= 0).to(a.dtype) * (number - 1) + 1),
    "total": Op(lambda a, *_: a.sum(-1, keepdim=True), lambda w, s, out, g: [(s.a, w.write("spread", g))]),
    "spread": Op(lambda a, *_: a, lambda w, s, out, g: [(s.a, w.write("total", g))]),
}


def interpreted(
    graph: Graph,
    program: Program,
    tensors: Sequence[Tensor],
    edge_id: Tensor | None,
    segment: Callable[[Tensor, Tensor, str], Tensor],
) -> list[Tensor]:
    """Run a Program as `Kernels.program` does, in plain torch: all edges at every step, reduced by `segment`."""
    edges, heads = graph.num_edges, program.heads
    ids = torch.arange(edges, device=graph.device) if edge_id is None else edge_id.long()
    index = {"source": graph.col.long(), "destination": graph.row, "edge": ids}
    values = [
        tensor[index[leaf.place]].view(edges, heads, leaf.width // heads)
        for leaf, tensor in zip(program.leaves, tensors, strict=True)
    ]
    for op, a, b, number, width in program.steps:
        values.append(OPS[op].compute(values[a], values[b], number).expand(edges, heads, width // heads))
    outs = []
    for value, place, reduce, counts in program.sinks:
        x = values[value].reshape(edges, program.width_of(value))
        if place == "edge":
            outs.append(x.index_select(0, ids.argsort()))
            continue
        out = segment(graph.rowptr, x, reduce)
        if counts:
            equal = _equal(x, out.index_select(0, graph.row), 0.0)
            out = torch.stack([out, segment(graph.rowptr, equal, "sum")])
        outs.append(out)
    return outs
