"""A call of a PyG conv: its arguments by name, the sizes they imply, and when to leave it to PyG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.module import _has_any_global_hook
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch_geometric import EdgeIndex
from torch_geometric.typing import EdgeType, SparseTensor
from torch_geometric.utils import add_self_loops, remove_self_loops

from gnnbench.errors import GnnbenchError, GraphError, UnsupportedOp
from gnnbench.graph.cache import Adjacency, is_sparse, num_edges, values
from gnnbench.messages.arguments import PLAIN

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
MODULE_CALL = Module.__call__


class Declined(GnnbenchError):
    """Leave this call to PyG."""


class Call(NamedTuple):
    """A call over `num_rows` destinations and `num_cols` sources."""

    x: Tensor | tuple[Tensor, Tensor | None]
    adjacency: Adjacency
    num_rows: int
    num_cols: int
    options: dict[str, Any]  # the other arguments, without those that are None

    @property
    def sources(self) -> Tensor:
        """Features of the nodes that send messages."""
        return self.x if isinstance(self.x, Tensor) else self.x[0]


class TypedCall(NamedTuple):
    """A call over nodes and edges of several types."""

    x: dict[str, Tensor]
    calls: dict[EdgeType, Call]  # by relation
    options: dict[str, Any]  # the other arguments


def reason(error: GnnbenchError) -> str:
    """One sentence for the status, without figures that differ from call to call."""
    if isinstance(error, UnsupportedOp):
        return "; ".join(error.reasons)
    return "edge_index does not fit the node features" if isinstance(error, GraphError) else str(error)


def named(names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a function of these parameters by name."""
    options = dict(zip(names, args, strict=False)) | kwargs
    if len(options) != len(args) + len(kwargs) or not options.keys() <= {*names}:
        raise Declined("its arguments do not fit its signature")
    return options


def read(
    conv: Any, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any], *, plain: bool = False
) -> Call:
    """The call of a conv, whose parameters are `names` after `self`; `plain` is what `are_plain` said of `args`.

    Raises:
        Declined: PyG has to run it, or to raise its own error.
    """
    if plain and len(args) == 2 and not kwargs:
        x, edge_index = args
        features = x.layout is torch.strided and x.is_floating_point()
        usual = features and edge_index.dtype is torch.int64 and edge_index.size(0) == 2
        if usual and conv.flow == "source_to_target":
            return Call(x, edge_index, x.size(0), x.size(0), {})
    options = {name: value for name, value in named(names, args, kwargs).items() if value is not None}
    x, adjacency, size = (options.pop(name, None) for name in ("x", "edge_index", "size"))
    sources, destinations = x if isinstance(x, (tuple, list)) and len(x) == 2 else (x, x)
    if why := _wrong_features(sources, destinations) or _wrong_adjacency(conv, adjacency):
        raise Declined(why)
    sparse, num_cols = is_sparse(adjacency), sources.size(0)
    sizes = _sizes(conv, adjacency, size)
    num_rows = next((rows for _, rows in sizes if rows is not None), num_cols)
    num_rows = num_rows if destinations is None else destinations.size(0)
    if any(cols not in (None, num_cols) or rows not in (None, num_rows) for cols, rows in sizes):
        raise Declined("the sizes of node features and adjacency differ")
    if conv.flow != "source_to_target" and (sparse or destinations is not sources):
        raise Declined("flow='target_to_source' beside a sparse adjacency or a pair of node features")
    pair = isinstance(x, (tuple, list))
    asked = Call((sources, destinations) if pair else sources, adjacency, num_rows, num_cols, options)
    for name in options.keys() & {"edge_weight", "edge_attr"}:
        if sparse or not _over_edges(options[name], asked):
            raise Declined(f"{name} is not a dense tensor over the entries of edge_index, of the same type as x")
    return asked


def read_typed(conv: Any, names: Sequence[str], args: Sequence[Any], kwargs: dict[str, Any]) -> TypedCall:
    """The call of a conv that is given features and edges by type.

    Raises:
        Declined: PyG has to run it, or to raise its own error.
    """
    options = named(names, args, kwargs)
    x, edges = (options.pop(name, None) for name in names[:2])
    if not isinstance(x, dict) or not isinstance(edges, dict) or not edges:
        raise Declined("features and edges are not given by type")
    if conv.flow != "source_to_target":
        raise Declined("flow='target_to_source' beside features by type")
    first = next(iter(x.values()), None)
    if why := next(filter(None, (_wrong_features(first, each) for each in x.values())), None):
        raise Declined(why)
    calls = {}
    for relation, adjacency in edges.items():
        if not {relation[0], relation[-1]} <= x.keys():
            raise Declined("edges of a type without features")
        if isinstance(adjacency, SparseTensor):
            raise Declined("a SparseTensor beside features by type")
        if why := _wrong_adjacency(conv, adjacency):
            raise Declined(why)
        sources, destinations = x[relation[0]], x[relation[-1]]
        if is_sparse(adjacency) and adjacency.shape != (len(destinations), len(sources)):
            raise Declined("the sizes of node features and adjacency differ")
        calls[relation] = Call(sources, adjacency, len(destinations), len(sources), {})
    return TypedCall(x, calls, options)


def _sizes(conv: Any, adjacency: Adjacency, size: Any) -> list[tuple[int | None, int | None]]:
    """The numbers of (sources, destinations) that a call gives, None where the features decide."""
    sizes = []
    if size is not None:
        if not isinstance(size, (tuple, list)) or len(size) != 2:
            raise Declined("size is not a pair")
        if None in size and getattr(conv, "add_self_loops", False):
            raise Declined("self-loops beside a size that is not known")
        sizes.append((size[0], size[1]))
    if is_sparse(adjacency):
        sizes.append((adjacency.size(1), adjacency.size(0)))
    elif isinstance(adjacency, EdgeIndex):
        sizes.append(adjacency.sparse_size())
    return sizes


def are_plain(x: Any = None, edge_index: Any = None, *_: Any) -> bool:
    """Return whether a conv is given a matrix of features and an `edge_index`, as most often."""
    if type(x) not in PLAIN or type(edge_index) is not Tensor:
        return False
    return x.dim() == 2 == edge_index.dim() and edge_index.layout is torch.strided


def returned_edges(conv: Any, asked: Call) -> Tensor:
    """Return what PyG returns beside attention weights: `edge_index`, with the loops that the conv adds."""
    edge_index = asked.adjacency
    if getattr(conv, "add_self_loops", False):
        edge_index, _ = remove_self_loops(edge_index)
        edge_index, _ = add_self_loops(edge_index, num_nodes=min(asked.num_rows, asked.num_cols))
    return edge_index


def sparse_weight(conv: Any, adjacency: Adjacency) -> Tensor | None:
    """The weights in a sparse adjacency; None if all are one, and those of added loops too."""
    weight, improved = values(adjacency), getattr(conv, "improved", False)
    if weight is None and improved:
        return adjacency.storage.col().new_ones(num_edges(adjacency), dtype=conv.lin.weight.dtype)
    return None if weight is None or (not improved and bool((weight == 1).all())) else weight


def check_unwatched() -> None:
    """Raise Declined where hooks on all modules would miss what our forwards skip, or our ops cannot run."""
    if _has_any_global_hook() or Module.__call__ is not MODULE_CALL:
        raise Declined("hooks on the calls of all modules")
    check_surroundings()


def check_surroundings() -> None:
    """Raise Declined where our ops cannot run."""
    if why := surroundings():
        raise Declined(why)


def surroundings() -> str | None:
    """The surroundings of the call in which our ops cannot run; None if they can."""
    if torch.jit.is_tracing():
        return "torch.jit is tracing"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func is running"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation is on"
    if torch._C._len_torch_function_stack() and not all(
        isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack()
    ):
        return "a torch function mode is active"
    return "a torch dispatch mode is active" if torch._C._len_torch_dispatch_stack() else None


def wrong_matrix(matrix: Any) -> str | None:
    """Why a sparse matrix cannot be a Graph with values; None if it can."""
    if type(matrix) is SparseTensor:
        value = values(matrix)
    elif type(matrix) is not Tensor or matrix.layout not in SPARSE:
        return f"the adjacency is of type {type(matrix).__name__}"
    elif matrix.layout == torch.sparse_coo and not matrix.is_coalesced():
        return "a sparse adjacency that is not coalesced"
    elif matrix.dim() != 2:
        return "a sparse adjacency that is no matrix"
    else:
        value = values(matrix)
    if value is not None and value.dim() != 1:
        return "a sparse adjacency whose entries are not numbers"
    gradient = matrix.requires_grad if isinstance(matrix, Tensor) else value is not None and value.requires_grad
    return "a sparse adjacency that requires a gradient" if gradient else None


def _wrong_features(sources: Any, destinations: Any) -> str | None:
    features = [sources] if destinations is None or destinations is sources else [sources, destinations]
    if any(type(x) not in PLAIN or x.layout != torch.strided or x.dim() != 2 for x in features):
        return "node features are not plain matrices"
    if not all(_fits(x, sources) for x in features):
        return "node features are not of one floating-point type on one device"
    return None


def _wrong_adjacency(conv: Any, adjacency: Any) -> str | None:
    if isinstance(adjacency, EdgeIndex) and conv.SUPPORTS_FUSED_EDGE_INDEX and adjacency.is_sorted_by_col:
        return "PyG has a product of its own for a sorted EdgeIndex"
    if type(adjacency) is EdgeIndex or (type(adjacency) is Tensor and not is_sparse(adjacency)):
        fits = adjacency.dtype == torch.int64 and adjacency.dim() == 2 and adjacency.size(0) == 2
        return None if fits else "edge_index is not a tensor [2, E] of 64-bit integers"
    if why := wrong_matrix(adjacency):
        return why
    if isinstance(adjacency, SparseTensor):
        features = hasattr(conv, "lin_edge") and values(adjacency) is not None
        return "a SparseTensor whose values are edge features" if features else None
    if adjacency.layout == torch.sparse_csc and (hasattr(conv, "add_self_loops") or not conv.fuse):
        return "PyG does not take CSC here"
    return None


def _over_edges(value: Any, asked: Call) -> bool:
    if type(value) not in PLAIN or value.layout != torch.strided or value.dim() not in (1, 2):
        return False
    return value.size(0) == num_edges(asked.adjacency) and _fits(value, asked.sources)


def _fits(value: Tensor, x: Tensor) -> bool:
    """Return whether a tensor is floating point and on x's device, of its type but under autocast."""
    same = value.dtype == x.dtype or (value.is_floating_point() and torch.is_autocast_enabled(x.device.type))
    return x.is_floating_point() and same and value.device == x.device


def draws(conv: Any) -> bool:
    """Return whether a conv drops some of what it computes, other numbers than PyG by the same seed."""
    return getattr(conv, "training", False) and _drops(conv)


def _drops(module: Any) -> bool:
    """Return whether dropout is in a module; walking `modules()` would take four times as long."""
    if module is None:
        return False
    own = vars(module)
    if isinstance(module, _DropoutNd) or own.get("dropout") or getattr(type(module), "dropout", None):
        return True
    children = own["_modules"]
    return "dropout" in children or any(map(_drops, children.values()))


def repeated(conv: Any = None) -> bool:
    """Return whether a call may be the first or second run of a forward, both of which must run the same code.

    A checkpoint with `use_reentrant=False` puts hooks on saved tensors in both runs, and compares these tensors.
    With True, as in PyG's reversible layers, the first run is without gradient, and only draws have to agree.
    """
    if torch._C._current_graph_task_id() != -1:  # in backward
        return True
    if torch.is_grad_enabled():
        return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    return not torch.is_inference_mode_enabled() and draws(conv)
