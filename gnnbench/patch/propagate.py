"""Stand-ins for `propagate` and `edge_updater`, by which every message-passing layer computes, users' own too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.nn import Module
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing

from gnnbench import convs, messages
from gnnbench.convs import _cost, _overrides
from gnnbench.convs._bound import Accelerated
from gnnbench.convs._cost import Cost, Rates
from gnnbench.errors import GnnbenchError
from gnnbench.graph.cache import is_sparse, num_edges
from gnnbench.messages import arguments
from gnnbench.messages.arguments import FUNCTIONS
from gnnbench.patch import call
from gnnbench.patch.call import Declined
from gnnbench.patch.engine import Engine
from gnnbench.patch.stand_in import StandIn

CHANNELS = 16  # at least, for a first guess
# Measured on layers whose messages do little, of 16 and 64 channels on random graphs of 3,000 to 40,000 edges, 4
# to a node, on an AMD EPYC (Zen 4): about where those gain nothing that gain least.
STREAMED = Cost(Rates(110_000, 35, -2_000_000, 0, 1.5), Rates(110_000, 35, -1_600_000, 0, 2.0))
OWN_PRODUCT = "PyG has a product of its own for this adjacency"

_compiled: set[type[MessagePassing]] = set()


class Propagate(StandIn):
    """The stand-in for one of the two functions of a class; `original` is what PyG compiled for it."""

    def __init__(self, kind: type[MessagePassing], attribute: str) -> None:
        self.owner, self.name, self.attribute = kind, kind.__name__, attribute
        self.original: Any = inspect.unwrap(vars(kind)[attribute])
        parameters = inspect.signature(self.original).parameters
        self.names = tuple(parameters)[1:]
        self.required = {each for each in self.names if parameters[each].default is inspect.Parameter.empty}
        self.functions = FUNCTIONS[attribute]
        self.aggregates = "aggregate" in self.functions

    def __reduce__(self) -> tuple[Any, ...]:
        return stand_in_of, (self.owner, self.attribute)

    def accelerated(self, engine: Engine, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 1 and type(args[1]) is Tensor and not is_sparse(args[1]):
            engine.policy.reject_small(args[1].numel() // 2 * CHANNELS)
        conv, *rest = args
        given = call.named(self.names, rest, kwargs)
        if not self.required <= given.keys():
            raise Declined("its arguments do not fit its signature")
        edge_index, size = given.pop("edge_index", None), given.pop("size", None)
        call.check_unwatched()
        if why := self._wrong_adjacency(conv, edge_index):
            raise Declined(why)
        asked = arguments.read(conv, self.functions, edge_index, size, given)
        where = edge_index.device if isinstance(edge_index, Tensor) else edge_index.device()
        devices = {each.tensor.device for each in asked.operands} | {where}
        if len(devices) > 1 or not asked.operands:
            raise Declined("its arguments are not tensors on one device")
        product = arguments.product_of(asked)
        prices = STREAMED if product is None else _cost.SUM
        width = max(each.tensor.shape[1:].numel() for each in asked.operands)
        rates = prices.training if torch.is_grad_enabled() else prices.inference
        price = rates.price(num_edges(edge_index), width, rows=asked.num_rows)
        engine.policy.weigh(edge_index, price, conv)
        kernels, graph = engine.graph(
            asked.operands[0].tensor, edge_index, asked.num_rows, asked.num_cols, reverse=asked.reverse
        )
        try:
            out, self.way = messages.propagate(asked, kernels, graph, product)
        except GnnbenchError:
            raise
        except Exception as error:  # PyG's own code raises its own error, or does what only it can
            if type(error).__module__ == torch.utils.checkpoint.__name__:  # has all that it wants to know
                raise
            raise Declined(f"its functions raised {type(error).__name__} on some of its edges") from error
        return out

    def left(self, engine: Engine, reason: str, /, *args: Any, **kwargs: Any) -> Any:
        if engine.strict and reason.startswith("its functions raised"):
            return self.original(*args, **kwargs)
        return super().left(engine, reason, *args, **kwargs)

    def _wrong_adjacency(self, conv: Any, edge_index: Any) -> str | None:
        if type(edge_index) is not EdgeIndex and (type(edge_index) is not Tensor or is_sparse(edge_index)):
            fused = getattr(edge_index, "layout", "") == torch.sparse_csc or (conv.fuse and self.aggregates)
            return OWN_PRODUCT if fused else call.wrong_matrix(edge_index)
        if edge_index.dtype != torch.int64 or edge_index.dim() != 2 or edge_index.size(0) != 2:
            return "edge_index is not a tensor [2, E] of 64-bit integers"
        own = type(edge_index) is EdgeIndex and conv.SUPPORTS_FUSED_EDGE_INDEX and edge_index.is_sorted_by_col
        return OWN_PRODUCT if own and conv.fuse and self.aggregates else None


class Compilation(StandIn):
    """The stand-in for what PyG compiles both functions by, once for every class."""

    name, owner = "MessagePassing", MessagePassing
    attribute = "_set_jittable_templates"

    def __init__(self, adopt: Callable[[], None]) -> None:
        self.original: Any = vars(MessagePassing)[self.attribute]
        self.adopt = adopt

    def __call__(self, engine: Engine, *args: Any, **kwargs: Any) -> Any:
        self.original(*args, **kwargs)
        if type(args[0]) not in _compiled and known([type(args[0])]):
            self.adopt()


def layers() -> list[type[MessagePassing]]:
    """All classes of message-passing layers but for those that have a forward of ours."""
    todo: list[type[MessagePassing]] = [MessagePassing]
    met: dict[type[MessagePassing], None] = {}
    while todo:
        met[kind := todo.pop()] = None
        todo += [each for each in kind.__subclasses__() if each not in met]
    return [kind for kind in met if kind is not MessagePassing and not _has_forward(kind)]


def known(kinds: Iterable[type[MessagePassing]] | None = None) -> list[Propagate]:
    """Stand-ins for the functions of all classes that PyG has compiled some for."""
    found = []
    for kind in layers() if kinds is None else kinds:
        for attribute in FUNCTIONS:
            function = vars(kind).get(attribute)
            if function and not _has_forward(kind) and _overrides.is_compiled(kind, attribute, function):
                _compiled.add(kind)
                found.append(stand_in_of(kind, attribute))  # type: ignore[arg-type]
    return found


@functools.cache
def stand_in_of(kind: type[MessagePassing], attribute: str) -> Propagate:
    """The one stand-in for a function of a class."""
    return Propagate(kind, attribute)


def bind(model: Module, engine: Engine, names: Iterable[str] | None) -> None:
    """Let `engine` run the messages of the layers of one model that have no forward of ours."""
    for conv in model.modules():
        if isinstance(conv, MessagePassing) and (names is None or type(conv).__name__ in names):
            for stand_in in known([type(conv)]):
                setattr(conv, stand_in.attribute, Accelerated(stand_in, engine, conv))


def _has_forward(kind: type[MessagePassing]) -> bool:
    return kind.__name__ in convs.table() and kind.__module__.startswith("torch_geometric.")
