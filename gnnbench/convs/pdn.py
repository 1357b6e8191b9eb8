"""PDNConv: GCN's sum, weighted by a network over the features of edges (Rozemberczki et al. 2021, equation 2)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Linear, ReLU, Sequential, Sigmoid
from torch_geometric.nn import PDNConv

from gnnbench.convs import _checks, gcn
from gnnbench.convs._edges import Rewrites
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.dense import perceptron
from gnnbench.ops.kernels import Kernels

CONV = "PDNConv"
COST, warm, ops = gcn.COST, gcn.warm, _checks.uses("spmm", "perceptron")


def unsupported(conv: PDNConv) -> list[str]:
    kinds = Linear, ReLU, Linear, Sigmoid
    plain = _checks.is_untouched(conv.mlp, Sequential) and len(conv.mlp) == len(kinds)
    plain = plain and all(map(_checks.is_untouched, conv.mlp, kinds))
    return gcn.unsupported(conv) + ["PDNConv's network is hooked or was replaced"] * (not plain)


def forward(
    conv: PDNConv, kernels: Kernels, rewrites: Rewrites, x: Tensor, graph: Graph, edge_attr: Tensor | None = None
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels] and of edges [E, edge_dim]."""
    if edge_attr is None:
        return gcn.forward(conv, kernels, rewrites, x, graph)
    hidden, _, last, _ = conv.mlp
    if edge_attr.dim() != 2 or edge_attr.size(1) != hidden.weight.size(1):
        raise UnsupportedOp("PDNConv", [f"features of edges have shape {list(edge_attr.shape)}"])
    weights = torch.cat([hidden.weight.t(), hidden.bias.unsqueeze(0), last.weight])
    weight = (perceptron(kernels, edge_attr, weights) + last.bias).sigmoid()
    return gcn.forward(conv, kernels, rewrites, x, graph, weight)
