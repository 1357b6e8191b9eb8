"""Sweeps: a run over a grid of its keys."""

from __future__ import annotations

from typing import ClassVar

from gnnbench import sweeps
from gnnbench.kinds import ResultKind
from gnnbench.report import sweep as report
from gnnbench.results import files


class Sweep(ResultKind, sweeps.Sweep):
    """A sweep; a line of its frame is a trial."""

    mark = "axes"
    file = files.SWEEP
    report: ClassVar = report


KIND = Sweep
