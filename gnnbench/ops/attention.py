"""Differentiable attention over edges, composed of softmax, sddmm and spmm; nothing but GATv2 is [E, H, C]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.graph import Graph
from gnnbench.ops.edge import edge_softmax, sddmm
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.spmm import spmm


def gat_attention(
    kernels: Kernels,
    graph: Graph,
    x: Tensor,
    score_src: Tensor,
    score_dst: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
) -> Tensor:
    """out[i] = sum over edges (i, j) of softmax_j(leaky_relu(score_dst[i] + score_src[j])) * x[j].

    Veličković et al. 2018, equations 1 to 3, with the score's two halves computed per node.

    Args:
        kernels: who computes the parts.
        graph: N destinations, M sources.
        x: [M, H, C], transformed sources.
        score_src: [M, H], `att_src` times the sources.
        score_dst: [N, H], `att_dst` times the destinations.
        negative_slope: of the leaky ReLU.
        dropout: dropped share of the attention weights.

    Returns:
        [N, H, C], differentiable in all three.
    """
    score = score_src.index_select(0, graph.col) + score_dst.index_select(0, graph.row)
    return _mix(kernels, graph, F.leaky_relu(score, negative_slope), x, dropout)


def gatv2_attention(
    kernels: Kernels,
    graph: Graph,
    x_src: Tensor,
    x_dst: Tensor,
    att: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
) -> Tensor:
    """out[i] = sum over edges (i, j) of softmax_j(<att, leaky_relu(x_dst[i] + x_src[j])>) * x_src[j].

    Brody et al. 2022, equation 7.

    Args:
        kernels: who computes the parts.
        graph: N destinations, M sources.
        x_src: [M, H, C], transformed sources.
        x_dst: [N, H, C], transformed destinations.
        att: [H, C].
        negative_slope: of the leaky ReLU.
        dropout: dropped share of the attention weights.

    Returns:
        [N, H, C], differentiable in x_src, x_dst and att.
    """
    both = x_src.index_select(0, graph.col) + x_dst.index_select(0, graph.row)  # [E, H, C]
    # In place, for the backward of leaky ReLU can also do with its result where that keeps the sign.
    both = F.leaky_relu(both, negative_slope, inplace=negative_slope > 0)
    # One matrix product for all heads; its zeros cost less than a second [E, H, C] or a product per head.
    score = both.flatten(1) @ torch.block_diag(*att.unsqueeze(-1))
    return _mix(kernels, graph, score, x_src, dropout)


def dot_attention(
    kernels: Kernels, graph: Graph, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0
) -> Tensor:
    """out[i] = sum over edges (i, j) of softmax_j(<query[i], key[j]>) * value[j].

    Shi et al. 2021, equations 3 and 4; the caller scales `query`.

    Args:
        kernels: who computes the parts.
        graph: N destinations, M sources.
        query: [N, H, C].
        key: [M, H, C].
        value: [M, H, D].
        dropout: dropped share of the attention weights.

    Returns:
        [N, H, D], differentiable in all three.
    """
    return _mix(kernels, graph, sddmm(kernels, graph, query, key), value, dropout)


def _mix(kernels: Kernels, graph: Graph, score: Tensor, x: Tensor, dropout: float) -> Tensor:
    alpha = F.dropout(edge_softmax(kernels, graph, score), dropout, training=dropout > 0)
    return spmm(kernels, graph, x, alpha)
