"""FastRGCNConv: an RGCNConv that PyG computes edge by edge, with a matrix for each."""

from __future__ import annotations

from torch_geometric.nn import FastRGCNConv

from gnnbench.convs import _layers, rgcn
from gnnbench.convs.rgcn import COST, ops
from gnnbench.convs.rgcn import summed as forward

__all__ = ["CONV", "COST", "forward", "ops", "unsupported"]

CONV = "FastRGCNConv"


def unsupported(conv: FastRGCNConv) -> list[str]:
    summed = {"add": "sum", "sum": "sum", "mean": "mean"}.get(conv.aggr)
    reasons = rgcn._checks.common(conv, ("sum", "mean"))
    return reasons + ["FastRGCNConv has another aggr than its aggregation"] * (summed != _layers.reduction(conv))
