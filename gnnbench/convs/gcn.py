"""GCNConv: out = D^-1/2 (A + I) D^-1/2 x W + b (Kipf & Welling 2017, equation 2)."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gnnbench.convs import _checks, _edges
from gnnbench.convs._cost import Cost, Rates
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.graph.cache import Adjacency, is_sparse, stamp
from gnnbench.ops.dense import linear
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm, spmm_scaled

CONV = "GCNConv"
COST = Cost(Rates(250_000, 55, 20_000, 50, 1.6), Rates(380_000, 70, 50_000, 125, 1.25))
ops = _checks.ops


def unsupported(conv: GCNConv) -> list[str]:
    reasons = _checks.common(conv)
    lin = conv.lin
    if not isinstance(getattr(lin, "weight", None), Tensor):
        reasons.append(f"GCNConv has lin={lin}, which has no weights of its own")
    return reasons


def rewrites(conv: GCNConv, *, transform_first: bool, fold_norm: bool) -> list[str]:
    """PyG multiplies by the weights first; `aggregate_first` is its opposite, where the input is narrower."""
    outputs, inputs = conv.lin.weight.shape
    aggregate_first = transform_first and outputs > inputs and _commutes(conv)
    return ["aggregate_first"] * aggregate_first + ["fold_norm"] * (fold_norm and bool(conv.normalize))


def warm(conv: GCNConv, rewrites: frozenset[str], graph: Graph) -> None:
    """Compute the normalisation of `graph`, and the order that its backward wants edge weights in."""
    dtype = conv.lin.weight.dtype
    if "fold_norm" in rewrites:
        _edges.once(_scales, graph, dtype)
    elif conv.normalize:
        _ = _edges.once(_norm, graph, dtype), graph.perm


def cannot_cache_aggregation(conv: GCNConv) -> list[str]:
    return [] if _commutes(conv) else ["GCNConv's linear layer is hooked or was replaced"]


def multiplies_first(conv: GCNConv, rewrites: frozenset[str]) -> bool:
    return "aggregate_first" not in rewrites and _checks.is_plain_linear(conv.lin)


def recall(
    conv: GCNConv, x: Any, adjacency: Adjacency, edge_weight: Tensor | None = None
) -> tuple[Tensor, dict[str, Tensor]] | None:
    """The normalised adjacency that a conv with `cached=True` keeps of its first call, as PyG keeps it."""
    # PyG goes on using what it kept after `cached` was set to False.
    kept = bool(conv.cached) or conv._cached_edge_index is not None or conv._cached_adj_t is not None
    if not conv.normalize or not kept:
        return None
    if is_sparse(adjacency) or not isinstance(x, Tensor):
        raise UnsupportedOp("GCNConv", ["cached=True beside a sparse adjacency or a pair of node features"])
    if conv._cached_edge_index is None:
        how = conv.improved, conv.add_self_loops, conv.flow, x.dtype
        conv._cached_edge_index = gcn_norm(adjacency, edge_weight, x.size(0), *how)
    edge_index, norm = conv._cached_edge_index
    if norm is None or norm.dim() != 1 or norm.requires_grad or norm.dtype != x.dtype:
        reason = "cached=True keeps weights that need a gradient, or are of another type or shape"
        raise UnsupportedOp("GCNConv", [reason])
    return edge_index, {"norm": norm}


def forward(
    conv: GCNConv,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: Tensor,
    graph: Graph,
    edge_weight: Tensor | None = None,
    norm: Tensor | None = None,
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels].

    `norm` [E] stands for the normalisation where `graph` is what `recall` gave, and has its loops already.
    """
    x = _edges.single(conv, x)
    if norm is not None and not _is_plain(graph, norm):
        out = spmm(kernels, graph, conv.lin(x), _edges.in_rows(graph, norm))
    elif edge_weight is not None:
        out = _weighted(conv, kernels, conv.lin(x), graph, _edges.vector(edge_weight))
    elif "aggregate_first" in rewrites:
        return combine(conv, kernels, x, aggregate(conv, kernels, rewrites, x, graph))
    else:
        return aggregate(conv, kernels, rewrites, _checks.multiplied(conv.lin, kernels, x), graph, conv.bias)
    return out if conv.bias is None else out + conv.bias


def aggregate(
    conv: GCNConv, kernels: Kernels, rewrites: frozenset[str], x: Tensor, graph: Graph, bias: Tensor | None = None
) -> Tensor:
    graph, dtype = _edges.adjacency(conv, graph), conv.lin.weight.dtype  # as PyG's, which autocast leaves alone
    if "fold_norm" in rewrites:
        return spmm_scaled(kernels, graph, x, *_edges.once(_scales, graph, dtype), bias)
    out = spmm(kernels, graph, x, _edges.once(_norm, graph, dtype) if conv.normalize else None)
    return out if bias is None else out + bias


def _weighted(conv: GCNConv, kernels: Kernels, x: Tensor, graph: Graph, edge_weight: Tensor) -> Tensor:
    """Aggregate with given weights, in which it is differentiable, through the degrees too."""
    if _edges.adds_self_loops(conv):
        weight = _edges.with_remaining_loops(graph, edge_weight, 2.0 if getattr(conv, "improved", False) else 1.0)
        graph = graph.with_self_loops
    else:
        weight = _edges.in_rows(graph, edge_weight)
    if conv.normalize:
        scale = spmm(kernels, graph, x.new_ones(x.size(0), 1), weight).pow(-0.5)
        scale = scale.masked_fill(scale == torch.inf, 0.0)
        return spmm(kernels, graph, x * scale, weight) * scale
    return spmm(kernels, graph, x, weight)


def _is_plain(graph: Graph, norm: Tensor) -> bool:
    """Return whether these weights are the normalisation of `graph` but for rounding; asked once and kept."""
    kept, state = graph.cache.get("plain norm"), stamp(norm)
    if kept is None or state is None or kept[0]() is not norm or kept[1] != state:
        rounding = 8 * torch.finfo(norm.dtype).eps
        plain = torch.allclose(_edges.in_rows(graph, norm), _norm(graph, norm.dtype), rtol=rounding, atol=0.0)
        kept = graph.cache["plain norm"] = weakref.ref(norm), state, plain and not norm.requires_grad
    return kept[2]


def _commutes(conv: GCNConv) -> bool:
    """Return whether the weights can be applied after aggregation; a bias would be aggregated, too."""
    return _checks.is_plain_linear(conv.lin) and conv.lin.bias is None


def combine(conv: GCNConv, kernels: Kernels, x: Tensor, aggregated: Tensor) -> Tensor:
    if x.dtype != aggregated.dtype and not torch.is_autocast_enabled(x.device.type):
        F.linear(x, conv.lin.weight)  # raises what PyG would, whose features meet weights of another type first
    return linear(kernels, aggregated, conv.lin.weight, conv.bias)


def _scales(graph: Graph, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """D^-1/2 of sources [M, 1] and of destinations [N, 1]."""
    scale = graph.gcn_scale.to(dtype).unsqueeze(1)
    of_source = graph.gcn_scale_of_sources
    return scale if of_source is graph.gcn_scale else of_source.to(dtype).unsqueeze(1), scale


def _norm(graph: Graph, dtype: torch.dtype) -> Tensor:
    """The weight of every edge [E]."""
    return (graph.gcn_scale[graph.row] * graph.gcn_scale_of_sources[graph.col]).to(dtype)
