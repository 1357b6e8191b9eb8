"""One cell in a fresh process, so that nothing it does can end the reproduction."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from gnnbench import launch
from gnnbench.errors import GnnbenchError
from gnnbench.measure import memory
from gnnbench.reproduce._cells import Cell, Context
from gnnbench.reproduce._records import Outcome
from gnnbench.results import files
from gnnbench.results.schema import Record


class Work(Record):
    """What a fresh process is to do."""

    cell: Cell
    context: Context
    out: Path
    code: str = ""

    @property
    def path(self) -> Path:
        return self.out / "outcome.json"

    def finished(self) -> Outcome | None:
        """How an earlier process ended; None if none did, or if it ran other code."""
        try:
            outcome = files.load(Outcome, self.path)
        except GnnbenchError:
            return None
        return outcome if outcome.code == self.code else None


def execute(work: Work, tell: Callable[[str], None]) -> Outcome:
    """Run a cell in a fresh process and wait; a process that dies has an outcome too.

    Args:
        tell: hears in words what the process is about to do.

    Raises:
        GnnbenchError: `work.out` cannot be written.
    """
    code, log = launch.run("gnnbench.reproduce._process", work, work.out / "work.json", tell)
    outcome = work.finished()
    if outcome is None:
        status, reason = launch.verdict(code, log)
        outcome = Outcome(status=status, reason=reason, code=work.code)
        files.save_json(outcome, work.path)
    return outcome


def perform(work: Work, tell: Callable[[str], None]) -> None:
    """Run a cell in this process, and write how it ended."""
    try:
        outcome = Outcome(status="ok", once_s=work.cell.run(work.context, work.out, tell))
    except Exception as error:
        traceback.print_exc()
        status, reason = memory.ending(error)
        outcome = Outcome(status=status, reason=reason)
    outcome.code = work.code
    files.save_json(outcome, work.path)


def main(path: Path) -> int:
    """Run the cell in the file `path`, and print what it is about to do; the exit code."""
    perform(Work.model_validate_json(path.read_bytes()), lambda what: print(what, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
