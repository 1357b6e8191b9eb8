"""GINConv: out = nn((1 + eps) x + sum of x over neighbours) (Xu et al. 2019, equation 4.1)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Sequential
from torch_geometric.nn import GINConv

from gnnbench.convs import _checks, _cost, _edges
from gnnbench.convs._edges import Ends, Rewrites
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm

CONV = "GINConv"
COST, ops = _cost.SUM, _checks.ops
DROPS_VALUES = True


def unsupported(conv: GINConv) -> list[str]:
    single = isinstance(conv.eps, Tensor) and conv.eps.numel() == 1
    return _checks.common(conv) + ["GINConv has an eps that is not a tensor of one number"] * (not single)


def rewrites(conv: GINConv, *, transform_first: bool, fold_norm: bool) -> list[str]:
    """The sum commutes with the weights of the first layer of `nn`, if that is a linear one."""
    first = conv.nn[0] if _checks.is_untouched(conv.nn, Sequential) and len(conv.nn) else conv.nn
    return ["transform_first"] * (transform_first and _checks.narrows(first))


def cannot_cache_aggregation(conv: GINConv) -> list[str]:
    return []


def multiplies_first(conv: GINConv, rewrites: Rewrites) -> bool:
    return "transform_first" in rewrites


def forward(
    conv: GINConv, kernels: Kernels, rewrites: Rewrites, x: Ends, graph: Graph, edge_weight: Tensor | None = None
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels], or of a pair of sources [M, .] and destinations.

    `edge_weight` are the values of a sparse adjacency, which PyG multiplies messages by.
    """
    x_src, x_dst = _edges.pair(x)
    edge_weight = _edges.weight(graph, edge_weight)
    layers: list[Any] = [*conv.nn] if isinstance(conv.nn, Sequential) else [conv.nn]
    if "transform_first" not in rewrites or layers[0].weight.dtype != x_src.dtype:
        return combine(conv, kernels, x_dst, spmm(kernels, graph, x_src, edge_weight))
    weight, bias = layers[0].weight, layers[0].bias
    x_src, x_dst = _edges.lasting(x_src, x_dst)
    h_src = x_src @ weight.t()
    h_dst = h_src if x_dst is x_src else None if x_dst is None else x_dst @ weight.t()
    out = _with_self(conv, h_dst, spmm(kernels, graph, h_src, edge_weight))
    out = out if bias is None else out + bias
    for layer in layers[1:]:
        out = layer(out)
    return out


def aggregate(conv: GINConv, kernels: Kernels, rewrites: Rewrites, x: Tensor, graph: Graph) -> Tensor:
    return spmm(kernels, graph, x)


def combine(conv: GINConv, kernels: Kernels, x: Tensor | None, aggregated: Tensor) -> Tensor:
    return conv.nn(_with_self(conv, x, aggregated))


def _with_self(conv: GINConv, x: Tensor | None, aggregated: Tensor) -> Tensor:
    if x is None:
        return aggregated
    share = 1 + conv.eps
    promotes = share.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type)
    if promotes or share.requires_grad or share.device.type != "cpu" or torch.compiler.is_compiling():
        return torch.addcmul(aggregated, x, share)
    return torch.add(aggregated, x, alpha=share.item())  # whose backward hands on a gradient times 1 as it is
