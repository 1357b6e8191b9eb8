"""A rehearsal of a layer's functions on a few destinations, before they are trusted with all, a chunk at a time.

It tells how much an edge keeps alive, where gradients go and whether random numbers are drawn; and it refuses what
a chunk would compute otherwise than the whole: functions that look across destinations, or write what others read.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.messages import lifted, replaced
from gnnbench.messages.elementwise import Symbols
from gnnbench.messages.held import unchanged
from gnnbench.messages.lifted import Linear
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.stream import Chunk, Leaves, Operands, Shares

EDGES = 48  # of either half, at least
COARSE = 3e-2  # for types of 16 bits
# Differences by rounding alone, over the largest number.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
LARGE = 1 << 24  # bytes of a parameter that is not copied


class Rehearsal(NamedTuple):
    """Findings on a few destinations, which hold for all."""

    bytes_per_edge: float  # what a backward needs of an edge while it lasts
    draws: bool  # whether dropout draws random numbers
    parameters: tuple[Parameter, ...]  # those that get a gradient
    written: tuple[str, ...]  # names of tensors over edges that are left on the layer
    lifted: tuple[Linear, ...] | None  # layers that can be computed over nodes; None: functions take numbers alone
    fused: bool  # whether functions take expressions over edges, with equal results


def rehearse(conv: Module, kernels: Kernels, graph: Graph, function: Any, operands: Operands) -> Rehearsal:
    """Evaluate `function`, of the methods of `conv`, on a few destinations.

    Tensors over edges that it leaves on the layer become results, by their names in `function.written`.

    Raises:
        UnsupportedOp: with the reasons why it cannot be evaluated a chunk at a time.
    """
    few = _Few(conv, kernels, function, operands, *_few_rows(graph))
    state = torch.get_rng_state()
    try:
        with replaced.without_dropout() as rehearsed:
            with unchanged(conv) as written, torch.no_grad():
                few.evaluate_first()
            if not torch.equal(torch.get_rng_state(), state):
                raise _refused("its message draws random numbers other than those of dropout")
            if any(len(each) != few.both.num_edges for each in written.values()):
                raise _refused(f"its message writes {min(written)}, which others read")
            function.written = tuple(written)
            with unchanged(conv):
                few.check_local(function, {})
                few.check_local_with_other_values()
            layers = few.lifted()
        with unchanged(conv):
            trained, nbytes = few.kept(None)
            if layers is not None:
                _, nbytes = few.kept(layers)
        per_edge = nbytes / few.both.num_edges
        plain = not (rehearsed.dropped or function.written) and kernels.pays("program")
        fused = plain and few.fuses(layers)
        return Rehearsal(per_edge, rehearsed.dropped, trained, function.written, layers, fused)
    finally:
        torch.set_rng_state(state)


def _few_rows(graph: Graph) -> tuple[Chunk, list[Chunk]]:
    """Some rows, and these in two halves."""
    edges = torch.tensor([min(EDGES, graph.num_edges // 2), min(2 * EDGES, graph.num_edges)], device=graph.device)
    middle, end = torch.searchsorted(graph.rowptr, edges).clamp(max=graph.num_rows).tolist()
    if end <= middle and middle < graph.num_rows:  # a row of very many edges
        end = middle + 1
    half, whole = graph.rowptr[[middle, end]].tolist()
    if not 0 < half < whole:
        raise _refused("it has too few edges to tell whether its messages are local")
    first, second = (slice(0, middle), slice(0, half)), (slice(middle, end), slice(half, whole))
    return Chunk(graph, slice(0, end), slice(0, whole)), [Chunk(graph, *first), Chunk(graph, *second)]


def _turned(chunk: Chunk) -> tuple[Chunk, Tensor]:
    """A chunk with the edges of every row in the opposite order, and where each was before."""
    order = (chunk.index * chunk.num_edges - torch.arange(chunk.num_edges, device=chunk.index.device)).argsort()
    turned = Chunk(chunk.graph, chunk.rows, chunk.edges)
    turned.col, turned.edge_id = chunk.col.index_select(0, order), chunk.edge_id.index_select(0, order)
    return turned, order


class _Few(NamedTuple):
    """A function of a layer with all that it is given, and a few destinations: `both` of two `halves`."""

    conv: Module
    kernels: Kernels
    function: Any
    operands: Operands
    both: Chunk
    halves: list[Chunk]

    def evaluate_first(self) -> None:
        """Evaluate the function, and refuse it if it writes to tensors of its caller."""
        given = [k for k, place in enumerate(self.operands.places) if place in ("edge", "shared")]
        before, shares = (Shares(self.kernels, self.both, self.operands) for _ in range(2))
        shares.gathered = {(k,): before.of(k).clone() for k in given}
        self.function(self.both, shares)
        for k in given:
            now, then = shares.of(k), before.of(k)
            if not bool(((now == then) | ((now != now) & (then != then))).all()):
                raise _refused("its message writes to what it is given")

    def check_local(self, function: Any, given: dict[int, Tensor]) -> None:
        """Refuse a function of which a destination's result depends on others, or on the order of its edges.

        Args:
            given: what takes the place of the shares of `both` in operands, by their positions.
        """

        def evaluated(chunk: Chunk, edges: Any) -> tuple[Tensor, ...]:
            shares = Shares(self.kernels, chunk, self.operands)
            for k, share in given.items():
                shares.gathered[k,] = share if self.operands.places[k] == "shared" else share[edges].clone()
            return function(chunk, shares)

        both = self.both
        turned, order = _turned(both)
        with torch.no_grad():
            wholes, others = evaluated(both, both.edges), evaluated(turned, order)
            apart = [evaluated(half, half.edges) for half in self.halves]
        for number, (whole, other, *parts) in enumerate(zip(wholes, others, *apart, strict=True)):
            over_nodes = number == 0 and self.function.over_nodes
            if len(whole) != (both.num_rows if over_nodes else both.num_edges):
                raise _refused("its result has other rows than the destinations")
            _check_equal(whole, torch.cat(parts))
            if not _equal(whole if over_nodes else whole.index_select(0, order), other):
                raise _refused("its result depends on the order of its edges")

    def check_local_with_other_values(self) -> None:
        """Look again where values are no zeros or ones, which would hide what a function does."""
        try:
            ends = {"source": self.both.col, "destination": self.both.index}
            shares = Shares(self.kernels, self.both, self.operands)
            places = [(k, place) for k, place in enumerate(self.operands.places) if place != "parameter"]
            with torch.no_grad():
                given = {k: _varied(shares.of(k), ends.get(place)) for k, place in places}
            self.check_local(self.function.on(_with_other_parameters(self.conv)), given)
        except UnsupportedOp:
            raise
        except Exception:  # of a layer that cannot be copied, or does not take these values
            return

    def lifted(self) -> tuple[Linear, ...] | None:
        """Find the linear layers that can be computed over nodes, whose results are then equal.

        None where functions gain nothing by what stands for numbers, or refuse it, or autocast rounds products.
        """
        if torch.is_autocast_enabled(self.both.col.device.type):
            return None
        layers: tuple[Linear, ...] = ()
        try:
            plain, gathered = self._results(None)
            standing, _ = self._results(())
            if lifted.pays(self.both.graph):
                layers = tuple(each for each in self.function.met if each.is_exact)
            found, others = self._results(layers)
            for whole, other, moved in zip(plain, standing, found, strict=True):
                _check_equal(whole, other)
                _check_equal(whole, moved)
            return None if others == gathered else layers
        except Exception:  # of functions that cannot do without the numbers
            return None

    def fuses(self, layers: tuple[Linear, ...] | None) -> bool:
        """Return whether functions take what stands for expressions over edges, and return equal results."""
        if torch.is_autocast_enabled(self.both.col.device.type):
            return False
        try:
            ((plain,), _), ((found,), _) = self._results(None), self._results(layers, Symbols)
            _check_equal(plain, found)
        except Exception:  # of functions that are not elementwise
            return False
        return type(found) is Tensor

    def _results(
        self, layers: tuple[Linear, ...] | None, kind: type[Shares] = Shares
    ) -> tuple[tuple[Tensor, ...], set[tuple[int, ...]]]:
        """Results with these layers computed over nodes, and which operands were gathered for them."""
        with torch.no_grad(), unchanged(self.conv):
            operands, self.function.lifted = lifted.extended(self.operands, layers)
            shares = kind(self.kernels, self.both, operands)
            return self.function(self.both, shares), {*shares.gathered}

    def kept(self, layers: tuple[Linear, ...] | None) -> tuple[tuple[Parameter, ...], int]:
        """The parameters that get a gradient, and the bytes that are kept until then."""
        parameters = {id(each): each for each in self.conv.parameters()}
        kept: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            if id(tensor) not in parameters:
                kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        # Within these hooks, for a checkpoint counts what is saved outside of them.
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            operands, self.function.lifted = lifted.extended(self.operands, layers)
            shares = Leaves(self.kernels, self.both, operands)
            kept.clear()
            began = torch._C._autograd._get_sequence_nr()
            outs = self.function(self.both, shares)
        held = {each.grad_fn for each in trained_attributes(self.conv).values()}
        reached = {id(leaf): leaf for out in outs for leaf in _leaves(out, began, held)}
        if reached.keys() - parameters.keys() - {id(share) for share in shares.gathered.values()}:
            raise _refused("its message reads a tensor that needs a gradient and is no argument or parameter")
        trained = tuple(parameters[each] for each in reached if each in parameters)
        return trained, sum(kept.values()) + sum(each.nbytes for each in (*shares.gathered.values(), *outs))


def _check_equal(whole: Tensor, split: Tensor) -> None:
    if split.shape != whole.shape:
        raise _refused("its result depends on how many destinations there are")
    if not _equal(whole, split):
        raise _refused("its messages depend on edges of other destinations")


def _equal(whole: Tensor, split: Tensor) -> bool:
    finite = whole[whole.isfinite()].double().abs()
    scale = finite.amax() if finite.numel() else 0
    exact = not torch.is_autocast_enabled(whole.device.type)
    tolerance = (TOLERANCE.get(whole.dtype, COARSE) if exact else COARSE) * float(scale)
    return torch.allclose(split.double(), whole.double(), rtol=0, atol=tolerance, equal_nan=True)


def trained_attributes(conv: Module) -> dict[str, Tensor]:
    """Tensors that need a gradient and are no parameters, which a layer holds, by their paths."""
    return {
        f"{path}.{name}": value
        for path, module in conv.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor) and value.requires_grad
    }


def _leaves(out: Tensor, began: int, held: Collection[Any]) -> Iterator[Tensor]:
    """The tensors that gradients of `out` end in.

    Raises:
        UnsupportedOp: a part of the graph of `out` is older than `began` or among `held`, so that it is gone
            through once only.
    """
    todo, met = [out.grad_fn], {None}
    while todo:
        node: Any = todo.pop()
        if node in met:
            continue
        met.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        elif node._sequence_nr() < began or node in held:
            raise _refused("its message reads a tensor that was computed from parameters before")
        todo += [each for each, _ in node.next_functions]


def _refused(reason: str) -> UnsupportedOp:
    return UnsupportedOp("streaming", [reason])


def _with_other_parameters(conv: Module) -> Module:
    """Copy a layer with other parameters, but for large ones, which it shares."""
    memo: dict[int, Any] = {
        id(each): each if each.nbytes > LARGE else Parameter(_varied(each.detach())) for each in conv.parameters()
    }
    return copy.deepcopy(conv, memo)


def _varied(values: Tensor, ids: Tensor | None = None) -> Tensor:
    """Other values of about the same size, of which none is zero; the same in all rows of one of `ids`."""
    if not values.is_floating_point() or not values.numel():
        return values
    flat = values.double().reshape(len(values) if values.dim() else 1, -1)
    scale = float(flat.abs().amax()) or 1.0
    ids = torch.arange(len(flat), device=values.device) if ids is None else ids
    column = torch.arange(flat.size(1), device=values.device)
    noise = ((ids.double().unsqueeze(1) * 12.9898 + column * 78.233 + 1).sin() * 43758.5453).frac().abs()
    return (flat * (noise + 0.5) + noise * (0.1 * scale)).view(values.shape).to(values.dtype)
