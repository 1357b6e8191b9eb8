"""GINEConv: out = nn((1 + eps) x + sum of relu(x_j + e_ij) over edges) (Hu et al. 2020, equation 2.2)."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import GINEConv

from gnnbench.convs import _cost, _edges, _graph, gin
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm

CONV = "GINEConv"
COST = _cost.SUM


def unsupported(conv: GINEConv) -> list[str]:
    return gin.unsupported(conv)


def ops(conv: GINEConv) -> list[str]:
    return ["spmm"]


def forward(
    conv: GINEConv,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: Tensor | tuple[Tensor, Tensor | None],
    graph: Graph,
    edge_attr: Tensor | None = None,
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels], or of a pair of sources [M, .] and destinations.

    `edge_attr` [E, in_channels], or [E, edge_dim] where the conv has a linear layer for it, is in the order of
    PyG's `edge_index`.
    """
    x_src, x_dst = _edges.pair(x)
    if edge_attr is None:
        raise UnsupportedOp("GINEConv", ["no features of edges"])
    edge = edge_attr if conv.lin is None else conv.lin(edge_attr)
    if edge.dim() != 2 or edge.size(1) != x_src.size(1):
        raise UnsupportedOp("GINEConv", ["features of edges and nodes have different widths"])
    message = spmm(kernels, _graph.sources_of_edges(graph), x_src) + _edges.in_rows(graph, edge)
    return gin.combine(conv, x_dst, spmm(kernels, _graph.edges_as_columns(graph), message.relu_()))
