"""AGNNConv: attention by cosine similarity, with one trained temperature (Thekumparampil et al. 2018)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import AGNNConv

from gnnbench.convs import _checks, _edges, _heads
from gnnbench.graph import Graph
from gnnbench.ops.attention import attention
from gnnbench.ops.kernels import Kernels

CONV = "AGNNConv"
COST = _heads.COST


def unsupported(conv: AGNNConv) -> list[str]:
    reasons = _checks.common(conv)
    if not isinstance(conv.beta, Tensor) or conv.beta.shape not in ((), (1,)):
        reasons.append("AGNNConv has a beta that is not a tensor of one number")
    return reasons


def ops(conv: AGNNConv) -> list[str]:
    return ["dot_attention"]


def forward(conv: AGNNConv, kernels: Kernels, rewrites: frozenset[str], x: Tensor, graph: Graph) -> Tensor:
    """Output [N, F] of features x [N, F]."""
    value = _edges.single(conv, x).unsqueeze(1)  # one head
    key = F.normalize(value, dim=-1)
    out = attention(kernels, _edges.adjacency(conv, graph), "dot", (conv.beta * key, key, value))
    return _heads.owned(out).squeeze(1)
