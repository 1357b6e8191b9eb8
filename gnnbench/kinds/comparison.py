"""Comparisons of backends."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.comparison import record
from gnnbench.kinds import ResultKind
from gnnbench.report import comparison as report
from gnnbench.results import files


class Comparison(ResultKind, record.Comparison):
    """A comparison; a line of its frame is a backend."""

    mark = "parity"
    file = files.COMPARISON
    report: ClassVar = report


KIND = Comparison
