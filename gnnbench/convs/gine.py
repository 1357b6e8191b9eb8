"""GINEConv: out = nn((1 + eps) x + sum of relu(x_j + e_ij) over edges) (Hu et al. 2020, equation 2.2)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GINEConv

from gnnbench.convs import _cost, _edges, _graph, gin
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm

CONV = "GINEConv"
# Messages have to be written out here as in PyG, so that only graphs of some 50,000 edges gain.
COST = _cost.Cost(
    _cost.Rates(110_000, 35, -700_000, 10, 0.1), _cost.Rates(220_000, 50, -1_400_000, 10, 0.1), gathers_input=True
)


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
    message = _Gather.apply(x_src, graph, kernels) + _edges.in_rows(graph, edge)
    return gin.combine(conv, x_dst, _Sum.apply(message.relu_(), graph, kernels))


class _Gather(torch.autograd.Function):
    """Sources of edges, in the order of rows; its gradient is the sum over the edges of each source."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, graph: Graph, kernels: Kernels) -> Tensor:
        ctx.how = graph, kernels
        return x.index_select(0, graph.col)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        graph, kernels = ctx.how
        grad = grad.to(kernels.computes_in(grad.dtype))  # autocast of the forward has ended
        return spmm(kernels, _graph.edges_by_source(graph), grad), None, None


class _Sum(torch.autograd.Function):
    """The sum over the edges of each row; its gradient is a gather."""

    @staticmethod
    def forward(ctx: Any, message: Tensor, graph: Graph, kernels: Kernels) -> Tensor:
        ctx.row = graph.row
        return spmm(kernels, _graph.edges_as_columns(graph), message)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad.index_select(0, ctx.row), None, None
