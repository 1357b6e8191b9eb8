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
        out, stats = _outputs(graph, value)
        out_positive, alpha_positive = (
            (torch.empty_like(out), out.new_empty(out.shape[:2])) if keep else (out.new_empty(0), out.new_empty(0))
        )
        call = self._call(_compiled.attention.GAT, query, key, value, None, negative_slope, dropout)
        kept = (out_positive, alpha_positive) if keep else (None, None)
        where = addresses(graph.rowptr, graph.col, out, stats, *kept)
        call.forward(*where, graph.num_rows, *self._walk("gat_attention", graph, value))
        return out, stats, out_positive, alpha_positive

    def gat_attention_backward(
        self,
        graph: Graph,
        x: Tensor,
        score_src: Tensor,
        score_dst: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
        out: Tensor,
        stats: Tensor,
        out_positive: Tensor,
        alpha_positive: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = score_dst.contiguous(), score_src.contiguous(), x.contiguous()
        call = self._call(_compiled.attention.GAT, query, key, value, None, negative_slope, dropout)
        op, grad_query = "gat_attention_backward", torch.empty_like(query)
        positive = out_positive.contiguous(), alpha_positive.contiguous(), grad_query
        terms = self._terms(op, call, graph, out, stats, grad_out, *positive)
        grad_key, grad_value = self._grad_key(op, call, graph, key, value, dropout, *terms)
        return grad_value, grad_key, grad_query

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
        out, stats = _outputs(graph, x_src)
        where = addresses(graph.rowptr, graph.col, out, stats, None, None)
        call.forward(*where, graph.num_rows, *self._walk("gatv2_attention", graph, x_src))
        return out, stats

    def gatv2_attention_backward(
        self,
        graph: Graph,
        x_src: Tensor,
        x_dst: Tensor,
        att: Tensor,
        negative_slope: float,
        dropout: Dropout | None,
        out: Tensor,
        stats: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x_src, x_dst, att = x_src.contiguous(), x_dst.contiguous(), att.contiguous()
        call = self._call(_compiled.attention.GATV2, x_dst, x_src, x_src, att, negative_slope, dropout)
        op = "gatv2_attention_backward"
        terms = self._terms(op, call, graph, out, stats, grad_out)
        grad_dst = self._grad_query(op, call, graph, x_dst, *terms)
        grad_src, grad_x_src = self._grad_key(op, call, graph, x_src, x_src, dropout, *terms)
        # leaky_relu(u) = leaky_relu'(u) * u, and so att's gradient is found in those of both ends.
        grad_att = (x_src * grad_src).sum(0) + (x_dst * grad_dst).sum(0)
        return grad_x_src.addcmul_(grad_src, att), grad_dst * att, grad_att

    def dot_attention(
        self, graph: Graph, query: Tensor, key: Tensor, value: Tensor, dropout: Dropout | None
    ) -> tuple[Tensor, Tensor]:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        call = self._call(_compiled.attention.DOT, query, key, value, None, 1.0, dropout)
        out, stats = _outputs(graph, value)
        where = addresses(graph.rowptr, graph.col, out, stats, None, None)
        call.forward(*where, graph.num_rows, *self._walk("dot_attention", graph, value))
        return out, stats

    def dot_attention_backward(
        self,
        graph: Graph,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout: Dropout | None,
        out: Tensor,
        stats: Tensor,
        grad_out: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        call = self._call(_compiled.attention.DOT, query, key, value, None, 1.0, dropout)
        op = "dot_attention_backward"
        terms = self._terms(op, call, graph, out, stats, grad_out)
        grad_query = self._grad_query(op, call, graph, query, *terms)
        return grad_query, *self._grad_key(op, call, graph, key, value, dropout, *terms)

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

    def _terms(
        self,
        op: str,
        call: Any,
        graph: Graph,
        out: Tensor,
        stats: Tensor,
        grad_out: Tensor,
        out_positive: Tensor | None = None,
        alpha_positive: Tensor | None = None,
        grad_query: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """What passes over edges read of destinations: grad_out over the row's sum [N, H, C], and [N, H, 2].

        The gradient of GAT's query goes to `grad_query`.
        """
        grad_out, out, stats = grad_out.contiguous(), out.contiguous(), stats.contiguous()
        grad, node = torch.empty_like(out), torch.empty_like(stats)
        tensors = grad_out, out, stats, out_positive, alpha_positive, grad_query, grad, node
        call.terms(*addresses(graph.rowptr, *tensors), graph.num_rows, *self._walk(op, graph, grad))
        return grad, node

    def _grad_query(self, op: str, call: Any, graph: Graph, query: Tensor, grad: Tensor, node: Tensor) -> Tensor:
        grad_query = torch.empty_like(query)
        where = addresses(graph.rowptr, graph.col, grad, node, grad_query)
        call.grad_query(*where, graph.num_rows, *self._walk(op, graph, grad))
        return grad_query

    def _grad_key(
        self,
        op: str,
        call: Any,
        graph: Graph,
        key: Tensor,
        value: Tensor,
        dropout: Dropout | None,
        grad: Tensor,
        node: Tensor,
    ) -> tuple[Tensor, Tensor]:
        grad_key, grad_value = torch.empty_like(key), torch.empty_like(value)
        transpose, perm = graph.transpose, None if dropout is None else graph.perm
        tensors = transpose.rowptr, transpose.col, perm, grad, node, grad_key, grad_value
        call.grad_key(*addresses(*tensors), graph.num_cols, *self._walk(op, transpose, grad))
        return grad_key, grad_value


def _outputs(graph: Graph, value: Tensor) -> tuple[Tensor, Tensor]:
    """out [N, H, C] and stats [N, H, 2], to be written."""
    out = torch.empty(graph.num_rows, *value.shape[1:], dtype=value.dtype)
    return out, torch.empty(graph.num_rows, value.size(1), 2, dtype=value.dtype)
