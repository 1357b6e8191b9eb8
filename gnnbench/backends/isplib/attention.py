"""Fused attention, by `cython_kernels/attention.pyx`: nothing is kept per edge, and backward computes it again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.backends.isplib._compiled import addresses
from gnnbench.backends.isplib.edge_choices import EdgeChoices
from gnnbench.graph import Graph
from gnnbench.ops.dropout import Dropout


class AttentionKernels(EdgeChoices):
    """GAT, GATv2 and dot attention, forward and backward."""

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        reasons = super().unsupported(op, graph, *tensors)
        if op.endswith("_attention") and not all(tensor is None or all(tensor.shape[1:]) for tensor in tensors):
            reasons.append("a tensor has no heads or no channels; isplib needs at least one of each")
        return reasons

    def gat_attention(
        self,
        graph: Graph,
        x: Tensor,
        score_src: Tensor,
        score_dst: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
        keep: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        query, key, value = score_dst.contiguous(), score_src.contiguous(), x.contiguous()
        out, lse = _outputs(graph, value)
        out_positive, alpha_positive = (
            (torch.empty_like(out), torch.empty_like(lse)) if keep else (out.new_empty(0), lse.new_empty(0))
        )
        call = self._call(_compiled.attention.GAT, query, key, value, None, negative_slope, dropout)
        kept = (out_positive, alpha_positive) if keep else (None, None)
        where = addresses(graph.rowptr, graph.col, out, lse, *kept)
        call.forward(*where, graph.num_rows, *self._walk("gat_attention", graph, value))
        return out, lse, out_positive, alpha_positive

    def gat_attention_backward(
        self,
        graph: Graph,
        x: Tensor,
        score_src: Tensor,
        score_dst: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
        out: Tensor,
        lse: Tensor,
        out_positive: Tensor,
        alpha_positive: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = score_dst.contiguous(), score_src.contiguous(), x.contiguous()
        call = self._call(_compiled.attention.GAT, query, key, value, None, negative_slope, dropout)
        delta = (grad_out * out).sum(-1)
        op = "gat_attention_backward"
        grad_key, grad_value = self._grad_key(op, call, graph, key, value, lse, delta, dropout, grad_out)
        # leaky_relu' is slope, and 1 - slope more on positive scores; a row's gradients of scores add up to 0.
        positive = (grad_out * out_positive).sum(-1)
        return grad_value, grad_key, (positive - delta * alpha_positive) * (1 - negative_slope)

    def gatv2_attention(
        self,
        graph: Graph,
        x_src: Tensor,
        x_dst: Tensor,
        att: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
    ) -> tuple[Tensor, Tensor]:
        x_src, x_dst, att = x_src.contiguous(), x_dst.contiguous(), att.contiguous()
        call = self._call(_compiled.attention.GATV2, x_dst, x_src, x_src, att, negative_slope, dropout)
        out, lse = _outputs(graph, x_src)
        where = addresses(graph.rowptr, graph.col, out, lse, None, None)
        call.forward(*where, graph.num_rows, *self._walk("gatv2_attention", graph, x_src))
        return out, lse

    def gatv2_attention_backward(
        self,
        graph: Graph,
        x_src: Tensor,
        x_dst: Tensor,
        att: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x_src, x_dst, att = x_src.contiguous(), x_dst.contiguous(), att.contiguous()
        call = self._call(_compiled.attention.GATV2, x_dst, x_src, x_src, att, negative_slope, dropout)
        op, delta = "gatv2_attention_backward", (grad_out * out).sum(-1)
        grad_dst = self._grad_query(op, call, graph, x_dst, lse, delta, grad_out)
        grad_src, grad_x_src = self._grad_key(op, call, graph, x_src, x_src, lse, delta, dropout, grad_out)
        # leaky_relu(u) = leaky_relu'(u) * u, and so att's gradient is found in those of both ends.
        grad_att = (x_src * grad_src).sum(0) + (x_dst * grad_dst).sum(0)
        return grad_x_src.addcmul_(grad_src, att), grad_dst * att, grad_att

    def dot_attention(
        self, graph: Graph, query: Tensor, key: Tensor, value: Tensor, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        call = self._call(_compiled.attention.DOT, query, key, value, None, 1.0, dropout)
        out, lse = _outputs(graph, value)
        where = addresses(graph.rowptr, graph.col, out, lse, None, None)
        call.forward(*where, graph.num_rows, *self._walk("dot_attention", graph, value))
        return out, lse

    def dot_attention_backward(
        self,
        graph: Graph,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout: Dropout | None,
        out: Tensor,
        lse: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        call = self._call(_compiled.attention.DOT, query, key, value, None, 1.0, dropout)
        op, delta = "dot_attention_backward", (grad_out * out).sum(-1)
        grad_query = self._grad_query(op, call, graph, query, lse, delta, grad_out)
        return grad_query, *self._grad_key(op, call, graph, key, value, lse, delta, dropout, grad_out)

    def _call(
        self,
        family: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        att: Tensor | None,
        slope: float,
        dropout: Dropout | None,
    ) -> Any:
        sizes = value.size(1), key.size(2) if key.dim() == 3 else 1, value.size(2)
        how = slope, value.dtype == torch.float64, self.isa
        call = _compiled.attention.Attention(family, *addresses(query, key, value, att), *sizes, *how)
        if dropout is not None:
            call.drop(dropout.threshold, dropout.scale, *dropout.words())
        return call

    def _walk(self, op: str, graph: Graph, value: Tensor) -> tuple[int | str, int | str]:
        """Edges at a time, and threads, of a pass over the rows of `graph`."""
        heads, channels = value.shape[1:]
        choice = self.chosen(op, graph, heads * channels, value.dtype, heads)
        return choice["chunk"], choice["threads"]

    def _grad_query(
        self, op: str, call: Any, graph: Graph, query: Tensor, lse: Tensor, delta: Tensor, grad_out: Tensor
    ) -> Tensor:
        node, grad_out, grad_query = torch.stack([lse, delta], -1), grad_out.contiguous(), torch.empty_like(query)
        where = addresses(graph.rowptr, graph.col, grad_out, node, grad_query)
        call.grad_query(*where, graph.num_rows, *self._walk(op, graph, grad_out))
        return grad_query

    def _grad_key(
        self,
        op: str,
        call: Any,
        graph: Graph,
        key: Tensor,
        value: Tensor,
        lse: Tensor,
        delta: Tensor,
        dropout: Dropout | None,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor]:
        node, grad_out = torch.stack([lse, delta], -1), grad_out.contiguous()
        grad_key, grad_value = torch.empty_like(key), torch.empty_like(value)
        transpose, perm = graph.transpose, None if dropout is None else graph.perm
        tensors = transpose.rowptr, transpose.col, perm, grad_out, node, grad_key, grad_value
        call.grad_key(*addresses(*tensors), graph.num_cols, *self._walk(op, transpose, grad_out))
        return grad_key, grad_value


def _outputs(graph: Graph, value: Tensor) -> tuple[Tensor, Tensor]:
    """out [N, H, C] and lse [N, H], to be written."""
    out = torch.empty(graph.num_rows, *value.shape[1:], dtype=value.dtype)
    return out, torch.empty(graph.num_rows, value.size(1), dtype=value.dtype)
