"""Cells that take a while, in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from gnnbench import cells
from gnnbench.results.schema import Record, Status


class Sleeper(Record):
    key: str
    seconds: float
    status: Status = "ok"

    def run(self, context: Any, out: Path, tell: Callable[[str], None]) -> cells.Outcome:
        time.sleep(self.seconds)
        return cells.Outcome(status=self.status)


class Work(cells.Work):
    module: ClassVar[str] = "tests.support.sleeper"
    cell: Sleeper


def main(path: Path) -> int:
    return cells.perform_file(Work, path)
