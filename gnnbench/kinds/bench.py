"""Benchmarks of one op."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import records
from gnnbench.kinds import ResultKind
from gnnbench.report import bench as report
from gnnbench.report import live
from gnnbench.report.page import ops


class View(live.View):
    """The table as far as it is known, and what runs now."""

    def __call__(self, record: records.Bench, step: str) -> None:
        self.draw(f"{report.title(record)}\n{step}", report.table(record))


class Bench(ResultKind, records.Bench):
    """A benchmark of one op; a line of its frame is an implementation on one case."""

    mark: ClassVar = "weighted"
    file: ClassVar = "bench.json"
    report: ClassVar = report
    section: ClassVar = ops.bench
    continues: ClassVar = False
    view: ClassVar = View


KIND = Bench
