"""A sweep on a page: which configuration is best by validation, and how it does on the test set."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gnnbench.report import sweep as report
from gnnbench.report import sweep_plots
from gnnbench.report.page.pictures import Picture, of_panel
from gnnbench.report.page.section import Grid, Section, yaml_of

if TYPE_CHECKING:
    from gnnbench.sweeps import Sweep

CAPTION = "All else as in the best configuration of each dataset."


def section(record: Sweep) -> Section:
    """A sweep."""
    best = [place for place, point in enumerate(record.points) if point.best]
    grid = {"run": "run.yaml", "grid": record.axes, "repeats": record.repeats}
    return Section(
        kind="Sweep",
        title=report.title(record),
        question="Which configuration is best by validation, and how does it do on the test set?",
        verdict=[*report.verdicts(record)]
        or ["No configuration has a validation metric, so that none is the best."],
        advice=[*report.doubts(record)],
        grids=[Grid(replace(report.table(record, named=False), notes=()), marked=best, mark="best")],
        pictures=[*_pictures(record)],
        conditions=[*report.conditions(record)],
        environment=record.environment,
        config=record.config,
        command=shlex.join(["gnnbench", "sweep", "grid.yaml"]),
        remark="`grid.yaml` lies beside `run.yaml` and holds",
        file=yaml_of(grid),
    )


def _pictures(record: Sweep) -> Iterator[Picture]:
    for axis, panels in sweep_plots.pictures(record).items():
        for panel in panels:
            yield of_panel(
                panel, f"{panel.y_label.partition(',')[0].capitalize()} over {report.short(axis)}", CAPTION
            )
