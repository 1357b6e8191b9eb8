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
COST, ops = _heads.COST, _checks.uses("dot_attention")


def unsupported(conv: AGNNConv) -> list[str]:
    single = isinstance(conv.beta, Tensor) and conv.beta.shape in ((), (1,))
    return _checks.common(conv) + ["AGNNConv has a beta that is not a tensor of one number"] * (not single)


def forward(conv: AGNNConv, kernels: Kernels, rewrites: frozenset[str], x: Tensor, graph: Graph) -> Tensor:
    """Output [N, F] of features x [N, F]."""
    value = _edges.single(conv, x).unsqueeze(1)  # one head
    key = F.normalize(value, dim=-1)
    out = attention(kernels, _edges.adjacency(conv, graph), "dot", (conv.beta * key, key, value))
    return _heads.owned(out).squeeze(1)
