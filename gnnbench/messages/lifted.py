"""Linear layers of edges, computed over nodes: W [x_i, x_j] is (W1 x)_i + (W2 x)_j, of N rows in place of E.

While a layer's functions run on a chunk, what they are given of nodes is not gathered but stands for its gather.
Gathers side by side, sums, differences and slices of them go on standing for gathers, and so does a linear layer
of these, as products over nodes were made ready. Anything else gets the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from gnnbench.graph import Graph
from gnnbench.ops.stream import Operands, Place, Shares

OVER_NODES = ("source", "destination")
TYPES = (torch.float32, torch.float64)  # in which a product in two parts is rounded little more than in one


class Node(NamedTuple):
    """A tensor over nodes: an operand [N, F] by its position, or x[:, slice] of one [N, T, F]."""

    position: int
    slice: int | None = None

    def of(self, tensor: Tensor) -> Tensor:
        return tensor if self.slice is None else tensor[:, self.slice]


class Gathers(NamedTuple):
    """A sum over nodes of a factor times the rows at the ends of the edges, `width` columns of a tensor."""

    width: int
    factors: tuple[tuple[Node, int], ...]


class Linear(NamedTuple):
    """A linear layer of columns that are gathers, or as many that are not."""

    weight: Parameter
    bias: Parameter | None
    columns: tuple[Gathers | int, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        return id(self.weight), id(self.bias), self.columns

    @property
    def is_exact(self) -> bool:
        """Return whether no difference of nodes stands alone, which may be small beside both."""
        gathers = [each for each in self.columns if isinstance(each, Gathers)]
        alone = {each.factors[0][0] for each in gathers if len(each.factors) == 1}
        return all(
            all(factor > 0 for _, factor in each.factors) or any(node in alone for node, _ in each.factors)
            for each in gathers
        )

    @property
    def parts(self) -> Sequence[Tensor]:
        """The weights of each of the columns."""
        return self.weight.split([each.width if isinstance(each, Gathers) else each for each in self.columns], 1)

    def products(self, operands: Operands) -> dict[Place, Tensor]:
        """Tensors [N, D] over the nodes of each place; their gathers add up to it but for the other columns."""
        weights: dict[Node, Tensor] = {}
        for part, each in zip(self.parts, self.columns, strict=True):
            for node, factor in each.factors if isinstance(each, Gathers) else ():
                scaled = part if factor == 1 else factor * part
                weights[node] = weights[node] + scaled if node in weights else scaled
        found: dict[Place, Tensor] = {}
        for node, weight in weights.items():
            place = operands.places[node.position]
            product = F.linear(node.of(operands.tensors[node.position]), weight, None if found else self.bias)
            found[place] = found[place] + product if place in found else product
        return found


def extended(
    operands: Operands, layers: tuple[Linear, ...] | None
) -> tuple[Operands, dict[Any, tuple[int, ...]] | None]:
    """The operands and products of `layers`, whose positions are told by the keys of these; None of no layers."""
    if layers is None:
        return operands, None
    tensors, places, positions = [*operands.tensors], [*operands.places], {}
    for layer in layers:
        found = layer.products(operands)
        positions[layer.key] = tuple(range(len(tensors), len(tensors) + len(found)))
        tensors += found.values()
        places += found
    return Operands(tensors, places), positions


def pays(graph: Graph) -> bool:
    """Return whether there are more edges than nodes."""
    return graph.num_edges > graph.num_rows + graph.num_cols


class Lifting:
    """Stand-ins for gathers, of what one chunk is evaluated with; `positions` are those of products, by keys."""

    def __init__(self, shares: Shares, positions: Mapping[Any, tuple[int, ...]]) -> None:
        self.shares, self.positions = shares, positions
        self.met: dict[Any, Linear] = {}  # the linear layers of gathers that were met, by their keys

    def argument(self, position: int) -> Tensor:
        """A share, or what stands for it."""
        tensor, place = self.shares.tensors[position], self.shares.places[position]
        if place not in OVER_NODES or tensor.dtype not in TYPES or tensor.dim() not in (2, 3):
            return self.shares.of(position)
        return self.edges((Gathers(tensor.size(-1), ((Node(position), 1),)),), tensor.shape[1:])

    def edges(self, columns: tuple[Gathers | Tensor, ...], shape: Any) -> EdgeTensor:
        like = self.shares.tensors[
            next(each.factors[0][0].position for each in columns if isinstance(each, Gathers))
        ]
        out: EdgeTensor = EdgeTensor.shaped((self.shares.chunk.num_edges, *shape), like)
        out.lifting, out.columns, out.numbers, out.is_changed = self, columns, None, False
        return out

    def gathered(self, each: Gathers) -> Tensor:
        plain = all(node.slice is None and factor == 1 for node, factor in each.factors)
        if plain and len({self.shares.places[node.position] for node, _ in each.factors}) == len(each.factors):
            return self.shares.of(*(node.position for node, _ in each.factors))
        (first, factor), *more = sorted(each.factors, key=lambda pair: pair[1] != 1)
        total = first.of(self.shares.of(first.position))
        total = total if factor == 1 else factor * total
        for node, factor in more:
            total = torch.add(total, node.of(self.shares.of(node.position)), alpha=factor)
        return total


class NeedsNumbers(Exception):
    """An operation needs the numbers that a tensor only stands for."""


class Symbol(Tensor):
    """A tensor that stands for numbers: shape and type are known; `called` does what else is done to it."""

    @classmethod
    def shaped(cls, shape: Sequence[int], like: Tensor) -> Any:
        """One of a shape, with the type and device of another tensor."""
        return Tensor._make_wrapper_subclass(cls, shape, dtype=like.dtype, device=like.device)

    @classmethod
    def called(cls, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Compute what torch would of numbers."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in SHAPES:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        return cls.called(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        raise NeedsNumbers(str(func))


class EdgeTensor(Symbol):
    """A tensor over edges that stands for gathers, beside others; `numbers` once these were asked for."""

    lifting: Lifting
    columns: tuple[Gathers | Tensor, ...]
    numbers: Tensor | None
    is_changed: bool  # in place

    @classmethod
    def called(cls, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        rule = RULES.get(func.__name__)
        if rule is not None and not kwargs.keys() - {"dim"}:
            out = rule(*args, **kwargs)
            if out is not None:
                return out
        in_place = func.__name__ == "__setitem__" or (func.__name__[-1] == "_" != func.__name__[-2])
        if in_place and type(args[0]) is EdgeTensor:
            args[0].numbers, args[0].is_changed = numbers(args[0]).clone(), True
        return func(*numbers(args), **numbers(kwargs))


def numbers(value: Any) -> Any:
    """A value, with numbers in place of whatever stands for gathers in it."""
    return put(value, EdgeTensor, _numbers)


def put(value: Any, kind: type, make: Callable[[Any], Any]) -> Any:
    """A value, with what `make` returns in place of every tensor of a kind in it."""
    if type(value) is kind:
        return make(value)
    if type(value) in (tuple, list):
        return type(value)(put(each, kind, make) for each in value)
    return {key: put(each, kind, make) for key, each in value.items()} if type(value) is dict else value


def _numbers(x: EdgeTensor) -> Tensor:
    if x.numbers is None:
        parts = [each if isinstance(each, Tensor) else x.lifting.gathered(each) for each in x.columns]
        x.numbers = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
    return x.numbers


def _stands(*values: Any) -> bool:
    return all(type(each) is EdgeTensor and not each.is_changed for each in values)


def _cat(tensors: Any, dim: int = 0) -> Tensor | None:
    tensors = list(tensors)
    first = next(each for each in tensors if type(each) is EdgeTensor)
    if dim not in (-1, first.dim() - 1) or not all(
        _stands(each)
        or (type(each) is Tensor and each.dtype == first.dtype and each.shape[:-1] == first.shape[:-1])
        for each in tensors
    ):
        return None
    columns = tuple(part for each in tensors for part in (each.columns if type(each) is EdgeTensor else (each,)))
    width = sum(each.size(-1) for each in tensors)
    return first.lifting.edges(columns, (*first.shape[1:-1], width))


def _added(sign: int, a: Any, b: Any) -> Tensor | None:
    if not _stands(a, b) or a.shape != b.shape or a.dtype != b.dtype:
        return None
    (ours, *more), (theirs, *others) = a.columns, b.columns
    if more or others or not isinstance(ours, Gathers) or not isinstance(theirs, Gathers):
        return None
    factors = dict(ours.factors)
    for node, factor in theirs.factors:
        factors[node] = factors.get(node, 0) + sign * factor
    total = Gathers(ours.width, tuple(factors.items()))
    return a.lifting.edges((total,), a.shape[1:]) if all(factors.values()) else None


def _item(x: Any, index: Any) -> Tensor | None:
    """x [E, T, F] at [:, t]."""
    whole = isinstance(index, tuple) and len(index) == 2 and index[0] == slice(None) and type(index[1]) is int
    if not whole or not _stands(x) or x.dim() != 3:
        return None
    columns = [
        each[:, index[1]]
        if isinstance(each, Tensor)
        else Gathers(each.width, tuple((Node(node.position, index[1]), factor) for node, factor in each.factors))
        for each in x.columns
    ]
    return x.lifting.edges(tuple(columns), x.shape[2:])


def _stack(tensors: Any, dim: int = 0) -> Tensor | None:
    """One tensor alone, without a copy."""
    return numbers(tensors[0]).unsqueeze(dim) if len(tensors) == 1 else None


def linear(x: Any, weight: Any, bias: Any = None) -> Tensor | None:
    """`F.linear` of what stands for gathers; None where it is none, or its products are not there."""
    parameters = type(weight) is Parameter and (bias is None or type(bias) is Parameter)
    if not _stands(x) or x.dim() != 2 or not parameters or weight.dtype != x.dtype:
        return None
    layer = Linear(weight, bias, tuple(e.size(-1) if isinstance(e, Tensor) else e for e in x.columns))
    x.lifting.met[layer.key] = layer
    positions = x.lifting.positions.get(layer.key)
    if positions is None:
        return None
    factors = tuple((Node(each), 1) for each in positions)
    out = x.lifting.edges((Gathers(weight.size(0), factors),), weight.shape[:1])
    rest = [each for each in x.columns if isinstance(each, Tensor)]
    if not rest:
        return out
    pairs = zip(layer.parts, x.columns, strict=True)
    parts = [part for part, each in pairs if isinstance(each, Tensor)]
    return numbers(out) + F.linear(torch.cat(rest, -1), torch.cat(parts, -1))


RULES: dict[str, Callable[..., Tensor | None]] = {
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    **dict.fromkeys(("add", "__add__"), partial(_added, 1)),
    **dict.fromkeys(("sub", "__sub__"), partial(_added, -1)),
    "__getitem__": _item,
    "stack": _stack,
    "linear": linear,
}
SHAPES: set[Any] = {
    *(Tensor.shape.__get__, Tensor.ndim.__get__, Tensor.dtype.__get__, Tensor.device.__get__),  # type: ignore[attr-defined]
    *(Tensor.size, Tensor.dim, Tensor.numel, Tensor.__len__, Tensor.is_floating_point),
}
