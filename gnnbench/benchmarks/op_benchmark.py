"""One case in one direction: every contestant is checked, and those that are right are timed in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from gnnbench.benchmarks.ops import Case
from gnnbench.benchmarks.peers import Implementation
from gnnbench.benchmarks.records import Ceilings, Measured, Row, ratios, time_of
from gnnbench.graph import Graph
from gnnbench.measure import memory
from gnnbench.measure.rounds import Budget, Timed, interleaved
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
        rowptr = torch.zeros(self.rows + 1, dtype=torch.int64, device=graph.device)
        torch.cumsum(degree, 0, out=rowptr[1:])
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
    """How contestants are measured.

    Attributes:
        say: is told what is about to start.
        ceilings: of the machine, once they are known.
    """

    meter: memory.Meter
    budget: Budget
    say: Callable[[str], Any]
    ceilings: Ceilings | None = None

    def direction(
        self,
        case: Case,
        truth: Reference,
        direction: Direction,
        ready: Mapping[str, Implementation],
        rows: Mapping[str, Row],
        against: Sequence[str],
    ) -> None:
        """Check, weigh and time `ready`; what is found goes into `rows`, which has others too, that failed before.

        In bfloat16 a peer that accumulates in it is timed however imprecise it is, and its row says so.
        """
        label = f"{case.name} {direction}, {case.label}"
        for name, implementation in ready.items():
            self.say(f"{label}: checking {name}")
            row, tolerance = rows[name], truth.tolerance(rows[name].rounds)
            row.reason = implementation.note
            try:
                row.error = _error(implementation, truth, direction, row)
            except Exception as problem:
                fail(row, problem)
                continue
            if row.error is not None and row.error > tolerance:
                row.reason = f"differs from float64 by {row.error:.2g}, more than {tolerance:g}"
                if implementation.is_exact or case.dtype != torch.bfloat16 or not math.isfinite(row.error):
                    row.status = "wrong"
        self.say(f"{label}: timing")
        right = {name: implementation for name, implementation in ready.items() if rows[name].status == "pending"}
        self.weigh(
            {
                name: partial(implementation.memory, direction, self.meter)
                for name, implementation in right.items()
            },
            rows,
        )
        times = self.timed(
            {name: partial(implementation.time, direction) for name, implementation in right.items()},
            rows,
            against,
        )
        for name in times:
            try:
                error = _error(ready[name], truth, direction, rows[name]) or 0.0
            except Exception as problem:
                fail(rows[name], problem)
                error = math.inf
            if error > max(truth.tolerance(rows[name].rounds), 2 * (rows[name].error or 0.0)):
                refute(rows, name, f"differs from float64 by {error:.2g} after it was timed", against)
            else:
                self._conclude(rows[name], case)

    def weigh(self, calls: Mapping[str, Callable[[], tuple[int, int] | None]], rows: Mapping[str, Row]) -> None:
        """Memory of a call that is not the first one, which has things to keep for all later ones."""
        for name, call in calls.items():
            try:
                increase_and_peak = call()
            except Exception as error:
                fail(rows[name], error)
            else:
                rows[name].memory_increase_bytes, rows[name].peak_memory_bytes = increase_and_peak or (None, None)

    def timed(
        self, contestants: Mapping[str, Timed], rows: Mapping[str, Row], against: Sequence[str]
    ) -> list[str]:
        """Time those that have not failed; the names of those that came to the end."""
        return race(contestants, rows, against, self.budget)

    def _conclude(self, row: Row, case: Case) -> None:
        assert row.time_s
        assert row.direction != "epoch"
        row.gather_bytes_per_s = case.gathered_bytes / row.time_s.median or None
        row.flop_per_s = case.flop(row.direction) / row.time_s.median or None
        if (ceiling := self.ceilings) and not row.rounds:
            traffic, gathered = case.compulsory(row.direction)
            bound = traffic / ceiling.stream_bytes_per_s
            if ceiling.gather_bytes_per_s:
                bound = max(bound, gathered / ceiling.gather_bytes_per_s)
            if ceiling.flop_per_s:
                bound = max(bound, case.flop(row.direction) / ceiling.flop_per_s)
            row.roofline_fraction = bound / row.time_s.median


def _error(implementation: Implementation, truth: Reference, direction: Direction, row: Row) -> float | None:
    """The error of what it computes; None where that cannot be checked."""
    outputs = implementation.outputs(direction, truth.grad_out)
    return truth.error(direction, outputs, row.rounds) if implementation.is_checked else None


def race(
    contestants: Mapping[str, Timed],
    rows: Mapping[str, Measured],
    against: Sequence[str],
    budget: Budget,
    parts: Callable[[Any], float] = lambda _: 1.0,
) -> list[str]:
    """Time those that have not failed in turn, and compare all; the names of those that came to the end.

    Args:
        parts: by the row, how many parts a call has; its time is that of one of them.
    """
    running = {name: contestant for name, contestant in contestants.items() if rows[name].status == "pending"}
    times = interleaved(running, budget, lambda name, error: fail(rows[name], error))
    for name, samples in times.items():
        count = parts(rows[name])
        rows[name].status = "ok"
        rows[name].time_s = time_of([[seconds / count for seconds in round_] for round_ in samples])
    ratios(rows, against)
    return list(times)


def refute(rows: Mapping[str, Measured], name: str, reason: str, against: Sequence[str]) -> None:
    """Take back the time of one that computed something else in the end."""
    if rows[name].status == "ok":
        rows[name].status, rows[name].reason = "wrong", reason
    rows[name].time_s = None
    ratios(rows, against)


def fail(row: Measured, error: Exception) -> None:
    """Set what became of a row that has no figures."""
    row.status, row.reason = memory.ending(error)
    if isinstance(error, NotImplementedError):  # by torch, for this type of numbers
        row.status = "unsupported"
