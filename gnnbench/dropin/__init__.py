"""Drop-in: a call of an untouched PyG conv runs on our kernels, or, where that is not exact, on PyG's own code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.nn import Module
from torch_geometric import nn
from torch_geometric.nn import MessagePassing

from gnnbench import convs
from gnnbench.adjacency import GraphCache
from gnnbench.convs import _checks
from gnnbench.convs._bound import Accelerated
from gnnbench.convs._graph import is_simple
from gnnbench.dropin import call
from gnnbench.dropin.call import Call, Declined
from gnnbench.dropin.cost import Patience
from gnnbench.dropin.status import TALLY
from gnnbench.errors import GraphError, UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels

MAX_GRAPH_BYTES = 2 << 30


class Engine:
    """Kernels and the Graphs they have met; copies of a model share it.

    Args:
        kernels: who runs convs, at most one for each type of device.
        missing: why there is none for a type of device.
    """

    def __init__(self, kernels: Sequence[Kernels], missing: Mapping[str, str] | None = None) -> None:
        self._made_of = kernels, missing
        self.missing = missing or {}
        self.on = {each.device_type: (each, GraphCache(each, MAX_GRAPH_BYTES)) for each in kernels}
        self.patience = Patience()

    def __reduce__(self) -> tuple[Any, ...]:
        return Engine, self._made_of

    def __deepcopy__(self, memo: dict[int, Any]) -> Engine:
        return self

    def clear(self) -> None:
        """Forget every Graph."""
        for _, graphs in self.on.values():
            graphs.clear()

    def graph(self, conv: Any, asked: Call) -> tuple[Kernels, Graph]:
        """Who runs a call, and its Graph, if that is there or worth building."""
        device = asked.sources.device.type
        if device not in self.on:
            raise Declined(self.missing.get(device, f"no kernels run on {device}"))
        kernels, graphs = self.on[device]
        key = asked.adjacency, asked.num_rows, asked.num_cols
        reverse = conv.flow != "source_to_target"
        graph = graphs.find(*key, reverse=reverse)
        if graph is None:
            if not self.patience.worth(asked.adjacency, asked.num_edges, call.width(conv, asked.sources)):
                raise Declined("its graph is new, and to sort it costs more than this call would save")
            graph = graphs.graph(*key, reverse=reverse)
        return kernels, graph


class Forward:
    """What stands in for the `forward` of a PyG conv class, PyG's own function being `original`."""

    def __init__(self, kind: type[MessagePassing]) -> None:
        self.kind, self.module = kind, convs.table()[kind.__name__]
        self.original = inspect.unwrap(kind.forward)
        self.names = tuple(inspect.signature(self.original).parameters)[1:]
        self.takes = inspect.signature(self.module.forward).parameters.keys()

    def __reduce__(self) -> tuple[Any, ...]:
        return forward_of, (self.kind,)

    def __call__(self, engine: Engine, strict: bool, conv: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            out = self._accelerated(engine, conv, args, kwargs)
        except (Declined, UnsupportedOp, GraphError) as error:
            reason = call.reason(error)
        else:
            TALLY.accelerated(self.kind.__name__)
            return out
        TALLY.declined(self.kind.__name__, reason)
        if strict:
            raise UnsupportedOp(f"{self.kind.__name__} with strict=True", [reason])
        return self.original(conv, *args, **kwargs)

    def _accelerated(self, engine: Engine, conv: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _checks.pyg_class(conv) is not self.kind:
            raise Declined(f"there is no accelerated {_checks.pyg_class(conv).__name__}")
        if reasons := self.module.unsupported(conv):
            raise UnsupportedOp(self.kind.__name__, reasons)
        asked = call.read(conv, self.names, args, kwargs)
        if unknown := asked.options.keys() - self.takes:
            raise Declined(f"its argument {min(unknown)} is not covered")
        sparse = asked.adjacency.layout in call.SPARSE
        if sparse and asked.options:
            raise Declined(f"{min(asked.options)} beside a sparse adjacency")
        if getattr(conv, "cached", False) and conv.normalize:
            asked = self._recalled(conv, asked, sparse)
        kernels, graph = engine.graph(conv, asked)
        options = asked.options
        if sparse and getattr(conv, "add_self_loops", False) and not is_simple(graph):
            raise Declined("a sparse adjacency with loops or repeated edges, which PyG merges with those it adds")
        if sparse and "edge_weight" in self.takes:
            options = {"edge_weight": call.sparse_values(conv, asked.adjacency)}
        rewrites = convs.rewrites(conv, self.module, transform_first=True, fold_norm=True)
        out = self.module.forward(conv, kernels, frozenset(rewrites), asked.x, graph, **options)
        return out if isinstance(out, torch.Tensor) else (out[0], (call.returned_edges(conv, asked), out[1]))

    def _recalled(self, conv: Any, asked: Call, sparse: bool) -> Call:
        """The call on what GCNConv's `cached=True` keeps of its first call."""
        if sparse or not isinstance(asked.x, torch.Tensor):
            raise Declined("cached=True beside a sparse adjacency or a pair of node features")
        edge_index, norm = self.module.recall(conv, asked.x, asked.adjacency, asked.options.get("edge_weight"))
        if norm is None or norm.requires_grad or norm.dtype != asked.x.dtype:
            raise Declined("cached=True keeps weights that need a gradient or are of another type")
        return asked._replace(adjacency=edge_index, options={"norm": norm})


@functools.cache
def forward_of(kind: type[MessagePassing]) -> Forward:
    """The one stand-in for the forward of a PyG class."""
    return Forward(kind)


def replacement(original: Any, run: Callable[..., Any]) -> Any:
    """A function that calls `run` with its arguments, and that torch's compilers take for `original`.

    TorchScript reads the source of `__wrapped__`, and looks up its names among the globals of the function.
    """

    is_compiling = torch.compiler.is_compiling

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if is_compiling() else run(*args, **kwargs)

    with_globals = FunctionType(stand_in.__code__, original.__globals__, closure=stand_in.__closure__)
    return functools.update_wrapper(with_globals, original)


def bind(model: Module, engine: Engine, names: Iterable[str], *, strict: bool = False) -> None:
    """Let `engine` run the convs of one model that are instances of the PyG classes `names`.

    Raises:
        UnsupportedOp: a conv has a forward of its own, with `strict`; then none is bound.
    """
    kinds = tuple(getattr(nn, name) for name in names)
    found: list[tuple[str, Any]] = [
        (path, conv) for path, conv in model.named_modules() if isinstance(conv, kinds)
    ]
    own = {path: type(conv).__name__ for path, conv in found if _checks.has_own_forward(conv)}
    if own and strict:
        raise UnsupportedOp("this model", [f"{path}: {name} overrides forward()" for path, name in own.items()])
    for path, conv in found:
        if path in own:
            TALLY.declined(own[path], "it overrides forward()")
        else:
            conv.forward = Accelerated(forward_of(_checks.pyg_class(conv)), engine, strict, conv)
