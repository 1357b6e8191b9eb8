"""Papers reproduced."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gnnbench import papers
from gnnbench.kinds import ResultKind
from gnnbench.report import live, reproduce_plots
from gnnbench.report import reproduce as report
from gnnbench.report.page import reproduction as page
from gnnbench.results import files

if TYPE_CHECKING:
    from gnnbench.kinds import Pictures


class View(live.View):
    """The claims as far as they are known, and the cell that runs now."""

    def __call__(self, event: papers.Progress) -> None:
        step = f", {event.what}" if event.what else ""
        line = f"{event.cell} ({event.done + 1} of {event.total}){step}"
        self.draw(f"{report.title(event.reproduction)}\n{line}", report.claims(event.reproduction))


class Reproduction(ResultKind, papers.Reproduction):
    """A paper's claims; a line of its frame is a measurement."""

    mark: ClassVar = "findings"
    file: ClassVar = files.REPRODUCTION
    report: ClassVar = report
    section: ClassVar = page.section
    frame: ClassVar = "measurements"
    view: ClassVar = View

    def pictures(self) -> Pictures:
        return reproduce_plots.pictures(self)


KIND = Reproduction
