"""Benchmarks of one op."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import records
from gnnbench.kinds import ResultKind
from gnnbench.report import bench as report
from gnnbench.report.page import ops


class Bench(ResultKind, records.Bench):
    """A benchmark of one op; a line of its frame is an implementation on one case."""

    mark = "weighted"
    file = "bench.json"
    report: ClassVar = report
    section = ops.bench
    continues = False


KIND = Bench
