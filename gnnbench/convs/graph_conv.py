"""GraphConv: out = W_1 x + W_2 reduce(weight * x over neighbours) + b (Morris et al. 2019, equation 2)."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GraphConv

from gnnbench.convs import _checks, _cost, _edges, _layers
from gnnbench.graph import Graph
from gnnbench.ops.kernels import REDUCTIONS, Kernels
from gnnbench.ops.spmm import spmm

CONV = "GraphConv"
COST, ops = _cost.SUM, _layers.ops


def unsupported(conv: GraphConv) -> list[str]:
    return _checks.common(conv, REDUCTIONS)


def rewrites(conv: GraphConv, *, transform_first: bool, fold_norm: bool) -> list[str]:
    return ["transform_first"] * (transform_first and _layers.narrows_first(conv, conv.lin_rel))


def forward(
    conv: GraphConv,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: _edges.Ends,
    graph: Graph,
    edge_weight: Tensor | None = None,
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels], or of a pair of sources [M, .] and destinations."""
    x_src, x_dst = _edges.pair(x)
    weight = None if edge_weight is None else _edges.weight(graph, edge_weight)
    if "transform_first" in rewrites:
        out = _layers.transformed_first(conv, conv.lin_rel, kernels, x_src, graph, weight)
    else:
        out = conv.lin_rel(spmm(kernels, graph, x_src, weight, _layers.reduce_of(conv)))
    return out if x_dst is None else out + conv.lin_root(x_dst)
