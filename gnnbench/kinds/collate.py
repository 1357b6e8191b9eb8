"""Benchmarks of batches of graphs."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import collate
from gnnbench.kinds import ResultKind
from gnnbench.report import collate as report
from gnnbench.report.page import ops


class CollateBench(ResultKind, collate.CollateBench):
    """A benchmark of batches of graphs; a line of its frame is an implementation on one size."""

    mark = "dtype"
    file = "bench.json"
    report: ClassVar = report
    section = ops.bench
    continues = False


KIND = CollateBench
