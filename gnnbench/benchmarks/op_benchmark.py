"""One case in one direction: every contestant is checked, and those that are right are timed in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from gnnbench.benchmarks.check import Reference
from gnnbench.benchmarks.ops import Case
from gnnbench.benchmarks.peers import Implementation
from gnnbench.benchmarks.records import Ceilings, Measured, Row, ratios, time_of
from gnnbench.measure import memory
from gnnbench.measure.rounds import Budget, Timed, interleaved
from gnnbench.ops._workload import Direction


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
