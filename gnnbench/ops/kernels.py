"""Kernels: the op set every backend offers, and its executable specification in plain torch, without autograd."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from gnnbench.graph import Graph, Layout, rows_of

EXTREMA = ("min", "max")
REDUCTIONS = ("sum", "mean", *EXTREMA)
Choice = dict[str, int | str]  # the knobs of a kernel, which change its speed but not what it computes


class Kernels(Layout):
    """Plain-torch kernels; a backend overrides what it runs faster and names it in `accelerated`.

    Shapes: N destinations, M sources, E edges in the order of `graph.col`, H heads, C channels per head.
    A tensor over nodes is [N, F] or [N, H, C]; one over edges is [E], or [E, H] beside [N, H, C].
    """

    name: ClassVar[str] = "torch"
    accelerated: ClassVar[frozenset[str]] = frozenset()

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        """Reasons why `op` cannot run on these inputs; empty if it can."""
        return []

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype) -> list[Choice]:
        """The ways to run `op` that a tuner may try, about ten at most; the first is what runs untuned.

        Args:
            op: name of a method of this class.
            width: channels of x, those of all heads together.
        """
        return [{}]

    def chosen(self, op: str, graph: Graph, width: int, dtype: torch.dtype) -> Choice:
        """How `op` runs next: `graph.plans["choice", op, width, dtype]` if somebody put a choice there.

        One that these kernels cannot run, such as one kept from another machine, counts as none. The graph of a
        backward pass is `graph.transpose`, which has plans, and so choices, of its own unless it is `graph`.
        """
        return self.choices(op, graph, width, dtype)[0]

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        """Aggregate sources: out[i] = reduce over edges (i, j) of value[ij] * x[j], for sum and mean.

        Args:
            x: [M, F] or [M, H, C].
            value: [E], or [E, H] with x [M, H, C]; None for ones.
            reduce: "sum" or "mean"; a row without edges gives zero.

        Returns:
            [N, F] or [N, H, C].
        """
        out = x.new_zeros(graph.num_rows, *x.shape[1:]).index_add_(0, graph.row, _messages(graph, x, value))
        return _rows_scaled(out, graph.degree.clamp(min=1).to(x.dtype).reciprocal()) if reduce == "mean" else out

    def spmm_extremum(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        """The same for "min" and "max" of x [M, F] and value [E].

        Returns:
            out [N, F], zero for a row without edges, and arg_out [N, F] int32: the edge each entry came from,
            the first of equals, -1 for a row without edges. A NaN message wins its row.
        """
        message = _messages(graph, x, value)
        index = graph.row.unsqueeze(1).expand_as(message)
        out = x.new_zeros(graph.num_rows, x.size(1))
        out = out.scatter_reduce(0, index, message, "a" + reduce, include_self=False)
        hit = (message == out[graph.row]) | message.isnan()
        edge = torch.arange(graph.num_edges, dtype=torch.int32, device=x.device).unsqueeze(1)
        edge = torch.where(hit, edge, graph.num_edges)
        arg_out = torch.full(out.shape, graph.num_edges, dtype=torch.int32, device=x.device)
        arg_out = arg_out.scatter_reduce(0, index, edge, "amin")
        return out, arg_out.masked_fill_(arg_out == graph.num_edges, -1)

    def spmm_extremum_backward(
        self, graph: Graph, arg_out: Tensor, grad_out: Tensor, value: Tensor | None
    ) -> Tensor:
        """grad_x [M, F] of `spmm_extremum`: every grad_out entry goes to the source of its edge."""
        edge = arg_out.clamp(min=0).long()
        grad = grad_out.masked_fill(arg_out < 0, 0.0)
        if value is not None and graph.num_edges:
            grad = grad * value[edge]
        source = graph.col.long()[edge] if graph.num_edges else edge
        return grad.new_zeros(graph.num_cols, grad.size(1)).scatter_add_(0, source, grad)

    def sddmm(self, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
        """Score edges: out[ij] = <a[i], b[j]> with a [N, F], b [M, F] -> [E], or [., H, C] -> [E, H]."""
        return (a[graph.row] * b[graph.col.long()]).sum(-1)

    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        """Normalise score [E, H] over the edges of each destination, stably; alpha [E, H]."""
        index = graph.row.unsqueeze(1).expand_as(score)
        top = score.new_full((graph.num_rows, score.size(1)), -torch.inf)
        top = top.scatter_reduce_(0, index, score, "amax")
        exp = (score - top[graph.row]).exp_()
        total = torch.zeros_like(top).index_add_(0, graph.row, exp)
        return exp / total[graph.row]

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        """grad_score [E, H] = alpha * (grad_alpha - sum over the row of alpha * grad_alpha)."""
        weighted = alpha * grad_alpha
        total = alpha.new_zeros(graph.num_rows, alpha.size(1)).index_add_(0, graph.row, weighted)
        return weighted - alpha * total[graph.row]


def _messages(graph: Graph, x: Tensor, value: Tensor | None) -> Tensor:
    message = x[graph.col.long()]
    return message if value is None else message * value.reshape(*value.shape, *[1] * (x.dim() - value.dim()))


def _rows_scaled(out: Tensor, scale: Tensor) -> Tensor:
    return out * scale.view(-1, *[1] * (out.dim() - 1))


__all__ = ["EXTREMA", "REDUCTIONS", "Choice", "Kernels", "rows_of"]
