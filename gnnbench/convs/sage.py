"""SAGEConv: out = W_l reduce(x over neighbours) + b + W_r x (Hamilton et al. 2017, algorithm 1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from gnnbench.convs import _checks
from gnnbench.graph import Graph
from gnnbench.ops.kernels import EXTREMA, REDUCTIONS, Kernels
from gnnbench.ops.spmm import spmm

CONV = "SAGEConv"


def unsupported(conv: SAGEConv) -> list[str]:
    return _checks.common(conv, aggr=("add", *REDUCTIONS))


def ops(conv: SAGEConv) -> list[str]:
    return ["spmm_extremum" if conv.aggr in EXTREMA else "spmm"]


def rewrites(conv: SAGEConv, *, transform_first: bool, fold_norm: bool) -> list[str]:
    """Multiplying by the weights commutes with sums and means of neighbours, not with their extrema."""
    narrower = conv.lin_l.out_channels < conv.lin_l.in_channels
    commutes = conv.aggr not in EXTREMA and _checks.is_plain_linear(conv.lin_l)
    return ["transform_first"] * (transform_first and narrower and commutes)


def unkept(conv: SAGEConv) -> list[str]:
    return ["SAGEConv aggregates what project=True has it learn"] * bool(conv.project)


def forward(conv: SAGEConv, kernels: Kernels, rewrites: frozenset[str], x: Tensor, graph: Graph) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels]."""
    if "transform_first" not in rewrites:
        return combine(conv, x, aggregate(conv, kernels, rewrites, x, graph))
    out = spmm(kernels, graph, F.linear(_source(conv, x), conv.lin_l.weight), reduce=_reduce(conv))
    return _finish(conv, x, out if conv.lin_l.bias is None else out + conv.lin_l.bias)


def aggregate(conv: SAGEConv, kernels: Kernels, rewrites: frozenset[str], x: Tensor, graph: Graph) -> Tensor:
    return spmm(kernels, graph, _source(conv, x), reduce=_reduce(conv))


def combine(conv: SAGEConv, x: Tensor, aggregated: Tensor) -> Tensor:
    return _finish(conv, x, conv.lin_l(aggregated))


def _source(conv: SAGEConv, x: Tensor) -> Tensor:
    source: Tensor = conv.lin(x).relu() if conv.project else x
    return source


def _reduce(conv: SAGEConv) -> str:
    return "sum" if conv.aggr == "add" else conv.aggr


def _finish(conv: SAGEConv, x: Tensor, out: Tensor) -> Tensor:
    if conv.root_weight:
        out = torch.addmm(out, x, conv.lin_r.weight.t())
    return F.normalize(out, dim=-1) if conv.normalize else out
