"""FastRGCNConv: an RGCNConv that PyG computes edge by edge, with a matrix for each."""

from __future__ import annotations

from torch_geometric.nn import FastRGCNConv

from gnnbench.convs import _checks
from gnnbench.convs.rgcn import COST, forward, ops

__all__ = ["CONV", "COST", "forward", "ops", "unsupported"]

CONV = "FastRGCNConv"


def unsupported(conv: FastRGCNConv) -> list[str]:
    summed = {"add": "sum", "sum": "sum", "mean": "mean"}.get(conv.aggr)
    reasons = _checks.common(conv, ("sum", "mean"))
    return reasons + ["FastRGCNConv has another aggr than its aggregation"] * (summed != _checks.reduction(conv))
