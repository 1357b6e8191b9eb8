"""One case of an op: its implementations are held against float64, and those that are right timed in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from gnnbench.benchmarks.contest import Contestant, made, race
from gnnbench.benchmarks.ops import Case
from gnnbench.benchmarks.peers import Implementation
from gnnbench.benchmarks.records import Ceilings, Row
from gnnbench.graph import Graph
from gnnbench.graph.layout import ptr_of
from gnnbench.measure import memory
from gnnbench.measure.rounds import Budget
from gnnbench.ops._workload import Direction
from gnnbench.ops.kernels import Kernels

ROW_FLOOR = 1e-2  # of the root mean square of all rows, which a row counts for at least
TOLERANCE = 1e-3  # largest difference over the root mean square of the truth: rounding of long float32 sums
BF16_TOLERANCE = 0.05  # over the sum of that and of the entry itself: bfloat16 keeps eight bits of either
REFERENCE_BYTES = 1 << 29  # of one tensor of all sampled edges in float64


class Reference:
    """The correct results of a case, in float64.

    Where the graph is large, whole rows of it are sampled. Their results are exact, for a destination needs its
    own edges only; gradients start from these rows alone, with zeros elsewhere.

    Attributes:
        grad_out: that of the case, zero outside of the sample.
        rows: how many destinations are compared.
    """

    def __init__(self, case: Case) -> None:
        self.case, self.rows, self.grad_out = case, len(case.grad_out), case.grad_out
        self._graph: Graph | None = None
        self._sampled: dict[str, Tensor] = {}  # by the first dimension of a tensor, what is compared
        if not case.op.sizes:
            self._sample(case.graph)

    def _sample(self, graph: Graph) -> None:
        rows = _sample(graph, REFERENCE_BYTES // (8 * self.case.width))
        self.rows = rows.numel()
        degree = graph.degree[rows]
        rowptr = ptr_of(degree)
        first = torch.repeat_interleave(graph.rowptr[rows] - rowptr[:-1], degree)
        edges = first + torch.arange(int(rowptr[-1]), device=graph.device)
        self._sampled = {"N": rows, "E": edges}
        self._graph = Graph(rowptr, graph.col[edges], graph.num_cols)
        if self.rows < graph.num_rows:
            sampled = self._sampled[self.case.op.out[0]]
            self.grad_out = torch.zeros_like(self.case.grad_out)
            self.grad_out[sampled] = self.case.grad_out[sampled]

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
        forward = direction == "forward"
        every = [self.case.op.out] if forward else [self.case.dims[name] for name in self.case.op.grads]
        parts = [self._part(dims, tensor) for dims, tensor in zip(every, tensors, strict=True)]
        truths = self._forward if forward else self._backward
        rounded = in_bf16 or self.case.dtype == torch.bfloat16
        by_row = forward and self.case.op.out[0] == "N" and not rounded
        return max(_difference(part, truth, rounded, by_row) for part, truth in zip(parts, truths, strict=True))

    @cached_property
    def _forward(self) -> list[Tensor]:
        return [self._out.detach()]

    @cached_property
    def _backward(self) -> list[Tensor]:
        grad_out = self._part(self.case.op.out, self.case.grad_out)
        return list(torch.autograd.grad(self._out, [self._inputs[name] for name in self.case.op.grads], grad_out))

    @cached_property
    def _inputs(self) -> dict[str, Tensor]:
        case = self.case
        parts = {name: self._part(case.dims[name], tensor.detach()) for name, tensor in case.inputs.items()}
        return {name: part.requires_grad_(name in case.op.grads) for name, part in parts.items()}

    @cached_property
    def _out(self) -> Tensor:
        return self.case.op.call(Kernels(), self._graph, **self._inputs)

    def _part(self, dims: str, tensor: Tensor) -> Tensor:
        """The sampled part of a tensor, in float64 but for whole numbers."""
        part = tensor[self._sampled[dims[0]]] if dims[0] in self._sampled else tensor
        return part.double() if part.is_floating_point() else part


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


@dataclass
class OpBenchmark:
    """How an op is measured.

    Attributes:
        say: is told what is about to start.
        ceilings: of the machine, once they are known.
    """

    meter: memory.Meter
    budget: Budget
    say: Callable[[str], Any]
    ceilings: Ceilings | None = None

    def run(
        self,
        case: Case,
        makers: Mapping[str, Callable[[], Implementation]],
        rows: Iterable[Row],
        against: Sequence[str],
    ) -> int:
        """Check and time all of `makers` in every direction of `rows`, which learn what is found.

        Returns:
            How many destinations were checked.
        """
        rows = list(rows)
        truth, ready = Reference(case), made(makers, rows)
        for direction, some in groupby(rows, lambda row: row.direction):
            assert direction != "epoch"
            by_name = {row.implementation: row for row in some}
            contestants = {
                name: Contestant(
                    partial(each.time, direction),
                    partial(_wrong, each, truth, direction),
                    partial(each.memory, direction, self.meter),
                )
                for name, each in ready.items()
            }
            label = f"{case.name} {direction}, {case.label}"
            race(contestants, by_name, against, self.budget, self.say, label)
            for row in by_name.values():
                if row.time_s:
                    self._conclude(row, row.time_s.median, direction, case)
        return truth.rows

    def _conclude(self, row: Row, seconds: float, direction: Direction, case: Case) -> None:
        row.gather_bytes_per_s = case.gathered_bytes / seconds or None
        row.flop_per_s = case.flop(direction) / seconds or None
        if (ceiling := self.ceilings) and not row.rounds:
            traffic, gathered = case.compulsory(direction)
            limits = (
                (traffic, ceiling.stream_bytes_per_s),
                (gathered, ceiling.gather_bytes_per_s),
                (case.flop(direction), ceiling.flop_per_s),
            )
            row.roofline_fraction = max(amount / speed for amount, speed in limits if speed) / seconds


def _wrong(implementation: Implementation, truth: Reference, direction: Direction, row: Row) -> str:
    """How far what it computes is from the truth, if too far.

    In bfloat16 a peer that accumulates in it is timed however imprecise it is, and its row says so.
    """
    row.reason = row.reason or implementation.note
    outputs = implementation.outputs(direction, truth.grad_out)
    if not implementation.is_checked:
        return ""
    error, tolerance = truth.error(direction, outputs, row.rounds), truth.tolerance(row.rounds)
    if row.time_s:
        tolerance = max(tolerance, 2 * (row.error or 0.0))
    else:
        row.error = error
    if error <= tolerance:
        return ""
    reason = f"differs from float64 by {error:.2g}, more than {tolerance:g}"
    if row.time_s or implementation.is_exact or truth.case.dtype != torch.bfloat16 or not math.isfinite(error):
        return reason
    row.reason = reason
    return ""
