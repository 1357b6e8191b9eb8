"""Sweeps: a run varied along axes, with several seeds; each trial in a fresh process and kept on disk.

_plan        the YAML file, and the trials that it asks for, each in a fresh process
_record      what the trials come to
_slurm       trials as jobs of a cluster
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from gnnbench import backends, cells
from gnnbench.cells import Execute, Outcome, Runner
from gnnbench.comparison.record import differs
from gnnbench.datasets import Roots
from gnnbench.errors import ConfigError
from gnnbench.measure import code
from gnnbench.results import files, schema
from gnnbench.sweeps import _slurm
from gnnbench.sweeps._plan import Plan, Trial, Work, load
from gnnbench.sweeps._record import Point, Sweep, TrialRecord
from gnnbench.sweeps._slurm import Queue

__all__ = ["Plan", "Point", "Progress", "Queue", "Sweep", "Trial", "load", "planned", "sweep"]


@dataclass(frozen=True)
class Progress:
    """A trial is about to start, or has ended.

    Attributes:
        trial: the configuration and seed in words.
        done, total: trials finished and all that are planned.
        sweep: everything known so far.
    """

    trial: str
    done: int
    total: int
    sweep: Sweep


class Planned(NamedTuple):
    """A trial, how it ended if it has, and the seconds that it may take, if any like it has ended."""

    trial: Trial
    outcome: Outcome | None
    estimate_s: float | None

    def as_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        status = self.outcome.status if self.outcome else "pending"
        figures = {"status": status, "estimate_s": self.estimate_s}
        return {"key": self.trial.key, "values": self.trial.values, "seed": self.trial.seed, **figures}


def sweep(
    plan: Plan,
    *,
    out: Path,
    roots: Roots,
    force: bool = False,
    jobs: int = 1,
    queue: Queue | None = None,
    on_event: Callable[[Progress], None] = lambda _: None,
    execute: Execute | None = None,
) -> Sweep:
    """Run the trials of a plan that have not ended yet.

    A trial that has ended, well or badly, is kept under `out` and run again only if the code changed; another plan
    in the same folder shares the trials that are the same. A stop ends the running processes and returns with
    status "interrupted".

    Args:
        out: folder for `sweep.json` and `cells/`.
        force: forget all trials that an earlier call left in `out`.
        jobs: trials that run side by side, which share the cores.
        queue: of a cluster that runs the trials; None for this machine.
        on_event: called as trials start and end.
        execute: runs a trial; in a fresh process if None.

    Raises:
        ConfigError: trials are to be timed while others run beside them, or `out` holds other results.
        GnnbenchError: `out` cannot be written.
    """
    files.check_out(out, files.SWEEP)
    works = _works(plan, out, roots)
    if force:
        shutil.rmtree(out / "cells", ignore_errors=True)
    record = Sweep(
        name=plan.name,
        config=plan.config,
        axes=plan.axes,
        repeats=plan.repeats,
        timed=plan.timed,
        cells=[
            TrialRecord(
                key=work.cell.key,
                definition={"values": work.cell.values, "seed": work.cell.seed},
                outcome=work.finished(),
            )
            for work in works
        ],
        points=[
            Point(name=trial.name, values=trial.values)
            for trial in plan.trials[: len(plan.trials) // plan.repeats]
        ],
    )
    sweeping = _Sweeping(works, record, out / "sweep.json", on_event)
    runner = sweeping.runner(jobs, queue, execute)
    sweeping.take(work for work, cell in zip(works, record.cells, strict=True) if cell.outcome)
    status = cells.run(works, record.cells, runner, sweeping.ended)
    lost = sum(cell.outcome is None for cell in record.cells)
    record.status = "incomplete" if status == "ok" and lost else status
    if record.status == "incomplete":
        record.warnings.append(f"the cluster lost {lost} trials: the same command runs them again")
    sweeping.save()
    return record


def planned(
    plan: Plan, *, out: Path, roots: Roots, epochs: Sequence[tuple[dict[str, Any], float]] = ()
) -> list[Planned]:
    """The trials of a plan, and how long each takes as far as finished ones of the same kind tell.

    Args:
        epochs: configurations that ran elsewhere on this machine and their median epochs in seconds, for trials
            that none of the plan is like.
    """
    works = _works(plan, out, roots)
    known: dict[str, list[tuple[float, float]]] = {}  # seconds once, and of an epoch
    for work in works:
        outcome = work.latest()
        if outcome and outcome.status == "ok" and outcome.wall_s is not None:
            result = work.cell.result(work.out)
            epoch_s = result.epoch_s.median if result.epoch_s else 0.0
            for kind in (repr(work.cell.values), _kind(work.cell.config)):
                known.setdefault(kind, []).append((outcome.wall_s - len(result.samples) * epoch_s, epoch_s))
    for config, epoch_s in epochs:
        known.setdefault(_kind(config), [(0.0, epoch_s)])
    return [Planned(work.cell, work.finished(), _estimate(work.cell, known)) for work in works]


@dataclass
class _Sweeping:
    """A sweep under way, and the epochs behind its figures."""

    works: Sequence[Work]
    record: Sweep
    path: Path
    on_event: Callable[[Progress], None]

    def __post_init__(self) -> None:
        self._numbers = {work.cell.key: number for number, work in enumerate(self.works)}
        self._rounds: dict[int, list[list[float]]] = defaultdict(list)
        self._environments: list[dict[str, Any]] = []

    def runner(self, jobs: int, queue: Queue | None, execute: Execute | None) -> Runner:
        """How trials are run."""
        if self.record.timed and (jobs > 1 or (queue and not queue.exclusive)):
            raise ConfigError(
                "trials that run side by side disturb each other's times: leave times out with --no-timing, "
                + ("or give every trial a node of its own with --exclusive" if queue else "or use --jobs 1")
            )
        if queue:
            return partial(_slurm.submitted, queue=queue, folder=self.path.parent / "slurm")
        if jobs > 1:
            return partial(cells.abreast, jobs=jobs, by=execute)
        return partial(cells.one_by_one, on_step=self._starts, by=execute)

    def take(self, works: Iterable[cells.Work]) -> None:
        """Take the figures of trials that have ended, and write all."""
        places = set()
        for work in works:
            number = self._numbers[work.cell.key]
            cell, place = self.record.cells[number], number % len(self.record.points)
            places.add(place)
            if cell.outcome and cell.outcome.status == "ok":
                result = work.cell.result(work.out)
                cell.take(result, self.record.timed)
                self._environments.append(result.environment)
                if self.record.timed:
                    self._rounds[place] += schema.rounds(result.samples, "epoch")
        for place in places:
            self.record.refresh(place, self._rounds[place])
        self.save()

    def ended(self, work: cells.Work) -> None:
        """Take the figures of a trial that has just ended, and tell of it."""
        self.take([work])
        self._tell(work)

    def save(self) -> None:
        """Write what is known."""
        self.record.environment = self._environments[0] if self._environments else {}
        text = "trials ran on different hardware or software: their times are not to be compared"
        if differs(self._environments) and text not in self.record.warnings:
            self.record.warnings.append(text)
        files.save_json(self.record, self.path)

    def _starts(self, work: cells.Work, step: str) -> None:
        if not step:
            self._tell(work)

    def _tell(self, work: cells.Work) -> None:
        done = sum(cell.outcome is not None for cell in self.record.cells)
        name = f"{work.cell.name}, seed {work.cell.seed}"
        self.on_event(Progress(name, done, len(self.works), self.record))


def _works(plan: Plan, out: Path, roots: Roots) -> list[Work]:
    names = {trial.config["backend"]["name"] for trial in plan.trials}
    digests = {name: code.digest(backends.module_of(name)) for name in names}
    return [
        Work(cell=each, roots=roots, out=out / "cells" / each.key, code=digests[each.config["backend"]["name"]])
        for each in plan.trials
    ]


def _estimate(trial: Trial, known: dict[str, list[tuple[float, float]]]) -> float | None:
    for kind in (repr(trial.values), _kind(trial.config)):
        if kind in known:
            return median(once + trial.config["train"]["epochs"] * epoch for once, epoch in known[kind])
    return None


def _kind(config: dict[str, Any]) -> str:
    """Return what runs share whose epochs take about as long."""
    return repr([config["dataset"], config["model"]["name"], config["backend"]["name"]])
