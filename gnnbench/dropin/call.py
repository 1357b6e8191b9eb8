"""What a program asks of a PyG conv: its arguments by name, the sizes they imply, and when to leave it to PyG."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric import EdgeIndex
from torch_geometric.utils import add_self_loops, remove_self_loops

from gnnbench.errors import GnnbenchError, GraphError, UnsupportedOp

SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
PLAIN = (Tensor, Parameter)


class Declined(GnnbenchError):
    """This call is left to PyG."""


class Call(NamedTuple):
    """A call over `num_rows` destinations and `num_cols` sources."""

    x: Tensor | tuple[Tensor, Tensor | None]
    adjacency: Tensor
    num_rows: int
    num_cols: int
    options: dict[str, Any]  # the other arguments, without those that are None

    @property
    def sources(self) -> Tensor:
        """Features of the nodes that send messages."""
        return self.x if isinstance(self.x, Tensor) else self.x[0]

    @property
    def num_edges(self) -> int:
        return self.adjacency._nnz() if self.adjacency.layout in SPARSE else self.adjacency.size(1)


def reason(error: GnnbenchError) -> str:
    """One sentence for the status, without figures that differ from call to call."""
    if isinstance(error, UnsupportedOp):
        return "; ".join(error.reasons)
    return "edge_index does not fit the node features" if isinstance(error, GraphError) else str(error)


def read(conv: Any, names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """The call of a conv, whose parameters are `names` after `self`.

    Raises:
        Declined: PyG has to run it, or to raise its own error.
    """
    options = dict(zip(names, args, strict=False)) | kwargs
    if len(options) != len(args) + len(kwargs) or not options.keys() <= {*names}:
        raise Declined("its arguments do not fit its signature")
    options = {name: value for name, value in options.items() if value is not None}
    x, adjacency, size = (options.pop(name, None) for name in ("x", "edge_index", "size"))
    sources, destinations = x if isinstance(x, (tuple, list)) and len(x) == 2 else (x, x)
    if why := _surroundings() or _wrong_features(sources, destinations) or _wrong_adjacency(conv, adjacency):
        raise Declined(why)
    asked_sizes = [tuple(size)] if size is not None else []
    if adjacency.layout in SPARSE:
        asked_sizes.append((adjacency.size(1), adjacency.size(0)))
    elif isinstance(adjacency, EdgeIndex) and adjacency.sparse_size() != (None, None):
        asked_sizes.append(adjacency.sparse_size())
    num_cols = sources.size(0)
    num_rows = num_cols if not asked_sizes else asked_sizes[0][1]
    num_rows = num_rows if destinations is None else destinations.size(0)
    if any(asked != (num_cols, num_rows) for asked in asked_sizes):
        raise Declined("the sizes of node features and adjacency differ")
    if conv.flow != "source_to_target" and (adjacency.layout in SPARSE or destinations is not sources):
        raise Declined("flow='target_to_source' beside a sparse adjacency or a pair of node features")
    asked = Call(
        sources if destinations is sources else (sources, destinations), adjacency, num_rows, num_cols, options
    )
    for name in options.keys() & {"edge_weight", "edge_attr"}:
        if adjacency.layout in SPARSE or not _over_edges(options[name], asked):
            raise Declined(f"{name} is not a dense tensor over the entries of edge_index, of the same type as x")
    return asked


def width(conv: Any, x: Tensor) -> int:
    """The fewest channels that PyG could gather for each edge."""
    return min(x.size(1), getattr(conv, "heads", 1) * getattr(conv, "out_channels", x.size(1)))


def returned_edges(conv: Any, asked: Call) -> Tensor:
    """What PyG returns beside attention weights: `edge_index`, with the loops that the conv adds."""
    edge_index = asked.adjacency
    if getattr(conv, "add_self_loops", False):
        edge_index, _ = remove_self_loops(edge_index)
        edge_index, _ = add_self_loops(edge_index, num_nodes=min(asked.num_rows, asked.num_cols))
    return edge_index


def sparse_values(conv: Any, adjacency: Tensor) -> Tensor | None:
    """The weights in a sparse adjacency; None if all are one, and those of added loops too."""
    values = adjacency._values() if adjacency.layout == torch.sparse_coo else adjacency.values()
    return None if not getattr(conv, "improved", False) and bool((values == 1).all()) else values


def _surroundings() -> str | None:
    """What is going on around the call that our ops could not take part in."""
    if torch.jit.is_tracing():
        return "torch.jit is tracing"
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return "autocast is on"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func is running"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation is on"
    return "a torch dispatch mode is active" if torch._C._len_torch_dispatch_stack() else None


def _wrong_features(sources: Any, destinations: Any) -> str | None:
    both = [sources] if destinations is None or destinations is sources else [sources, destinations]
    if any(type(x) not in PLAIN or x.layout != torch.strided or x.dim() != 2 for x in both):
        return "node features are not plain matrices"
    if not sources.is_floating_point() or any(
        x.dtype != sources.dtype or x.device != sources.device for x in both
    ):
        return "node features are not of one floating-point type on one device"
    return None


def _wrong_adjacency(conv: Any, adjacency: Any) -> str | None:
    if type(adjacency) is not Tensor and type(adjacency) is not EdgeIndex:
        return f"the adjacency is of type {type(adjacency).__name__}"
    if isinstance(adjacency, EdgeIndex) and conv.SUPPORTS_FUSED_EDGE_INDEX and adjacency.is_sorted_by_col:
        return "PyG has a product of its own for a sorted EdgeIndex"
    if adjacency.layout not in SPARSE:
        fits = adjacency.dtype == torch.int64 and adjacency.dim() == 2 and adjacency.size(0) == 2
        return None if fits else "edge_index is not a tensor [2, E] of 64-bit integers"
    if adjacency.dim() != 2 or adjacency.dense_dim():
        return "a sparse adjacency whose entries are not numbers"
    if adjacency.requires_grad:
        return "a sparse adjacency that requires a gradient"
    if adjacency.layout == torch.sparse_coo and not adjacency.is_coalesced():
        return "a sparse adjacency that is not coalesced"
    if adjacency.layout == torch.sparse_csc and (hasattr(conv, "add_self_loops") or not conv.fuse):
        return "PyG does not take CSC here"
    return None


def _over_edges(value: Any, asked: Call) -> bool:
    x = asked.sources
    return (
        type(value) in PLAIN
        and value.layout == torch.strided
        and value.dim() in (1, 2)
        and value.size(0) == asked.num_edges
        and (value.dtype, value.device) == (x.dtype, x.device)
    )
