"""GraphConv: out = W_1 x + W_2 reduce(weight * x over neighbours) + b (Morris et al. 2019, equation 2)."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GraphConv

from gnnbench.convs import _checks, _cost, _edges
from gnnbench.convs._edges import Ends, Rewrites
from gnnbench.graph import Graph
from gnnbench.ops.kernels import REDUCTIONS, Kernels

CONV = "GraphConv"
COST, ops = _cost.SUM, _checks.ops


def unsupported(conv: GraphConv) -> list[str]:
    return _checks.common(conv, REDUCTIONS)


def rewrites(conv: GraphConv, *, transform_first: bool, fold_norm: bool) -> list[str]:
    return ["transform_first"] * (transform_first and _checks.narrows_first(conv, conv.lin_rel))


def forward(
    conv: GraphConv, kernels: Kernels, rewrites: Rewrites, x: Ends, graph: Graph, edge_weight: Tensor | None = None
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels], or of a pair of sources [M, .] and destinations."""
    x_src, x_dst = _edges.pair(x)
    weight = _edges.weight(graph, edge_weight)
    out = _checks.transformed(conv, conv.lin_rel, kernels, rewrites, x_src, graph, weight)
    return out if x_dst is None else out + conv.lin_root(x_dst)
