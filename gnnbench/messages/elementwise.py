"""Messages of which every number depends on the numbers beside it alone, run as Programs in registers.

A layer's functions are called once, with all edges, and given tensors that stand for expressions over edges. What
they do to these becomes a larger expression; where one is reduced by destination, it is run as a Program, and the
functions go on with the result, an ordinary tensor over nodes. Any other operation raises NeedsNumbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.messages import lifted
from gnnbench.messages.lifted import NeedsNumbers, Symbol
from gnnbench.ops.fused import run
from gnnbench.ops.program import Leaf, Place, Program, Sink, Step, Writer
from gnnbench.ops.stream import Chunk, Shares

LONGEST = 48  # of programs, in steps: beyond it, several tensors over edges cost less


class Whole(Chunk):
    """All edges of a graph, whose index is not written out unless its numbers are asked for."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, slice(0, graph.num_rows), slice(0, graph.num_edges))

    @cached_property
    def index(self) -> Tensor:
        out: Index = Index.shaped([self.num_edges], self.graph.rowptr)
        out.graph = self.graph
        return out


class Index(Symbol):
    """The destination of every edge of a graph, [E] int64, made when it is read."""

    graph: Graph

    @classmethod
    def called(cls, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        args, kwargs = lifted.put((args, kwargs), Index, lambda index: index.graph.row)
        return func(*args, **kwargs)


class Expression(NamedTuple):
    """An operation on others, or a tensor with its place; numbers of `width` for each edge."""

    op: str
    operands: tuple[Expression, ...]
    number: float
    width: int
    tensor: Tensor | None = None


class Symbols(Shares):
    """Shares that stand for expressions over the edges of a chunk."""

    @cached_property
    def edges(self) -> Graph:
        """The chunk as a graph of its own."""
        if type(self.chunk) is Whole:
            return self.chunk.graph
        return self.chunk.over(self.chunk.col, self.chunk.graph.num_cols)

    def gather(self, positions: tuple[int, ...]) -> Tensor:
        if [self.places[k] for k in positions] == ["shared"]:
            return self.tensors[positions[0]]
        total, *more = (self._leaf(self.tensors[k], self.places[k]) for k in positions)
        for each in more:
            total = total + each
        return total

    def _leaf(self, tensor: Tensor, place: Any) -> Tensor:
        if self.edges is not self.chunk.graph and place == "destination":
            tensor = tensor[self.chunk.rows]
        elif self.edges is not self.chunk.graph and place == "edge":
            tensor = tensor.index_select(0, self.chunk.edge_id)
        return self.leaf(tensor, place)

    def leaf(self, tensor: Tensor, place: Place) -> Lazy:
        if tensor.dtype not in lifted.TYPES or not tensor[:1].numel():
            raise NeedsNumbers(f"{tensor.dtype} of shape {list(tensor.shape)}")
        flat = tensor.reshape(len(tensor), tensor.shape[1:].numel())
        return self.lazy(Expression(place, (), 0.0, flat.size(1), flat), tensor.shape[1:], tensor)

    def lazy(self, expression: Expression, shape: Sequence[int], like: Tensor) -> Lazy:
        """A tensor [E, *shape] that stands for an expression."""
        out: Lazy = Lazy.shaped((self.chunk.num_edges, *shape), like)
        out.symbols, out.expression = self, expression
        return out


class Lazy(Symbol):
    """A tensor over edges that stands for an expression."""

    symbols: Symbols
    expression: Expression

    @classmethod
    def called(cls, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        rule = RULES.get(func.__name__)
        if rule is None or kwargs.pop("inplace", False):
            raise NeedsNumbers(func.__name__)
        try:
            return rule(*lifted.numbers(args), **kwargs)
        except (TypeError, RuntimeError) as error:  # of arguments that the rule does not know
            raise NeedsNumbers(func.__name__) from error

    def over(self, other: Expression, shape: Sequence[int]) -> Lazy:
        return self.symbols.lazy(other, shape, self)


def reduced(x: Lazy, reduce: str) -> Tensor:
    """Reduce by destination: [N, ...], differentiable."""
    symbols = x.symbols
    program, tensors = _written(x.expression, "sum" if reduce == "mean" else reduce)
    (out,) = run(symbols.kernels, symbols.edges, program, tensors)
    if reduce == "mean":
        out = out / symbols.edges.degree.clamp(min=1).to(out.dtype).unsqueeze(1)
    return out.view(len(out), *x.shape[1:])


def softmax(x: Lazy) -> Lazy:
    """Normalise over the edges of each destination."""
    with torch.no_grad():
        top = reduced(x, "max")
    power: Any = (x - x.symbols.leaf(top, "destination")).exp()
    total = reduced(power, "sum") + 1e-16  # as in PyG
    return power / x.symbols.leaf(total, "destination")


def _written(value: Expression, reduce: str) -> tuple[Program, list[Tensor]]:
    """The Program that reduces an expression, and the tensors of its leaves."""
    order: dict[int, Expression] = {}

    def visit(each: Expression) -> None:
        if id(each) not in order:
            for operand in each.operands:
                visit(operand)
            order[id(each)] = each

    visit(value)
    leaves = {(each.op, id(each.tensor)): each for each in order.values() if each.tensor is not None}
    steps = [each for each in order.values() if each.tensor is None]
    widths = sorted({each.width for each in order.values()})
    if len(widths) > 2 or widths[-1] % widths[0] or len(steps) > LONGEST:
        raise NeedsNumbers(f"widths {widths}, {len(steps)} steps")
    heads = widths[0] if len(widths) == 2 else 1
    of = tuple(Leaf(each.op, each.width) for each in leaves.values())  # type: ignore[arg-type]
    writer = Writer(Program(heads, widths[-1] // heads, of, (), ()), ())
    keys = [*leaves]
    at = {id(each): keys.index((each.op, id(each.tensor))) for each in order.values() if each.tensor is not None}
    for each in steps:
        a, b = at[id(each.operands[0])], at[id(each.operands[-1])]
        at[id(each)] = writer.append(Step(each.op, a, b, each.number, each.width))
    program, _ = writer.program([Sink(at[id(value)], "destination", reduce)])
    return program, [each.tensor.contiguous() for each in leaves.values() if each.tensor is not None]


def _applied(op: str, x: Lazy, number: float = 0.0) -> Lazy:
    return x.over(Expression(op, (x.expression,), float(number), x.expression.width), x.shape[1:])


def _combined(op: str, a: Any, b: Any) -> Lazy:
    """Combine with a number, with something else over edges, or with a tensor that is the same for all edges."""
    if isinstance(b, (int, float)):
        if op in ("add", "sub"):
            return _applied("shift", a, b if op == "add" else -b)
        return _applied("scale", a, b if op == "mul" else 1 / b)
    if isinstance(a, (int, float)):
        if op in ("add", "mul"):
            return _combined(op, b, a)
        if op == "sub":
            return _applied("shift", _applied("scale", b, -1.0), a)
        a = b.new_ones(()) * a
    a, b = _alike(a, b), _alike(b, a)
    wide, narrow = (a, b) if a.expression.width >= b.expression.width else (b, a)
    shape, other = wide.shape[1:], narrow.shape[1:]
    if a.dtype != b.dtype or other not in (shape, (*shape[:-1], 1)) or len(other) != len(shape):
        raise NeedsNumbers(op)
    return a.over(Expression(op, (a.expression, b.expression), 0.0, wide.expression.width), shape)


def _swapped(op: str, b: Any, a: Any) -> Lazy:
    return _combined(op, a, b)


def _alike(x: Any, other: Any) -> Lazy:
    """A tensor that is the same for all edges, as one over destinations."""
    if type(x) is Lazy:
        return x
    shape, symbols = other.shape[1:], other.symbols
    if not isinstance(x, Tensor) or x.dim() > len(shape) + 1 or (x.dim() > len(shape) and len(x) != 1):
        raise NeedsNumbers("a tensor over something else")
    row = x.squeeze(0) if x.dim() > len(shape) else x
    if torch.broadcast_shapes(row.shape, shape) != shape:
        raise NeedsNumbers("a tensor of more numbers")
    return symbols.leaf(row.expand(symbols.edges.num_rows, *shape), "destination")


def _power(x: Lazy, exponent: Any) -> Any:
    if exponent != 2:
        raise NeedsNumbers("pow")
    return x * x


def _total(x: Lazy, dim: Any = None, keepdim: bool = False) -> Lazy:
    dim = dim[0] if isinstance(dim, (tuple, list)) and len(dim) == 1 else dim
    if x.dim() < 2 or dim not in (-1, x.dim() - 1):
        raise NeedsNumbers("sum")
    kept = x.shape[1:-1]
    total = Expression("total", (x.expression,), 0.0, kept.numel())
    return x.over(x.expression if x.size(-1) == 1 else total, (*kept, 1) if keepdim else kept)


def _reshaped(name: str, x: Lazy, size: Any, *more: Any) -> Lazy:
    """The numbers of each edge under another shape: the one that torch's method of that name gives a tensor."""
    like = getattr(torch.empty(x.shape, dtype=x.dtype, device="meta"), name)(size, *more)
    if like.shape[:1] != x.shape[:1] or like.dtype != x.dtype:
        raise NeedsNumbers(name)
    return x.over(x.expression, like.shape[1:])


def _softplus(x: Lazy, beta: float = 1, threshold: float = 20) -> Lazy:
    if beta != 1 or threshold != 20:
        raise NeedsNumbers("softplus")
    return _applied("softplus", x)


def _kept(x: Lazy, p: float = 0.5, training: bool = True) -> Lazy:
    if training and p:
        raise NeedsNumbers("dropout")
    return x


def _new(name: str, x: Lazy, *size: Any, **how: Any) -> Tensor:
    return getattr(torch.empty((), dtype=x.dtype, device=x.device), name)(*size, **how)


RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("add", "__add__", "__radd__"), partial(_combined, "add")),
    **dict.fromkeys(("sub", "__sub__"), partial(_combined, "sub")),
    **dict.fromkeys(("rsub", "__rsub__"), partial(_swapped, "sub")),
    **dict.fromkeys(("mul", "__mul__", "__rmul__"), partial(_combined, "mul")),
    **dict.fromkeys(("div", "__truediv__", "true_divide"), partial(_combined, "div")),
    **dict.fromkeys(("__rdiv__", "__rtruediv__"), partial(_swapped, "div")),
    **{op: partial(_applied, op) for op in ("relu", "sigmoid", "tanh", "exp")},
    **dict.fromkeys(("neg", "__neg__"), lambda x: _applied("scale", x, -1.0)),
    "silu": lambda x: x * x.sigmoid(),
    "leaky_relu": lambda x, negative_slope=0.01: _applied("leaky_relu", x, negative_slope),
    "softplus": _softplus,
    **dict.fromkeys(("pow", "__pow__"), _power),
    "square": lambda x: x * x,
    "sum": _total,
    **{name: partial(_reshaped, name) for name in ("view", "reshape", "unsqueeze", "squeeze")},
    "dropout": _kept,
    **{name: partial(_new, name) for name in ("new_zeros", "new_ones")},
}
