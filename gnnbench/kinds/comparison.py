"""Comparisons of backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gnnbench.comparison import record
from gnnbench.kinds import ResultKind
from gnnbench.report import comparison as report
from gnnbench.report import live
from gnnbench.report.page import comparison as page
from gnnbench.results import files

if TYPE_CHECKING:
    from gnnbench.comparison import Progress


class View(live.View):
    """The table as far as it is known, and the process that runs now."""

    def __call__(self, event: Progress) -> None:
        stage = "parity check" if event.stage == "parity" else f"round {event.round} of {event.comparison.rounds}"
        table = report.table(event.comparison)
        lines = [table.title, *report.parity(event.comparison.parity), f"{stage}, {event.backend}"]
        self.draw("\n".join(lines) + f" ({event.done + 1} of {event.total})", table)


class Comparison(ResultKind, record.Comparison):
    """A comparison; a line of its frame is a backend."""

    mark: ClassVar = "parity"
    file: ClassVar = files.COMPARISON
    report: ClassVar = report
    section: ClassVar = page.section
    view: ClassVar = View


KIND = Comparison
