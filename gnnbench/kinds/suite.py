"""Suites: all ops and models on one device."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import records
from gnnbench.kinds import ResultKind
from gnnbench.report import live
from gnnbench.report import suite as report
from gnnbench.report.page import ops


class View(live.View):
    """The number of rows by status, and what runs now."""

    def __call__(self, record: records.Suite, step: str) -> None:
        self.draw(f"{report.title(record)}\n{step}", report.counts(record))


class Suite(ResultKind, records.Suite):
    """A suite of benchmarks; a line of its frame is an implementation on one case."""

    mark: ClassVar = "suite"
    file: ClassVar = "suite.json"
    report: ClassVar = report
    section: ClassVar = ops.suite
    view: ClassVar = View


KIND = Suite
