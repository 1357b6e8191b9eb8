"""Benchmarks of random pairs that are no edges."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import negatives
from gnnbench.kinds import ResultKind
from gnnbench.report import negatives as report
from gnnbench.report.page import ops


class NegativesBench(ResultKind, negatives.NegativesBench):
    """A benchmark of negatives; a line of its frame is an implementation on one size."""

    mark = "excluded"
    file = "bench.json"
    report: ClassVar = report
    section = ops.bench
    continues = False


KIND = NegativesBench
