"""Calls of `propagate` and `edge_updater`: layers that are refused before anything is run, and what functions get.

Messages that are a product with the adjacency, `x_j` or a number of each edge times `x_j`, are recognised: a
layer's `message` is traced once, with symbols for its tensors. What tracing does not understand is streamed; what
it does is compared with the message itself on random edges before it is believed.
"""

from __future__ import annotations

import dis
import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.fx
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import MessagePassing, aggr

from gnnbench.convs import _checks, _edges, _overrides
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.graph.cache import Adjacency, is_sparse, num_edges, values
from gnnbench.ops.kernels import EXTREMA, Kernels
from gnnbench.ops.spmm import spmm
from gnnbench.ops.stream import Chunk, Operands, Place

SPECIAL = frozenset(
    ["edge_index", "adj_t", "edge_index_i", "edge_index_j", "size", "size_i", "size_j", "ptr", "index", "dim_size"]
)
FUNCTIONS = {"propagate": ("message", "aggregate"), "edge_updater": ("edge_update",)}  # that run over edges
FROM_VALUES = ("edge_weight", "edge_attr", "edge_type")  # which PyG takes from a sparse adjacency
PLAIN = (Tensor, Parameter)
VIEWS = {"view", "unsqueeze", "reshape"}
PRODUCTS = {operator.mul, torch.mul, "mul", "__mul__", "__rmul__"}
EDGES = 5  # of the comparison
OUTSIDE = ("LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME", "STORE_ATTR", "LOAD_CLOSURE")
INTERNAL = ("_check_input", "_set_size", "_index_select", "_index_select_safe", "_lift", "_collect")
LOCAL = {  # aggregations that look at each destination by itself
    *(aggr.SumAggregation, aggr.MeanAggregation, aggr.MaxAggregation, aggr.MinAggregation, aggr.MulAggregation),
    *(aggr.VarAggregation, aggr.StdAggregation, aggr.SoftmaxAggregation, aggr.PowerMeanAggregation),
    *(aggr.MedianAggregation, aggr.QuantileAggregation, aggr.MultiAggregation, aggr.DegreeScalerAggregation),
    *(aggr.VariancePreservingAggregation, aggr.AttentionalAggregation, aggr.DeepSetsAggregation),
    aggr.fused.FusedAggregation,
}
_pygs = {name: _overrides.pygs_own(getattr(MessagePassing, name)) for name in INTERNAL}


def objections(conv: Any) -> list[str]:
    """Sentences, each a reason why PyG's own code has to run this layer's messages."""
    kind, own = type(conv), vars(conv)
    name, reasons = kind.__name__, _checks.watched(conv)
    reasons += [
        f"{name} overrides {each}()" for each in INTERNAL if each in own or getattr(kind, each) is not _pygs[each]
    ]
    reasons += [f"{name} has its own {each}()" for each in ("collect", "edge_collect") if each in own]
    inner = [module for module in conv.modules() if module is not conv]
    if watched := next((module for module in inner if _checks.is_hooked(module)), None):
        reasons.append(f"{name} has hooks on its {type(watched).__name__}")
    if any(parameter._backward_hooks for parameter in conv.parameters()):
        reasons.append(f"{name} has hooks on its parameters")
    module = conv._modules.get("aggr_module")
    within = [] if module is None else [each for each in module.modules() if isinstance(each, aggr.Aggregation)]
    if strange := next((each for each in within if type(each) not in LOCAL), None):
        reasons.append(f"{type(strange).__name__} may look at other destinations, such as that of the most edges")
    return reasons


class Operand(NamedTuple):
    """A tensor that a function is given by `name`, with the nodes or edges along `dim`."""

    name: str
    tensor: Tensor
    place: Place
    dim: int = 0


class Asked(NamedTuple):
    """A call over `num_rows` destinations and `num_cols` sources."""

    conv: Any
    functions: tuple[str, ...]
    num_rows: int
    num_cols: int
    operands: list[Operand]  # tensors over nodes and edges, and others
    constants: dict[str, Any]  # the rest of what its functions are given
    update: dict[str, Any]  # what `update` is given
    special: list[str]  # names of what they are given of the chunk itself

    @property
    def reverse(self) -> bool:
        return bool(self.conv.flow == "target_to_source")

    @property
    def streamed(self) -> Operands:
        """The operands, those over nodes and edges with these along the first dimension.

        Computed tensors over nodes are copied, as they may change in place before a backward gathers again.
        """
        copied = functools.cache(Tensor.clone)  # for a tensor may be given for both ends
        tensors = []
        for _, tensor, place, dim in self.operands:
            if place in ("source", "destination") and tensor.grad_fn is not None and torch.is_grad_enabled():
                tensor = copied(tensor)
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
        UnsupportedOp: it is not covered, as `objections` say of its layer or because of its arguments.
        ValueError: as PyG raises it of sizes that differ.
    """
    if reasons := objections(conv):
        raise UnsupportedOp(type(conv).__name__, reasons)
    updating = parameters(conv, "update") if "message" in functions else {}
    if leaning := [name for name in updating if name in SPECIAL or name[-2:] in ("_i", "_j")]:
        raise _left(conv, f"its update asks for {leaning[0]}")
    source, destination = (0, 1) if conv.flow == "source_to_target" else (1, 0)
    sizes = conv._check_input(edge_index, size)
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
        place: Place = "source" if name.endswith("_j") else "destination"
        value = filled.get(name[:-2])
        ends = {source if place == "source" else destination: value}
        if isinstance(value, (tuple, list)):
            if len(value) != 2:
                raise _left(conv, f"{name[:-2]} is no pair")
            ends = dict(enumerate(value))  # the first one is of sources, whatever the flow
            value = value[0 if place == "source" else 1]
        for end, tensor in ends.items():
            if isinstance(tensor, Tensor):
                conv._set_size(sizes, end, tensor)
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
    special = sorted(wanted.keys() & SPECIAL)
    return Asked(conv, functions, rows, cols, operands, constants, update, special)


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
            return None  # which functions take too, and reduce by `index` then
        case "size":
            sizes = [asked.num_cols, chunk.num_rows]
            return sizes[::-1] if asked.reverse else sizes
        case "size_j":
            return asked.num_cols
        case _:
            return chunk.num_rows


class Product(NamedTuple):
    """`weight`, one number for each edge (and head) or none for ones, times x, reduced by destination."""

    x: Operand
    weight: Operand | None
    heads: bool
    reduce: str


def aggregated(product: Product, kernels: Kernels, graph: Graph) -> Tensor:
    """The result of a call whose messages are recognised."""
    x, weight, heads, reduce = product
    rows, value = x.tensor.movedim(x.dim, 0), None
    flat = rows if heads else rows.reshape(len(rows), rows.shape[1:].numel())
    if weight is not None:
        of_edge = weight.tensor.shape[1:].numel()
        value = weight.tensor.reshape(graph.num_edges, of_edge) if heads else weight.tensor.flatten()
        value = _edges.in_rows(graph, value).to(flat.dtype)
    out = spmm(kernels, graph, flat, value, reduce)
    return out.view(graph.num_rows, *rows.shape[1:]).movedim(0, x.dim)


def product_of(asked: Asked) -> Product | None:
    """Recognise the messages of a call; None where they are something else, or there are none."""
    if "message" not in asked.functions:
        return None
    conv = asked.conv
    kind: Any = type(conv)
    reduce, own, takes = _checks.reduction(conv), vars(conv), parameters(conv, "message")
    aggregate = _overrides.STAND_INS.get(kind.aggregate, kind.aggregate)
    if reduce is None or aggregate is not MessagePassing.aggregate or "aggregate" in own or "message" in own:
        return None
    constants = tuple(name for name in asked.constants if name in takes)
    if any(asked.constants[name] is not None for name in constants):
        return None
    tensors = {each.name: each for each in asked.operands if each.name in takes}
    name = _recognised(kind.message, tuple(tensors), constants)
    x, weight = tensors.get("x_j"), None if name in (None, "x_j") else tensors[str(name)]
    if name is None or x is None or x.place != "source" or not x.tensor.is_floating_point():
        return None
    if weight is not None and (weight.place != "edge" or not _multiplies(x, weight)):
        return None
    heads = weight is not None and weight.tensor.shape[1:].numel() > 1
    few = tuple(
        (each.name, (*each.tensor.shape[: each.dim], EDGES, *each.tensor.shape[each.dim + 1 :]))
        for each in tensors.values()
    )
    if (heads and reduce in EXTREMA) or not _agrees(kind.message, few, name, x.dim, constants):
        return None
    return Product(x, weight, heads, reduce)


@functools.lru_cache(1024)
def _recognised(message: Any, tensors: tuple[str, ...], nothing: tuple[str, ...]) -> str | None:
    """`x_j`, or the name of the numbers that it is multiplied by; None for any other message."""
    if not isinstance(message, FunctionType) or _looks_outside(message):
        return None
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    given: dict[str, Any] = dict.fromkeys(nothing)
    given |= {name: torch.fx.Proxy(graph.placeholder(name), tracer) for name in tensors}
    try:
        out = message(None, **given)  # a layer of which nothing can be asked, as options differ from call to call
    except Exception:  # whatever a message does to symbols that it takes for tensors
        return None
    if not isinstance(out, torch.fx.Proxy):
        return None
    inputs = graph.find_nodes(op="placeholder")
    used = {str(node.target) for node in inputs if node.users or node is out.node}
    done = [node.target for node in graph.nodes if node.op != "placeholder" and node.target not in VIEWS]
    if "x_j" not in used or len(done) > 1 or len(used) != len(done) + 1 or {*done} - PRODUCTS:
        return None
    return next(iter(used - {"x_j"}), "x_j")


def _multiplies(x: Operand, weight: Operand) -> bool:
    """Return whether there is one number for each edge, or one for each edge and head of x [N, H, C]."""
    numbers = weight.tensor.shape[1:].numel()
    heads = x.tensor.size(1) if x.tensor.dim() == 3 and x.dim == 0 else 1
    wide = torch.promote_types(weight.tensor.dtype, x.tensor.dtype) == x.tensor.dtype
    same = wide or torch.is_autocast_enabled(x.tensor.device.type)
    return weight.tensor.is_floating_point() and same and numbers in (1, heads)


@functools.lru_cache(1024)
def _agrees(
    message: Any,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
    weight: str,
    x_dim: int,
    nothing: tuple[str, ...],
) -> bool:
    """Compare with the message itself on random edges, given the shapes of its tensors over these."""
    generator = torch.Generator().manual_seed(0)
    given: dict[str, Any] = dict.fromkeys(nothing)
    for name, shape in shapes:
        given[name] = torch.randn(shape, generator=generator, dtype=torch.float64)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        try:
            found = message(None, **given)
        except Exception:  # as in tracing
            return False
        expected = given["x_j"]
        if weight != "x_j":
            rows, value = expected.movedim(x_dim, 0), given[weight].reshape(EDGES, -1)
            width = rows.shape[1:].numel() // value.size(1)
            product = rows.reshape(EDGES, value.size(1), width) * value.unsqueeze(-1)
            expected = product.view(rows.shape).movedim(0, x_dim)
    return isinstance(found, Tensor) and found.shape == expected.shape and torch.equal(found, expected)


def _looks_outside(message: Any) -> bool:
    """Return whether a message that is not PyG's may depend on what is not given to it."""
    if _overrides.is_from(message, "torch_geometric."):
        return False
    code = message.__code__
    return bool(code.co_freevars) or any(each.opname in OUTSIDE for each in dis.get_instructions(code))
