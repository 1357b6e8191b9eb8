"""Suites: all ops and models on one device."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import records
from gnnbench.kinds import ResultKind
from gnnbench.report import suite as report


class Suite(ResultKind, records.Suite):
    """A suite of benchmarks; a line of its frame is an implementation on one case."""

    mark = "suite"
    file = "suite.json"
    report: ClassVar = report


KIND = Suite
