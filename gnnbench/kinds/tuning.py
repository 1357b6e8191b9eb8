"""Choices that were tuned on a graph."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.kinds import ResultKind
from gnnbench.report import tune as report
from gnnbench.tuning import store


class Tuning(ResultKind, store.Tuned):
    """Tuned choices; a line of its frame is a choice."""

    mark = "fingerprint"
    report: ClassVar = report
    frame = "choices"


KIND = Tuning
