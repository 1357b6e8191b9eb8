"""SAGEConv: out = W_l reduce(x over neighbours) + b + W_r x (Hamilton et al. 2017, algorithm 1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from gnnbench.convs import _checks, _cost, _edges
from gnnbench.convs._edges import Ends, Rewrites
from gnnbench.graph import Graph
from gnnbench.ops.dense import linear, pays
from gnnbench.ops.kernels import REDUCTIONS, Kernels
from gnnbench.ops.spmm import spmm

CONV = "SAGEConv"
COST, ops = _cost.SUM, _checks.ops
DROPS_VALUES = True


def unsupported(conv: SAGEConv) -> list[str]:
    return _checks.common(conv, REDUCTIONS)


def rewrites(conv: SAGEConv, *, transform_first: bool, fold_norm: bool) -> list[str]:
    return ["transform_first"] * (transform_first and _checks.narrows_first(conv, conv.lin_l))


def cannot_cache_aggregation(conv: SAGEConv) -> list[str]:
    return ["SAGEConv aggregates what project=True has it learn"] * _projects(conv)


def multiplies_first(conv: SAGEConv, rewrites: Rewrites) -> bool:
    root = not conv.root_weight or _checks.is_plain_linear(conv.lin_r)
    return "transform_first" in rewrites and root and not _projects(conv)


def forward(
    conv: SAGEConv, kernels: Kernels, rewrites: Rewrites, x: Ends, graph: Graph, edge_weight: Tensor | None = None
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels], or of a pair of sources [M, .] and destinations.

    `edge_weight` are the values of a sparse adjacency, which PyG multiplies messages by.
    """
    x_src, x_dst = _edges.pair(x)
    x_src, weight = _source(conv, x_src), _edges.weight(graph, edge_weight)
    out = _checks.transformed(conv, conv.lin_l, kernels, rewrites, x_src, graph, weight)
    return _finish(conv, kernels, x_dst, out)


def aggregate(conv: SAGEConv, kernels: Kernels, rewrites: Rewrites, x: Tensor, graph: Graph) -> Tensor:
    return spmm(kernels, graph, _source(conv, x), None, _checks.reduce_of(conv))


def combine(conv: SAGEConv, kernels: Kernels, x: Tensor | None, aggregated: Tensor) -> Tensor:
    return _finish(conv, kernels, x, conv.lin_l(aggregated))


def _source(conv: SAGEConv, x: Tensor) -> Tensor:
    return conv.lin(x).relu() if _projects(conv) else x


def _projects(conv: SAGEConv) -> bool:
    return bool(conv.project) and hasattr(conv, "lin")


def _finish(conv: SAGEConv, kernels: Kernels, x: Tensor | None, out: Tensor) -> Tensor:
    if conv.root_weight and x is not None:
        if not _checks.is_plain_linear(conv.lin_r) or conv.lin_r.bias is not None:
            out = out + conv.lin_r(x)
        elif pays(kernels, x, conv.lin_r.weight):
            out = linear(kernels, x, conv.lin_r.weight).add_(out)
        else:
            out = torch.addmm(out, x, conv.lin_r.weight.t())
    return F.normalize(out, dim=-1) if conv.normalize else out
