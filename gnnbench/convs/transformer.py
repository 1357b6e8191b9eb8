"""TransformerConv: scaled dot-product attention over edges (Shi et al. 2021, UniMP)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn import TransformerConv

from gnnbench.convs import _checks, _heads
from gnnbench.graph import Graph
from gnnbench.ops.attention import dot_attention
from gnnbench.ops.kernels import Kernels

CONV = "TransformerConv"


def unsupported(conv: TransformerConv) -> list[str]:
    return _checks.common(conv)


def ops(conv: TransformerConv) -> list[str]:
    return ["dot_attention"]


def forward(conv: TransformerConv, kernels: Kernels, rewrites: frozenset[str], x: Tensor, graph: Graph) -> Tensor:
    """Output [N, heads * out_channels] (or [N, out_channels], heads averaged) of features x [N, in_channels]."""
    shape = (-1, conv.heads, conv.out_channels)
    query = conv.lin_query(x).view(shape) * conv.out_channels**-0.5  # on nodes, of which there are fewer
    key, value = conv.lin_key(x).view(shape), conv.lin_value(x).view(shape)
    out = _heads.joined(conv, dot_attention(kernels, graph, query, key, value, _heads.dropout(conv)))
    if not conv.root_weight:
        return out
    root = conv.lin_skip(x)
    if conv.lin_beta is None:
        return out + root
    beta = conv.lin_beta(torch.cat([out, root, out - root], dim=-1)).sigmoid()
    return torch.lerp(out, root, beta)
