"""Choices that were tuned on a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from gnnbench.kinds import ResultKind
from gnnbench.report import live
from gnnbench.report import tune as report
from gnnbench.report.page import ops
from gnnbench.tuning import store

if TYPE_CHECKING:
    from gnnbench.results.schema import ChoiceRecord
    from gnnbench.tuning.search import Request


class View(live.View):
    """The request that is tuned now."""

    def __call__(self, choices: Sequence[ChoiceRecord], request: Request) -> None:
        adjacency = " of the transpose" if request.adjacency == "transpose" else ""
        heads = f", {request.heads} heads" if request.heads > 1 else ""
        self.say(f"tuning {request.op}{adjacency} at width {request.width}{heads}")


class Tuning(ResultKind, store.Tuned):
    """Tuned choices; a line of its frame is a choice."""

    mark: ClassVar = "fingerprint"
    report: ClassVar = report
    section: ClassVar = ops.tuning
    frame: ClassVar = "choices"
    view: ClassVar = View


KIND = Tuning
