"""Arguments of `propagate` and `edge_updater`: what a layer's functions are given, and what goes over which."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric import EdgeIndex

from gnnbench.errors import UnsupportedOp
from gnnbench.graph.cache import Adjacency, is_sparse, num_edges, values
from gnnbench.ops.stream import Chunk, Operands, Place

SPECIAL = frozenset(
    ["edge_index", "adj_t", "edge_index_i", "edge_index_j", "size", "size_i", "size_j", "ptr", "index", "dim_size"]
)
FUNCTIONS = {"propagate": ("message", "aggregate"), "edge_updater": ("edge_update",)}  # that run over edges
FROM_VALUES = ("edge_weight", "edge_attr", "edge_type")  # which PyG takes from a sparse adjacency
PLAIN = (Tensor, Parameter)


class Operand(NamedTuple):
    """A tensor that a function is given by `name`, with the nodes or edges along `dim`."""

    name: str
    tensor: Tensor
    place: Place
    dim: int = 0


class Asked(NamedTuple):
    """A call over `num_rows` destinations and `num_cols` sources.

    Attributes:
        operands: tensors over nodes and edges, and others.
        constants: the rest of what its functions are given.
        update: what `update` is given.
        ptr: whether PyG gives it to them.
        special: names of what they are given of the chunk itself.
    """

    conv: Any
    functions: tuple[str, ...]
    adjacency: Adjacency
    num_rows: int
    num_cols: int
    operands: list[Operand]
    constants: dict[str, Any]
    update: dict[str, Any]
    ptr: bool
    special: list[str]

    @property
    def reverse(self) -> bool:
        return bool(self.conv.flow == "target_to_source")

    @property
    def streamed(self) -> Operands:
        """The operands, those over nodes and edges with these along the first dimension.

        Computed tensors over nodes are copied, as they may change in place before a backward gathers again.
        """
        copies: dict[int, Tensor] = {}
        tensors = []
        for _, tensor, place, dim in self.operands:
            if place in ("source", "destination") and tensor.grad_fn is not None and torch.is_grad_enabled():
                if id(tensor) not in copies:
                    copies[id(tensor)] = tensor.clone()
                tensor = copies[id(tensor)]
            tensors.append(tensor.movedim(dim, 0) if dim else tensor)
        return Operands(tensors, [each.place for each in self.operands])

    @property
    def released(self) -> Asked:
        """The call without its operands' tensors, to be kept until a backward, which is given those it needs."""
        empty = torch.empty(0)
        return self._replace(operands=[each._replace(tensor=empty) for each in self.operands], update={})

    def named(self, chunk: Chunk, share: Callable[[int], Tensor]) -> dict[str, Any]:
        """All arguments for a chunk by name, with the share in every operand by its position."""
        given = self.constants.copy()
        for k, (name, _, _, dim) in enumerate(self.operands):
            given[name] = share(k).movedim(0, dim) if dim else share(k)
        for name in self.special:
            given[name] = _special(self, name, chunk)
        return given


def parameters(conv: Any, function: str) -> Mapping[str, Any]:
    """The parameters of `message`, `aggregate`, `update` or `edge_update` as PyG's inspector has them."""
    return conv.inspector.get_signature(function).param_dict


def read(conv: Any, functions: tuple[str, ...], edge_index: Adjacency, size: Any, given: dict[str, Any]) -> Asked:
    """Read a call.

    Args:
        functions: that run over edges: "message" and "aggregate", or "edge_update".
        given: the other arguments by name.

    Raises:
        UnsupportedOp: it is not covered, or PyG has an error to raise.
    """
    updating = parameters(conv, "update") if "message" in functions else {}
    if leaning := [name for name in updating if name in SPECIAL or name[-2:] in ("_i", "_j")]:
        raise _left(conv, f"its update asks for {leaning[0]}")
    source, destination = (0, 1) if conv.flow == "source_to_target" else (1, 0)
    sizes = _sizes(conv, edge_index, size)
    wanted = {name: each for function in functions for name, each in parameters(conv, function).items()}
    operands: list[Operand] = []
    constants: dict[str, Any] = {}
    filled = _filled(edge_index, wanted, given)
    for name, parameter in wanted.items():
        if name in SPECIAL:
            if name == "adj_t" or (name == "edge_index" and is_sparse(edge_index)):
                raise _left(conv, f"its {' and '.join(functions)} ask for {name}")
            continue
        if name[-2:] not in ("_i", "_j"):
            if name not in filled:
                if parameter.default is inspect.Parameter.empty:
                    raise _left(conv, f"it is not given {name}")
            elif isinstance(filled[name], Tensor):
                operands.append(_operand(conv, name, filled[name], num_edges(edge_index)))
            else:
                constants[name] = filled[name]
            continue
        value = filled.get(name[:-2])
        place: Place = "source" if name.endswith("_j") else "destination"
        if isinstance(value, (tuple, list)):
            if len(value) != 2:
                raise _left(conv, f"{name[:-2]} is no pair")
            for number, half in enumerate(value):  # the first one is of sources, whatever the flow
                _set_size(conv, sizes, number, half)
            value = value[0 if place == "source" else 1]
        else:
            _set_size(conv, sizes, source if place == "source" else destination, value)
        if isinstance(value, Tensor):
            operands.append(Operand(name, _plain(conv, name, value), place, conv.node_dim % value.dim()))
        else:
            constants[name] = None
    known = [each for each in sizes if each is not None]
    if not known:
        raise _left(conv, "nothing tells how many nodes there are")
    nodes = [known[0] if each is None else each for each in sizes]
    rows, cols = nodes[destination], nodes[source]
    counts = {"source": cols, "destination": rows}
    if any(each.tensor.size(each.dim) != counts.get(each.place, each.tensor.size(each.dim)) for each in operands):
        raise _left(conv, "the sizes of its tensors over nodes differ")
    update = {name: filled[name] for name in updating if name in filled}
    special, ptr = sorted(wanted.keys() & SPECIAL), _has_ptr(conv, edge_index)
    return Asked(conv, functions, edge_index, rows, cols, operands, constants, update, ptr, special)


def _left(conv: Any, reason: str) -> UnsupportedOp:
    return UnsupportedOp(type(conv).__name__, [reason])


def _filled(edge_index: Adjacency, wanted: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments, with the first of those that PyG takes from the values of a sparse adjacency."""
    name = next((name for name in FROM_VALUES if name in wanted), None)
    if not is_sparse(edge_index) or name is None or given.get(name) is not None:
        return given
    value = values(edge_index)
    if name == "edge_attr" and value is not None and value.dim() == 1:
        value = None
    return {**given, name: value}


def _sizes(conv: Any, edge_index: Adjacency, size: Any) -> list[int | None]:
    if is_sparse(edge_index):
        return [edge_index.size(1), edge_index.size(0)]
    if isinstance(edge_index, EdgeIndex):
        return list(edge_index.sparse_size())
    if size is None:
        return [None, None]
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise _left(conv, "size is no pair")
    return list(size)


def _set_size(conv: Any, sizes: list[int | None], end: int, value: Any) -> None:
    if not isinstance(value, Tensor):
        return
    if value.dim() < max(1, -conv.node_dim, conv.node_dim + 1):
        raise _left(conv, "a tensor over nodes has too few dimensions")
    nodes = value.size(conv.node_dim)
    if sizes[end] not in (None, nodes):
        raise _left(conv, "the sizes of its tensors over nodes differ")
    sizes[end] = nodes


def _operand(conv: Any, name: str, value: Tensor, edges: int) -> Operand:
    """A tensor that is not over nodes, in its place."""
    _plain(conv, name, value)
    if value.dim() and value.size(0) == edges:
        return Operand(name, value, "edge")
    if edges > 1 and edges in value.shape:
        raise _left(conv, f"{name} has the edges along another dimension than the first")
    return Operand(name, value, "shared")


def _plain(conv: Any, name: str, value: Tensor) -> Tensor:
    if type(value) not in PLAIN or value.layout != torch.strided:
        raise _left(conv, f"{name} is no plain tensor")
    return value


def _has_ptr(conv: Any, edge_index: Adjacency) -> bool:
    if isinstance(edge_index, EdgeIndex):
        by_column = edge_index.is_sorted_by_col if conv.flow == "source_to_target" else edge_index.is_sorted_by_row
        return bool(by_column)
    return is_sparse(edge_index) and getattr(edge_index, "layout", None) != torch.sparse_coo


def _special(asked: Asked, name: str, chunk: Chunk) -> Any:
    match name:
        case "index" | "edge_index_i":
            return chunk.index
        case "edge_index_j":
            return chunk.col.long()
        case "edge_index":
            ends = [chunk.index, chunk.col.long()] if asked.reverse else [chunk.col.long(), chunk.index]
            return torch.stack(ends)
        case "ptr":
            return chunk.rowptr if asked.ptr else None
        case "size":
            sizes = [asked.num_cols, chunk.num_rows]
            return sizes[::-1] if asked.reverse else sizes
        case "size_j":
            return asked.num_cols
        case _:
            return chunk.num_rows
