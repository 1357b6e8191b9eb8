"""Cells of a grid: each runs once, in a fresh process and a folder of its own, in which it is found again."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from gnnbench import launch, stopping
from gnnbench.errors import GnnbenchError
from gnnbench.measure import clock, environment, memory
from gnnbench.results import files
from gnnbench.results.schema import Record, Status

Tell = Callable[[str], None]


class Outcome(Record):
    """How a cell ended."""

    status: Status
    reason: str = ""
    once_s: float | None = Field(None, description="seconds of reordering or tuning, once per graph")
    wall_s: float | None = Field(None, description="seconds that the process of the cell took as a whole")
    code: str = Field("", description="hash of the code that ran, see `gnnbench.measure.code`; empty: not known")


class CellRecord(Record):
    """A cell of the grid and how it ended; None before."""

    key: str
    definition: dict[str, Any]
    outcome: Outcome | None = None


class Work(launch.Task):
    """A cell, and where it runs; each kind of grid has a subclass that says which cells these are.

    Attributes:
        cell: its `key` names it in its grid, and its `run(work, tell)` leaves results in the folder and returns an
            `Outcome`.
    """

    cell: Any

    @property
    def path(self) -> Path:
        return self.out / "outcome.json"

    def latest(self) -> Outcome | None:
        """How the latest process ended, whatever code it ran; None if none did."""
        try:
            return files.load(Outcome, self.path)
        except GnnbenchError:
            return None

    def finished(self) -> Outcome | None:
        """Return the outcome of a finished cell; None if there is none, or it ran other code."""
        outcome = self.latest()
        return outcome if outcome and outcome.code == self.code else None

    def perform(self) -> int:
        """Run the cell, and print what it is about to do."""
        return 0 if perform(self, partial(print, flush=True)) else stopping.exit_code()


Execute = Callable[[Any, Tell], Outcome]
Ended = Generator[tuple[Work, Outcome | None], None, None]  # None: it was lost, and may run again
Runner = Callable[[Sequence[Work]], Ended]


def run(
    works: Sequence[Work], records: Iterable[CellRecord], runner: Runner, on_end: Callable[[Work], None]
) -> Literal["ok", "interrupted"]:
    """Run the cells whose record has no outcome; a stop ends those that run, and keeps what is finished.

    Args:
        runner: yields each cell as it ends.
        on_end: called once the outcome is in the record of the cell.
    """
    by_key = {record.key: record for record in records}
    todo = [work for work in works if by_key[work.cell.key].outcome is None]
    try:
        with launch.keep_server(), closing(runner(todo)) as ended:
            for work, outcome in ended:
                by_key[work.cell.key].outcome = outcome
                on_end(work)
    except KeyboardInterrupt:
        return "interrupted"
    return "ok"


def one_by_one(works: Sequence[Work], *, on_step: Callable[[Work, str], None], by: Execute | None = None) -> Ended:
    """A cell after the other; `on_step` hears what each is about to do, first an empty text; `by` runs it."""
    for work in works:
        on_step(work, "")
        yield work, (by or execute)(work, partial(on_step, work))


def abreast(works: Sequence[Work], *, jobs: int, by: Execute | None = None) -> Ended:
    """`jobs` cells at a time, which share the cores of the machine; `by` runs one."""
    group, pool = launch.Group(), ThreadPoolExecutor(jobs)
    alone = launch.THREADS not in os.environ
    if alone:
        os.environ[launch.THREADS] = str(max(1, environment.usable_cores() // jobs))
    works_of = {pool.submit(by or partial(_kept, group=group), work, lambda _: None): work for work in works}
    try:
        for future in as_completed(works_of):
            yield works_of[future], future.result()
    finally:
        group.end()
        pool.shutdown(cancel_futures=True)
        if alone:
            del os.environ[launch.THREADS]


def _kept(work: Work, tell: Tell, group: launch.Group) -> Outcome:
    """Run a cell, and end what this thread prepared for it."""
    with launch.keep_server():
        return execute(work, tell, group=group)


def execute(work: Work, tell: Tell, *, group: launch.Group | None = None) -> Outcome:
    """Run a cell in a fresh process and wait; a process that dies has an outcome too.

    Args:
        tell: hears in words what the process is about to do.
        group: ends the process from another thread.

    Raises:
        GnnbenchError: `work.out` cannot be written.
    """
    code, log = launch.run(work, tell, group=group)
    outcome = work.finished()
    if outcome is None:
        status, reason = launch.verdict(code, log)
        outcome = Outcome(status=status, reason=reason, code=work.code)
        files.save_json(outcome, work.path)
    return outcome


def perform(work: Work, tell: Tell) -> bool:
    """Run a cell in this process, and write how it ended; False if it was stopped, and has to run again."""
    try:
        outcome = work.cell.run(work, tell)
    except Exception as error:
        traceback.print_exc()
        status, reason = memory.ending(error)
        outcome = Outcome(status=status, reason=reason)
    if outcome.status == "interrupted":
        return False
    outcome.wall_s, outcome.code = clock.since_start(), work.code
    files.save_json(outcome, work.path)
    return True
