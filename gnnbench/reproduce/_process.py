"""One cell in a fresh process, so that nothing it does can end the reproduction."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from gnnbench.compare import process
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
    path, log = work.out / "work.json", work.out / "log.txt"
    files.save_json(work, path)
    command = [sys.executable, "-X", "faulthandler", "-m", __spec__.name, str(path), str(os.getpid())]
    with log.open("wb") as errors:
        # A process group of its own, so that Ctrl-C reaches this process alone, which then ends the other.
        running = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            assert running.stdout
            for line in running.stdout:
                tell(line.strip())
            code = running.wait()
        finally:
            running.kill()  # does nothing to a process that has ended
            running.wait()
    outcome = work.finished()
    if outcome is None:
        status, reason = process.verdict(code, log.read_text(errors="replace"))
        outcome = Outcome(status=status, reason=reason, code=work.code)
        files.save_json(outcome, work.path)
    return outcome


def perform(work: Work, tell: Callable[[str], None]) -> None:
    """Run a cell in this process, and write how it ended."""
    try:
        outcome = Outcome(status="ok", once_s=work.cell.run(work.context, work.out, tell))
    except Exception as error:
        traceback.print_exc()
        status = next((found for kind, found in process.STATUS.items() if isinstance(error, kind)), "failed")
        reason = str(error) if isinstance(error, GnnbenchError) else f"{type(error).__name__}: {error}"
        outcome = Outcome(
            status="oom" if memory.is_exhaustion(error) else status, reason=reason.partition("\n")[0]
        )
    outcome.code = work.code
    files.save_json(outcome, work.path)


if __name__ == "__main__":
    process.die_with_parent(int(sys.argv[2]))
    perform(Work.model_validate_json(Path(sys.argv[1]).read_bytes()), lambda what: print(what, flush=True))
