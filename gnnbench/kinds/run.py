"""Runs of `gnnbench train`."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.kinds import ResultKind
from gnnbench.report import live
from gnnbench.report import run as report
from gnnbench.results import files
from gnnbench.results.schema import Result


class Run(ResultKind, Result):
    """A run; a line of its frame is an epoch."""

    mark = "samples"
    file = files.RUN
    report: ClassVar = report
    view = live.TrainView


KIND = Run
