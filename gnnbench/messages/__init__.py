"""Message-passing layers of any class: their own functions on kernels, without all messages at once.

arguments    what is refused before anything is run, what a call gives to a layer's functions and where each tensor
             belongs, and messages that are a product with the adjacency
rehearsal    what is refused, and what an edge keeps alive, found on a few destinations
lifted       linear layers of edges that are computed over nodes
elementwise  messages that are run in registers, nothing of which is kept
replaced     functions of torch and PyG that stand in for others while a chunk is evaluated
held         what a layer holds, from the forward to the backward, and what its functions write
norms        what `gcn_norm` made of edges that come again
bound        layers of models that are called with a Graph
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.messages import arguments, lifted, replaced
from gnnbench.messages.arguments import Asked, Product, parameters
from gnnbench.messages.elementwise import Symbols, Whole
from gnnbench.messages.held import VALUES, Held, options
from gnnbench.messages.lifted import Lifting, Linear, NeedsNumbers, extended, numbers
from gnnbench.messages.rehearsal import Rehearsal, rehearse, trained_attributes
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.stream import Chunk, Operands, Place, Shares, autocast_of, chunk_length, in_types_of, stream

KEPT = 8  # rehearsals of a layer, whose arguments may take turns

_known: Any = WeakKeyDictionary()  # layers -> their rehearsals, each behind all that it depends on


def propagate(asked: Asked, kernels: Kernels, graph: Graph, product: Product | None) -> tuple[Tensor, str]:
    """Compute what `propagate` or `edge_updater` returns for a call on `graph`.

    Args:
        product: its messages, as `arguments.product_of` recognised them.

    Returns:
        The result, and how it was computed: "spmm", "fused" or "streamed".

    Raises:
        UnsupportedOp: with the reasons why PyG's own code has to run.
    """
    if product is not None:
        out, how = arguments.aggregated(product, kernels, graph), "spmm"
    else:
        out, how = _evaluated(asked, kernels, graph)
    return (asked.conv.update(out, **asked.update) if "message" in asked.functions else out), how


class _Evaluation:
    """A layer's functions over the edges of a chunk."""

    def __init__(self, asked: Asked, kernels: Kernels) -> None:
        self.asked, self.kernels = asked.released, kernels
        self.over_nodes = "message" in asked.functions
        self.names = {function: list(parameters(asked.conv, function)) for function in asked.functions}
        self.written: tuple[str, ...] = ()  # tensors over edges that they leave on the layer, as results
        # Positions of the products of linear layers; None where all that functions are given is numbers.
        self.lifted: Mapping[Any, tuple[int, ...]] | None = None
        self.met: tuple[Linear, ...] = ()  # the linear layers of gathers that the last evaluation met
        self.held: Held | None = None

    def on(self, conv: Any) -> _Evaluation:
        """Return the functions of another layer."""
        other = copy.copy(self)
        other.asked = self.asked._replace(conv=conv)
        return other

    @contextmanager
    def around(self) -> Iterator[None]:
        """Let functions run, in a backward too."""
        with replaced.installed(), self.held.restored(self.written) if self.held else nullcontext():
            yield

    def __call__(self, chunk: Chunk, shares: Shares) -> tuple[Tensor, ...]:
        lifting = None if self.lifted is None else Lifting(shares, self.lifted)
        conv, arguments = self.asked.conv, self.asked.named(chunk, lifting.argument if lifting else shares.of)
        own = vars(conv)
        before = {name: own[name] for name in self.written if name in own}
        out: Any = None
        try:
            with replaced.within(chunk, self.kernels):
                for function, names in self.names.items():
                    given = {name: arguments[name] for name in names if name in arguments}
                    out = numbers(getattr(conv, function)(*((out,) if function == "aggregate" else ()), **given))
            written = [numbers(own[name]) for name in self.written]
        finally:
            for name in self.written:
                own.pop(name, None)
            own.update(before)
        self.met = tuple(lifting.met.values()) if lifting else ()
        if not isinstance(out, Tensor) or out.dim() < max(1, -conv.node_dim, conv.node_dim + 1):
            raise UnsupportedOp("streaming", ["its result is not a tensor over nodes"])
        return (out.movedim(conv.node_dim, 0) if self.over_nodes else out), *written


def _evaluated(asked: Asked, kernels: Kernels, graph: Graph) -> tuple[Tensor, str]:
    conv, given, evaluate = asked.conv, asked.streamed, _Evaluation(asked, kernels)
    rehearsal = _rehearsed(asked, kernels, graph, evaluate, given)
    evaluate.written = rehearsal.written
    operands, evaluate.lifted = extended(given, rehearsal.lifted)
    if rehearsal.fused:
        chunk = Whole(graph)
        with suppress(NeedsNumbers), evaluate.around():  # raised where it goes another way than in the rehearsal
            (out,) = evaluate(chunk, Symbols(kernels, chunk, operands))
            return _placed(evaluate, out), "fused"
    parameter: Place = "parameter"
    places = [*operands.places, *[parameter] * len(rehearsal.parameters)]
    edges = chunk_length(kernels, graph, rehearsal.bytes_per_edge)
    if edges < graph.num_edges and torch.is_grad_enabled():  # functions then run again in the backward
        evaluate.held = Held(conv)
    out, *written = stream(
        kernels,
        graph,
        evaluate,
        Operands([*operands.tensors, *rehearsal.parameters], places),
        edges=edges,
        over_edges=[not evaluate.over_nodes, *[True] * len(rehearsal.written)],
        draws=rehearsal.draws,
        around=evaluate.around,
    )
    vars(conv).update(zip(rehearsal.written, written, strict=True))
    return _placed(evaluate, out), "streamed"


def _placed(evaluate: _Evaluation, out: Tensor) -> Tensor:
    """A result with the nodes along the dimension where the layer has them."""
    return out.movedim(0, evaluate.asked.conv.node_dim) if evaluate.over_nodes and out.dim() > 1 else out


def _rehearsed(asked: Asked, kernels: Kernels, graph: Graph, function: Any, operands: Operands) -> Rehearsal:
    state = _state(asked, operands, lifted.pays(graph))
    known: list[tuple[tuple[Any, ...], Rehearsal]] = _known.setdefault(asked.conv, [])
    for then, rehearsal in known:
        if _same(then, state):
            return rehearsal
    with in_types_of(graph.device, autocast_of(graph.device)):
        rehearsal = rehearse(asked.conv, kernels, graph, function, operands)
    known.insert(0, (state, rehearsal))
    del known[KEPT:]
    return rehearsal


def _state(asked: Asked, operands: Operands, *more: Any) -> tuple[Any, ...]:
    """All that a rehearsal may depend on but for the values of tensors and the edges."""
    modules = list(asked.conv.modules())
    given = zip(operands.tensors, operands.places, strict=True)
    return (
        *modules[1:],  # for the layer itself is not to be kept
        *(each for module in modules for each in options(module)),
        *(value for module in modules for value in module._parameters.values()),
        tuple(p.requires_grad for p in asked.conv.parameters()),
        tuple(trained_attributes(asked.conv)),
        tuple((place, t.dtype, t.shape[1:], t.requires_grad) for t, place in given),
        tuple((name, value) for name, value in asked.constants.items() if type(value) in VALUES),
        more,
        (torch.is_grad_enabled(), torch.is_autocast_enabled(operands.tensors[0].device.type)),
    )


def _same(then: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return len(then) == len(now) and all(
        a is b or (type(a) is type(b) and not isinstance(a, (Tensor, torch.nn.Module)) and a == b)
        for a, b in zip(then, now, strict=True)
    )
