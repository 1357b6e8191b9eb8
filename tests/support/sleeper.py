"""Cells that take a while, in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable

from gnnbench import cells
from gnnbench.results.schema import Record, Status


class Sleeper(Record):
    key: str
    seconds: float
    status: Status = "ok"

    def run(self, work: cells.Work, tell: Callable[[str], None]) -> cells.Outcome:
        time.sleep(self.seconds)
        return cells.Outcome(status=self.status)


class Work(cells.Work):
    cell: Sleeper
