"""Sweeps: a run over a grid of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gnnbench import sweeps
from gnnbench.kinds import ResultKind
from gnnbench.report import live, sweep_plots
from gnnbench.report import sweep as report
from gnnbench.report.page import sweep as page
from gnnbench.results import files

if TYPE_CHECKING:
    from gnnbench.kinds import Pictures


class View(live.View):
    """The configurations as far as they are known, and the trial that runs now."""

    def __call__(self, event: sweeps.Progress) -> None:
        line = f"{event.trial} ({event.done} of {event.total} done)"
        self.draw(f"{report.title(event.sweep)}\n{line}", report.table(event.sweep))


class Sweep(ResultKind, sweeps.Sweep):
    """A sweep; a line of its frame is a trial."""

    mark: ClassVar = "axes"
    file: ClassVar = files.SWEEP
    report: ClassVar = report
    section: ClassVar = page.section
    view: ClassVar = View

    def pictures(self) -> Pictures:
        return sweep_plots.pictures(self)


KIND = Sweep
