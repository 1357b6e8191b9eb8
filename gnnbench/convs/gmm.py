"""GMMConv: out = sum over k of the mean of w_k(e_ij) x_j W_k, plus W x, by gaussians w_k (Monti et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import GMMConv

from gnnbench.convs import _checks, _cost, _edges
from gnnbench.convs._edges import Ends, Rewrites
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm
from gnnbench.ops.stream import Operands, stream

CONV = "GMMConv"
COST, ops = _cost.SUM, _checks.uses("spmm", "segment")
EPS = 1e-15  # as in PyG


def unsupported(conv: GMMConv) -> list[str]:
    separate = ["GMMConv has separate_gaussians=True, which weigh every number"] * bool(conv.separate_gaussians)
    return _checks.common(conv, ("sum", "mean")) + separate


def forward(
    conv: GMMConv, kernels: Kernels, rewrites: Rewrites, x: Ends, graph: Graph, edge_attr: Tensor | None = None
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels], or of a pair, and of edges [E, dim]."""
    if edge_attr is None or edge_attr.dim() != 2 or edge_attr.size(1) != conv.mu.size(1):
        raise UnsupportedOp("GMMConv", ["its edges have no features, or as many as it has no gaussians for"])
    x_src, x_dst = _edges.pair(x)
    (weight,) = stream(
        kernels,
        graph,
        lambda _, shares: (_gaussians(shares.of(0), conv.mu, conv.sigma),),
        Operands([edge_attr, conv.mu, conv.sigma], ["edge", "parameter", "parameter"]),
        edges=max(1, kernels.chunk_bytes // max(1, 4 * conv.mu.nbytes)),
        over_edges=[True],
    )
    h = torch.matmul(x_src, conv.g).view(x_src.size(0), conv.kernel_size, conv.out_channels)
    out = spmm(kernels, graph, h, _edges.in_rows(graph, weight), _checks.reduce_of(conv)).sum(1)
    if x_dst is not None and conv.root is not None:
        out = out + conv.root(x_dst)
    return out if conv.bias is None else out + conv.bias


def _gaussians(edge_attr: Tensor, mu: Tensor, sigma: Tensor) -> Tensor:
    """The weight [E, K] of features [E, D] in every gaussian, of means and deviations [K, D]."""
    squares = -0.5 * (edge_attr.unsqueeze(1) - mu).pow(2) / (EPS + sigma.pow(2))
    return squares.sum(-1).exp()
