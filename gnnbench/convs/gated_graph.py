"""GatedGraphConv: h = GRU(sum of W x_j, h), for each of its layers (Li et al. 2016, equations 3 to 6)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch.nn import GRUCell
from torch_geometric.nn import GatedGraphConv

from gnnbench.convs import _checks, _cost, _edges
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.dense import gru
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm

CONV = "GatedGraphConv"
COST, ops = _cost.SUM, _checks.uses("spmm", "gru")


def unsupported(conv: GatedGraphConv) -> list[str]:
    changed = [] if _checks.is_untouched(conv.rnn, GRUCell) else ["GatedGraphConv's GRU is hooked or was replaced"]
    return _checks.common(conv, ("sum", "mean")) + changed


def forward(
    conv: GatedGraphConv,
    kernels: Kernels,
    rewrites: frozenset[str],
    x: Tensor,
    graph: Graph,
    edge_weight: Tensor | None = None,
) -> Tensor:
    """Output [N, out_channels] of features x [N, at most out_channels]."""
    x = _edges.single(conv, x)
    if x.size(-1) > conv.out_channels or x.dtype != conv.weight.dtype:
        raise UnsupportedOp("GatedGraphConv", ["it has fewer channels than its input, or of another type"])
    weight = _edges.weight(graph, edge_weight)
    x, cell = F.pad(x, (0, conv.out_channels - x.size(-1))), conv.rnn
    for own in conv.weight.unbind():
        # Products commute with sums: that by a layer's own weights becomes part of the cell's.
        read = spmm(kernels, graph, x, weight, _checks.reduce_of(conv))
        x = gru(kernels, read, x, cell.weight_ih @ own.t(), cell.weight_hh, cell.bias_ih, cell.bias_hh)
    return x
