"""Layers that are refused before anything is run, and messages that are a product with the adjacency.

These are `x_j` or a number of each edge times `x_j`. A layer's `message` is traced once, with symbols for its
tensors. What tracing does not understand is streamed; what it does is compared with the message itself on random
edges before it is believed.
"""

from __future__ import annotations

import dis
import functools
import operator
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.fx
from torch import Tensor
from torch_geometric.nn import MessagePassing, aggr

from gnnbench.convs import _checks, _edges, _layers, _overrides
from gnnbench.graph import Graph
from gnnbench.messages.arguments import Asked, Operand, parameters
from gnnbench.ops.kernels import EXTREMA, Kernels
from gnnbench.ops.spmm import spmm

VIEWS = ("view", "unsqueeze", "reshape")
PRODUCTS = (operator.mul, torch.mul)
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
    name = kind.__name__
    reasons = [
        f"{name} overrides {each}()" for each in INTERNAL if each in own or getattr(kind, each) is not _pygs[each]
    ]
    reasons += [f"{name} has its own {each}()" for each in ("collect", "edge_collect") if each in own]
    if any(_checks.hooks_on_messages(own)):
        reasons.append(f"{name} has hooks on its messages")
    if conv.explain:
        reasons.append(f"{name} is being explained")
    if conv.decomposed_layers != 1:
        reasons.append(f"{name} has decomposed_layers={conv.decomposed_layers}")
    if conv.flow not in ("source_to_target", "target_to_source"):
        reasons.append(f"{name} has flow={conv.flow!r}")
    inner = [module for module in conv.modules() if module is not conv]
    if watched := next((module for module in inner if _layers.is_hooked(module)), None):
        reasons.append(f"{name} has hooks on its {type(watched).__name__}")
    if any(parameter._backward_hooks for parameter in conv.parameters()):
        reasons.append(f"{name} has hooks on its parameters")
    module = conv._modules.get("aggr_module")
    within = [] if module is None else [each for each in module.modules() if isinstance(each, aggr.Aggregation)]
    if strange := next((each for each in within if type(each) not in LOCAL), None):
        reasons.append(f"{type(strange).__name__} may look at other destinations, such as that of the most edges")
    return reasons


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


def find(asked: Asked) -> Product | None:
    """Recognise the messages of a call; None where they are something else, or there are none."""
    if "message" not in asked.functions:
        return None
    conv = asked.conv
    kind: Any = type(conv)
    reduce, own, takes = _layers.reduction(conv), vars(conv), parameters(conv, "message")
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
    return _kind_of(out.node) if isinstance(out, torch.fx.Proxy) else None


def _kind_of(node: torch.fx.Node) -> str | None:
    if node.op == "placeholder":
        return "x_j" if node.target == "x_j" else None
    if node.op not in ("call_function", "call_method") or len(node.args) != 2 or node.kwargs:
        return None
    if node.target not in (*PRODUCTS, "mul", "__mul__", "__rmul__"):
        return None
    for number, source in (node.args, node.args[::-1]):
        if isinstance(source, torch.fx.Node) and source.op == "placeholder" and source.target == "x_j":
            name = _viewed(number)
            if name is not None and name != "x_j":
                return name
    return None


def _viewed(node: Any) -> str | None:
    """The name of the argument that `node` is a view of."""
    while isinstance(node, torch.fx.Node) and node.op == "call_method" and node.target in VIEWS:
        node = node.args[0]
    return str(node.target) if isinstance(node, torch.fx.Node) and node.op == "placeholder" else None


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
            value = given[weight].reshape(EDGES, -1)
            one = value.size(1) == 1
            value = value.view(EDGES, *[1] * (expected.dim() - 1)) if one else value.unsqueeze(-1)
            expected = (value * expected.movedim(x_dim, 0)).movedim(0, x_dim)
    return isinstance(found, Tensor) and found.shape == expected.shape and torch.equal(found, expected)


def _looks_outside(message: Any) -> bool:
    """Return whether a message that is not PyG's may depend on what is not given to it."""
    if _overrides.is_from(message, "torch_geometric."):
        return False
    code = message.__code__
    return bool(code.co_freevars) or any(each.opname in OUTSIDE for each in dis.get_instructions(code))
