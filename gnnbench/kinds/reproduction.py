"""Papers reproduced."""

from __future__ import annotations

from typing import ClassVar

from gnnbench import papers
from gnnbench.kinds import ResultKind
from gnnbench.report import reproduce as report
from gnnbench.results import files


class Reproduction(ResultKind, papers.Reproduction):
    """A paper's claims; a line of its frame is a measurement."""

    mark = "findings"
    file = files.REPRODUCTION
    report: ClassVar = report
    frame = "measurements"


KIND = Reproduction
