"""GCNConv: out = D^-1/2 (A + I) D^-1/2 x W + b (Kipf & Welling 2017, equation 2)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GCNConv

from gnnbench.convs import _checks, _graph
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm

CONV = "GCNConv"


def unsupported(conv: GCNConv) -> list[str]:
    return _checks.common(conv)


def ops(conv: GCNConv) -> list[str]:
    return ["spmm"]


def rewrites(conv: GCNConv, *, transform_first: bool, fold_norm: bool) -> list[str]:
    """PyG multiplies by the weights first; `aggregate_first` is its opposite, where the input is narrower."""
    narrower = conv.lin.in_channels < conv.lin.out_channels and _checks.is_plain_linear(conv.lin)
    return ["aggregate_first"] * (transform_first and narrower) + ["fold_norm"] * (fold_norm and conv.normalize)


def warm(conv: GCNConv, rewrites: frozenset[str], graph: Graph) -> None:
    """Compute the normalisation of `graph`, and the order that its backward wants edge weights in."""
    dtype = conv.lin.weight.dtype
    if "fold_norm" in rewrites:
        _graph.once(_scale, graph, dtype)
    elif conv.normalize:
        _ = _graph.once(_norm, graph, dtype), graph.perm


def unkept(conv: GCNConv) -> list[str]:
    return [] if _checks.is_plain_linear(conv.lin) else ["GCNConv's linear layer is hooked or was replaced"]


def forward(conv: GCNConv, kernels: Kernels, rewrites: frozenset[str], x: Tensor, graph: Graph) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels]."""
    if "aggregate_first" in rewrites:
        return combine(conv, x, aggregate(conv, kernels, rewrites, x, graph))
    return aggregate(conv, kernels, rewrites, conv.lin(x), graph, conv.bias)


def aggregate(
    conv: GCNConv,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: Tensor,
    graph: Graph,
    bias: Tensor | None = None,
) -> Tensor:
    graph = _graph.adjacency(conv, graph)
    if "fold_norm" in rewrites:
        scale = _graph.once(_scale, graph, x.dtype)
        out = spmm(kernels, graph, x * scale)
        return out * scale if bias is None else torch.addcmul(bias, out, scale)
    out = spmm(kernels, graph, x, _graph.once(_norm, graph, x.dtype) if conv.normalize else None)
    return out if bias is None else out + bias


def combine(conv: GCNConv, x: Tensor, aggregated: Tensor) -> Tensor:
    return F.linear(aggregated, conv.lin.weight, conv.bias)


def _scale(graph: Graph, dtype: torch.dtype) -> Tensor:
    """D^-1/2 as a column [N, 1]."""
    return graph.gcn_scale.to(dtype).unsqueeze(1)


def _norm(graph: Graph, dtype: torch.dtype) -> Tensor:
    """The weight of every edge [E]."""
    scale = graph.gcn_scale
    return (scale[graph.row] * scale[graph.col]).to(dtype)
