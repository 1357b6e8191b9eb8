"""Checks of an implementation against float64 in plain torch, on as many rows as fit in memory."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from gnnbench.benchmarks.ops import Case, Direction
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels

ROW_FLOOR = 1e-2  # of the root mean square of all rows, which a row counts for at least
TOLERANCE = 1e-3  # largest difference over the root mean square of the truth: rounding of long float32 sums
BF16_TOLERANCE = 0.05  # over the sum of that and of the entry itself: bfloat16 keeps eight bits of either
TRUTH_BYTES = 1 << 29  # of one tensor of all sampled edges in float64


class Truth:
    """The correct results of a case, in float64.

    Where the graph is large, whole rows of it are sampled. Their results are exact, for a destination needs its
    own edges only; gradients start from these rows alone, with zeros elsewhere.

    Attributes:
        grad_out: that of the case, zero outside of the sample.
        rows: how many destinations are compared.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        graph = case.graph
        self._rows = _sample(graph, TRUTH_BYTES // (8 * case.width))
        self.rows = self._rows.numel()
        degree = graph.degree[self._rows]
        rowptr = torch.zeros(self.rows + 1, dtype=torch.int64, device=graph.device)
        torch.cumsum(degree, 0, out=rowptr[1:])
        first = torch.repeat_interleave(graph.rowptr[self._rows] - rowptr[:-1], degree)
        self._edges = first + torch.arange(int(rowptr[-1]), device=graph.device)
        self._graph = Graph(rowptr, graph.col[self._edges], graph.num_cols)
        if self.rows == graph.num_rows:
            self.grad_out = case.grad_out
        else:
            sampled = self._rows if case.op.over == "destinations" else self._edges
            self.grad_out = torch.zeros_like(case.grad_out)
            self.grad_out[sampled] = case.grad_out[sampled]

    def tolerance(self, in_bf16: bool = False) -> float:
        """The largest `error` that is allowed."""
        return BF16_TOLERANCE if in_bf16 or self.case.dtype == torch.bfloat16 else TOLERANCE

    def error(self, direction: Direction, tensors: list[Tensor], in_bf16: bool = False) -> float:
        """Largest difference of any entry from the truth, over the truth's root mean square; NaN counts as inf.

        Forward, that of a destination's row is its own, unless the row cancels, so that a hub hides no other. In
        bfloat16 it is over the sum of that of all and of the entry, since the largest entries are rounded most.

        Args:
            in_bf16: it was computed from inputs rounded to bfloat16, whatever their type.
        """
        overs = (
            [self.case.op.over]
            if direction == "forward"
            else [self.case.over[name] for name in self.case.op.grads]
        )
        parts = [self._part(over, tensor) for over, tensor in zip(overs, tensors, strict=True)]
        truths = self._forward if direction == "forward" else self._backward
        rounded = in_bf16 or self.case.dtype == torch.bfloat16
        by_row = direction == "forward" and self.case.op.over == "destinations" and not rounded
        return max(_difference(part, truth, rounded, by_row) for part, truth in zip(parts, truths, strict=True))

    @cached_property
    def _forward(self) -> list[Tensor]:
        return [self._out.detach()]

    @cached_property
    def _backward(self) -> list[Tensor]:
        grad_out = self._part(self.case.op.over, self.case.grad_out)
        return list(torch.autograd.grad(self._out, [self._inputs[name] for name in self.case.op.grads], grad_out))

    @cached_property
    def _inputs(self) -> dict[str, Tensor]:
        case = self.case
        parts = {name: self._part(case.over[name], tensor.detach()) for name, tensor in case.inputs.items()}
        return {name: part.requires_grad_(name in case.op.grads) for name, part in parts.items()}

    @cached_property
    def _out(self) -> Tensor:
        return self.case.op.call(Kernels(), self._graph, **self._inputs)

    def _part(self, over: str, tensor: Tensor) -> Tensor:
        """The sampled part of a tensor, in float64."""
        chosen = {"destinations": self._rows, "edges": self._edges}.get(over)
        return (tensor if chosen is None else tensor[chosen]).double()


def _sample(graph: Graph, edges: int) -> Tensor:
    """All rows, or the longest one and random others that have about `edges` edges together; ascending."""
    if graph.num_edges <= edges:
        return torch.arange(graph.num_rows, device=graph.device)
    order = torch.randperm(graph.num_rows, generator=torch.Generator().manual_seed(0)).to(graph.device)
    fitting = order[graph.degree[order].cumsum(0) <= edges]
    return torch.cat([fitting, graph.degree.argmax().view(1)]).unique()


def _difference(tensor: Tensor, truth: Tensor, rounded: bool, by_row: bool) -> float:
    if tensor.shape != truth.shape or not bool(tensor.isfinite().all()):
        return float("inf")
    if not truth.numel():
        return 0.0
    scale = truth.square().mean().sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    if by_row:
        rows = truth.square().flatten(1).mean(1).sqrt()
        scale = rows.maximum(ROW_FLOOR * scale).view(-1, *[1] * (truth.dim() - 1))
    return float(((tensor - truth).abs() / (scale + truth.abs() if rounded else scale)).max())
