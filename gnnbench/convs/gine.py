"""GINEConv: out = nn((1 + eps) x + sum of relu(x_j + e_ij) over edges) (Hu et al. 2020, equation 2.2)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import GINEConv

from gnnbench.convs import _checks, _cost, _edges, gin
from gnnbench.convs._edges import Ends, Rewrites
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.edge import segment
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.stream import Chunk, Operands, Place, Shares, chunk_length, stream

CONV = "GINEConv"
# Messages have to be written out as in PyG, though not all at once, so that only graphs of some 50,000 edges gain.
COST = _cost.Cost(
    _cost.Rates(110_000, 35, -700_000, 10, 0.1), _cost.Rates(220_000, 50, -1_400_000, 10, 0.1), gathers_input=True
)
unsupported, ops = gin.unsupported, _checks.uses("segment")


def forward(
    conv: GINEConv, kernels: Kernels, rewrites: Rewrites, x: Ends, graph: Graph, edge_attr: Tensor | None = None
) -> Tensor:
    """Output [N, out_channels] of features x [N, in_channels], or of a pair of sources [M, .] and destinations.

    `edge_attr` [E, in_channels], or [E, edge_dim] where the conv has a linear layer for it, is in the order of
    PyG's `edge_index`.
    """
    x_src, x_dst = _edges.pair(x)
    if edge_attr is None:
        raise UnsupportedOp("GINEConv", ["no features of edges"])
    lin = conv.lin if _checks.is_plain_linear(conv.lin) else None
    edge = edge_attr if conv.lin is None or lin is not None else conv.lin(edge_attr)
    width = x_src.size(1)
    if edge.dim() != 2 or (edge.size(1) if lin is None else lin.weight.size(0)) != width:
        raise UnsupportedOp("GINEConv", ["features of edges and nodes have different widths"])

    def summed(chunk: Chunk, shares: Shares) -> tuple[Tensor]:
        share = shares.of(1)
        message = (shares.of(0) + (share if lin is None else lin(share))).relu_()
        wide = message.to(torch.promote_types(message.dtype, torch.float32))
        return (segment(kernels, chunk.rowptr, wide).to(message.dtype),)

    parameters = [] if lin is None else [*lin.parameters()]
    places: list[Place] = ["source", "edge", *["parameter"] * len(parameters)]  # type: ignore[list-item]
    length = chunk_length(kernels, graph, (3 * width + edge.size(1)) * x_src.element_size())
    (out,) = stream(kernels, graph, summed, Operands([x_src, edge, *parameters], places), edges=length)
    return gin.combine(conv, kernels, x_dst, out)
