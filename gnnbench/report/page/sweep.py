"""A sweep on a page: which configuration is best by validation, and how it does on the test set."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from gnnbench.report import sweep as report
from gnnbench.report.page.section import Grid, Section, yaml_of

if TYPE_CHECKING:
    from gnnbench.sweeps import Sweep


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
        conditions=[*report.conditions(record)],
        environment=record.environment,
        config=record.config,
        command=shlex.join(["gnnbench", "sweep", "grid.yaml"]),
        remark="`grid.yaml` lies beside `run.yaml` and holds",
        file=yaml_of(grid),
    )
