"""MFConv: out = W_l sum of x_j + b + W_r x, by weights of each degree (Duvenaud et al. 2015, algorithm 2)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import MFConv

from gnnbench.convs import _checks, _cost, _edges
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.dense import linear
from gnnbench.ops.kernels import REDUCTIONS, Kernels
from gnnbench.ops.spmm import spmm

CONV = "MFConv"
COST, ops = _cost.SUM, _checks.ops


def unsupported(conv: MFConv) -> list[str]:
    plain = _checks.are_plain_linear(*conv.lins_l, *conv.lins_r)
    return _checks.common(conv, REDUCTIONS) + ["MFConv's layers are hooked or were replaced"] * (not plain)


def forward(conv: MFConv, kernels: Kernels, rewrites: frozenset[str], x: _edges.Ends, graph: Graph) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels], or of a pair of sources [M, .] and destinations."""
    x_src, x_dst = _edges.pair(x)
    for features, layer in ((x_src, conv.lins_l[0]), (x_dst, conv.lins_r[0])):
        if features is None or features.size(1) != layer.weight.size(1):
            raise UnsupportedOp("MFConv", ["a side has no features, or as many as it has no weights for"])
    assert x_dst is not None
    h = spmm(kernels, graph, x_src, None, _checks.reduce_of(conv))
    order, back, counts = graph.once(("by degree", conv.max_degree), lambda: _by_degree(graph, conv.max_degree))
    parts = _edges.permuted(torch.cat([h, x_dst], 1), order, lambda: back).split(counts)
    out = torch.cat(
        [
            linear(kernels, part, torch.cat([of_sum.weight, of_own.weight], 1), of_sum.bias)
            for part, of_sum, of_own in zip(parts, conv.lins_l, conv.lins_r, strict=True)
        ]
    )
    return _edges.permuted(out, back, lambda: order)


def _by_degree(graph: Graph, most: int) -> tuple[Tensor, Tensor, list[int]]:
    """The nodes in the order of their degrees, their places there, and how many have each degree up to `most`."""
    degree = graph.degree.clamp(max=most)
    order = degree.argsort(stable=True)
    return order, order.argsort(), degree.bincount(minlength=most + 1).tolist()
