"""Stand-ins for the forwards of untouched PyG convs, and of the decoder by which GAE and VGAE score pairs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric import nn
from torch_geometric.nn import InnerProductDecoder, MessagePassing
from torch_geometric.typing import SparseTensor

from gnnbench import convs
from gnnbench.convs import _checks, _overrides
from gnnbench.convs._bound import Accelerated
from gnnbench.convs._cost import PRODUCT, Cost, Price, Rates
from gnnbench.convs._edges import is_simple
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import cache
from gnnbench.messages.arguments import PLAIN
from gnnbench.ops.pairs import edge_dot
from gnnbench.patch import call
from gnnbench.patch.call import Call, Declined, draws
from gnnbench.patch.engine import MAX_GRAPH_BYTES, Engine
from gnnbench.patch.stand_in import StandIn
from gnnbench.patch.status import TALLY

__all__ = ["MAX_GRAPH_BYTES", "Engine", "Forward", "bind", "forward_of"]

CHANNELS = 50  # of a conv that transforms features before it gathers them, for a first guess
# Of 5,000 to 100,000 pairs without and with a backward, in which PyG adds up one row of z after another.
PAIRS = Cost(Rates(110_000, 35, -20_000, 0, 0.9), Rates(220_000, 50, -40_000, 0, 2.6))
EXACT = torch.float32, torch.float64  # types of scores; in others PyG rounds every product


class Forward(StandIn):
    """The stand-in for the `forward` of a PyG conv class; `original` is PyG's own function."""

    attribute = "forward"

    def __init__(self, kind: type[MessagePassing]) -> None:
        self.kind, self.name, self.module = kind, kind.__name__, convs.table()[kind.__name__]
        self.cost: Cost = self.module.COST
        self.drops_values = getattr(self.module, "DROPS_VALUES", False)
        self.recall: Any = getattr(self.module, "recall", None)
        self.multiplies_first: Any = getattr(self.module, "multiplies_first", None)
        self.original: Any = inspect.unwrap(kind.forward)
        self.names = tuple(inspect.signature(self.original).parameters)[1:]
        self.takes = inspect.signature(self.module.forward).parameters.keys()

    def __reduce__(self) -> tuple[Any, ...]:
        return forward_of, (self.kind,)

    def owners(self) -> list[Any]:
        replaced = not _overrides.is_from(self.original, "torch_geometric.")
        return [] if replaced else [self.kind]

    def price(self, conv: Any, x: Tensor, edges: int) -> Price:
        """Price the Graph of a call, and what it saves."""
        if self.cost.gathers_input:
            return self.cost.price(x, edges)
        own = vars(conv)
        heads, channels = own.get("heads", 1), own.get("out_channels", x.size(1))
        if type(heads) is not int or type(channels) is not int:  # nobody reads GCNConv's
            heads, channels = 1, x.size(1)
        return self._rates(conv).price(edges, heads * channels, heads, x.size(0))

    def _rates(self, conv: Any) -> Rates:
        """Return those of training too where the conv draws, as when its forward is repeated."""
        return self.cost.training if torch.is_grad_enabled() or draws(conv) else self.cost.inference

    def accelerated(self, engine: Engine, *args: Any, **kwargs: Any) -> Any:
        conv, *rest = args
        plain, graph, rewrites = call.are_plain(*rest), None, None
        if plain:
            x, edge_index = rest[:2]
            nodes, edges = x.size(0), edge_index.numel() // 2
            engine.policy.reject_small(edges * (x.size(1) if self.cost.gathers_input else CHANNELS))
        call.check_unwatched()
        reverse = conv.flow != "source_to_target"
        if plain:
            kernels, graphs = engine.on(x)
            graph = graphs.find(edge_index, nodes, nodes, reverse=reverse)
            how = self.kind, x.shape, x.dtype, x.layout, edges, torch.is_grad_enabled()
            rewrites = None if graph is None else engine.looks.find(conv, how)
            if rewrites is None:
                price = self.price(conv, x, edges)
                gains = engine.policy.weigh(edge_index, price, conv, known=graph is not None)
        if rewrites is None:
            if (kind := _overrides.pyg_class(conv)) is not self.kind:
                raise Declined(f"there is no accelerated {kind.__name__}")
            if reasons := self.module.unsupported(conv):
                raise UnsupportedOp(self.name, reasons)
        if rewrites is None or kwargs or len(rest) > 2:
            asked = call.read(conv, self.names, rest, kwargs, plain=plain)
        else:
            asked = Call(x, edge_index, nodes, nodes, {})
        if asked.options and (unknown := asked.options.keys() - self.takes):
            raise Declined(f"its argument {min(unknown)} is not covered")
        if sparse := not plain and cache.is_sparse(asked.adjacency):
            self._check_sparse(conv, asked)
        if not plain:
            x, edges = asked.sources, cache.num_edges(asked.adjacency)
            product = sparse and self.cost.gathers_input and conv.fuse
            price = PRODUCT.price(x, edges) if product else self.price(conv, x, edges)
            engine.policy.weigh(asked.adjacency, price, conv)
        if self.recall is not None and (kept := self.recall(conv, asked.x, asked.adjacency, **asked.options)):
            asked, graph = asked._replace(adjacency=kept[0], options=kept[1]), None
        if graph is None:
            kernels, graph = engine.graph(asked.sources, *asked[1:4], reverse=reverse)
        options = asked.options
        if sparse and getattr(conv, "add_self_loops", False) and not is_simple(graph):
            raise Declined("a sparse adjacency with loops or repeated edges, which PyG merges with those it adds")
        if sparse and "edge_weight" in self.takes:
            dropped = self.drops_values and isinstance(asked.adjacency, SparseTensor)
            options = {"edge_weight": None if dropped else call.sparse_weight(conv, asked.adjacency)}
        if rewrites is None:
            rewrites = frozenset(convs.rewrites(conv, self.module, transform_first=True, fold_norm=True))
            if plain and gains:
                engine.looks.keep(conv, how, rewrites)
        features: Any = asked.x
        if self.multiplies_first and engine.policy.many(features) and self.multiplies_first(conv, rewrites):
            features = engine.features.without_zeros(kernels, features)
        out = self.module.forward(conv, kernels, rewrites, features, graph, **options)
        return (out[0], (call.returned_edges(conv, asked), out[1])) if type(out) is tuple else out

    def _check_sparse(self, conv: Any, asked: Call) -> None:
        if asked.options:
            raise Declined(f"{min(asked.options)} beside a sparse adjacency")
        if bool(conv.fuse) != ("edge_weight" in self.takes):
            raise Declined(f"fuse={conv.fuse} beside a sparse adjacency")
        if conv.fuse and ("sum" if conv.aggr == "add" else conv.aggr) != _checks.reduction(conv):
            raise Declined(f"aggr={conv.aggr!r} beside a sparse adjacency, which is not how edges are aggregated")


class TypedForward(Forward):
    """The stand-in for the `forward` of a conv that is given features and edges by type."""

    def accelerated(self, engine: Engine, *args: Any, **kwargs: Any) -> Any:
        conv, *rest = args
        call.check_unwatched()
        if (kind := _overrides.pyg_class(conv)) is not self.kind:
            raise Declined(f"there is no accelerated {kind.__name__}")
        asked = call.read_typed(conv, self.names, rest, kwargs)
        edges = {relation: cache.num_edges(each.adjacency) for relation, each in asked.calls.items()}
        engine.policy.reject_small(sum(edges.values()) * conv.out_channels)
        if reasons := self.module.unsupported(conv):
            raise UnsupportedOp(self.name, reasons)
        found = [engine.on(each.sources)[1].find(*each[1:4]) for each in asked.calls.values()]
        largest = asked.calls[max(edges, key=edges.__getitem__)]
        rows = sum(map(len, asked.x.values()))
        price = self._rates(conv).price(sum(edges.values()), conv.out_channels, conv.heads, rows)
        engine.policy.weigh(largest.adjacency, price, conv, known=None not in found)
        graphs, kernels = {}, engine.on(largest.sources)[0]
        for (relation, each), known in zip(asked.calls.items(), found, strict=True):
            _, graphs[relation] = engine.graph(each.sources, *each[1:4], known=known)
        return self.module.forward(conv, kernels, frozenset(), asked.x, graphs, **asked.options)


class Decoder(StandIn):
    """Dot products of both ends of pairs [2, P] without their features: `original` gathers them."""

    name, attribute = "InnerProductDecoder", "forward"

    def __init__(self) -> None:
        self.original: Any = inspect.unwrap(InnerProductDecoder.forward)
        self.names = tuple(inspect.signature(self.original).parameters)[1:]

    def __reduce__(self) -> str:
        return "DECODER"

    def owners(self) -> list[Any]:
        return [InnerProductDecoder] if _overrides.is_from(self.original, "torch_geometric.") else []

    def accelerated(self, engine: Engine, *args: Any, **kwargs: Any) -> Tensor:
        decoder, *rest = args
        asked = {"sigmoid": True, **call.named(self.names, rest, kwargs)}
        z: Any = asked.get("z")
        pairs: Any = asked.get("edge_index")
        if type(z) not in PLAIN or z.layout != torch.strided or z.dim() != 2 or z.dtype not in EXACT:
            raise Declined("z is not a plain matrix of float32 or float64")
        if type(pairs) is not Tensor or pairs.dtype != torch.int64 or pairs.dim() != 2 or pairs.size(0) != 2:
            raise Declined("edge_index is not a tensor [2, E] of 64-bit integers")
        nodes, count = z.size(0), pairs.size(1)
        engine.policy.reject_small(count * z.size(1))
        call.check_surroundings()
        known = engine.on(z)[1].find(pairs, nodes, nodes)
        engine.policy.weigh(pairs, PAIRS.price(z, count), decoder, known=known is not None)
        kernels, graph = engine.graph(z, pairs, nodes, nodes, known=known)
        score = edge_dot(kernels, graph, z, z)
        return torch.sigmoid(score) if asked["sigmoid"] else score


DECODER = Decoder()


@functools.cache
def forward_of(kind: type[MessagePassing]) -> Forward:
    """The one stand-in for the forward of a PyG class."""
    return (TypedForward if getattr(convs.table()[kind.__name__], "TYPED", False) else Forward)(kind)


def bind(model: Module, engine: Engine, names: Collection[str]) -> None:
    """Let `engine` run the convs and decoders of one model that are instances of the PyG classes among `names`.

    Raises:
        UnsupportedOp: a conv has a forward of its own, with a strict engine; then none is bound.
    """
    kinds = tuple(getattr(nn, name) for name in names if name in convs.table())
    candidates: list[tuple[str, Any]] = [
        (path, conv) for path, conv in model.named_modules() if isinstance(conv, kinds)
    ]
    own = {path: type(conv).__name__ for path, conv in candidates if _checks.overrides_forward(conv)}
    if own and engine.strict:
        raise UnsupportedOp("this model", [f"{path}: {name} overrides forward()" for path, name in own.items()])
    for path, conv in candidates:
        if path in own:
            TALLY.declined(own[path], "it overrides forward()")
        else:
            conv.forward = Accelerated(forward_of(_overrides.pyg_class(conv)), engine, conv)
    for decoder in model.modules() if DECODER.name in names else ():
        if type(decoder) is InnerProductDecoder and not _checks.has_own_forward(decoder):
            decoder.forward = Accelerated(DECODER, engine, decoder)
