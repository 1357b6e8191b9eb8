"""Sweeps: a run varied along axes, with several seeds; each trial in a fresh process and kept on disk.

_plan        the YAML file, and the trials that it asks for, each in a fresh process
_record      what the trials come to
__init__     how they are run, as jobs of a cluster too
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
from gnnbench.sweeps._plan import Plan, Trial, Work, load
from gnnbench.sweeps._record import Point, Sweep, TrialRecord

__all__ = ["Plan", "Point", "Queue", "Sweep", "Trial", "load", "planned", "sweep"]

POLL_S = {"slurm": 10.0}  # between two looks at the jobs; elsewhere 0.1


@dataclass(frozen=True)
class Queue:
    """Resources asked of a cluster for every trial, by submitit; trials are jobs of one array."""

    abreast: int = 64  # jobs that may run at a time
    partition: str = ""  # empty for the cluster's own choice
    minutes: int = 60  # limit of a trial
    gpus: int = 0  # of a trial
    exclusive: bool = False  # a trial has its node to itself
    cluster: str = "slurm"  # for tests "local", processes on this machine, or "debug", this process


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
    on_event: Callable[[Sweep, str], None] = lambda *_: None,
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
        on_event: called as trials start and end, with everything known so far and the trial in words.
        execute: runs a trial; in a fresh process if None.

    Raises:
        ConfigError: trials are to be timed while others run beside them.
        GnnbenchError: `out` cannot be written.
    """
    if plan.timed and (jobs > 1 or (queue and not queue.exclusive)):
        raise ConfigError(
            "trials that run side by side disturb each other's times: leave times out with --no-timing, "
            + ("or give every trial a node of its own with --exclusive" if queue else "or use --jobs 1")
        )
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
            TrialRecord(key=trial.key, definition={"values": trial.values, "seed": trial.seed}, outcome=ended)
            for trial, ended in ((work.cell, work.finished()) for work in works)
        ],
        points=[
            Point(name=trial.name, values=trial.values)
            for trial in plan.trials[: len(plan.trials) // plan.repeats]
        ],
    )
    numbers = {work.cell.key: number for number, work in enumerate(works)}
    rounds: dict[int, list[list[float]]] = defaultdict(list)  # epochs of a configuration in seconds
    environments: list[dict[str, Any]] = []

    def save() -> None:
        record.environment = environments[0] if environments else {}
        text = "trials ran on different hardware or software: their times are not to be compared"
        if differs(environments) and text not in record.warnings:
            record.warnings.append(text)
        files.save_json(record, out / files.SWEEP)

    def take(ended: Iterable[cells.Work]) -> None:
        """Take the figures of trials that have ended, and write all."""
        places = set()
        for work in ended:
            number = numbers[work.cell.key]
            cell, place = record.cells[number], number % len(record.points)
            places.add(place)
            if cell.outcome and cell.outcome.status == "ok":
                result = work.cell.result(work.out)
                cell.take(result, record.timed)
                environments.append(result.environment)
                if record.timed:
                    rounds[place] += schema.rounds(result.samples, "epoch")
        for place in places:
            record.refresh(place, rounds[place])
        save()

    def tell(work: cells.Work, step: str = "") -> None:
        if not step:
            done = sum(cell.outcome is not None for cell in record.cells)
            on_event(record, f"{work.cell.name}, seed {work.cell.seed} ({done} of {len(works)} done)")

    def ended(work: cells.Work) -> None:
        take([work])
        tell(work)

    runner: Runner = partial(cells.one_by_one, on_step=tell, by=execute)
    if queue:
        runner = partial(_submitted, queue=queue, folder=out / "slurm")
    elif jobs > 1:
        runner = partial(cells.abreast, jobs=jobs, by=execute)
    take(work for work, cell in zip(works, record.cells, strict=True) if cell.outcome)
    status = cells.run(works, record.cells, runner, ended)
    lost = sum(cell.outcome is None for cell in record.cells)
    record.status = "incomplete" if status == "ok" and lost else status
    if record.status == "incomplete":
        record.warnings.append(f"the cluster lost {lost} trials: the same command runs them again")
    save()
    return record


def _submitted(works: Sequence[cells.Work], *, queue: Queue, folder: Path) -> cells.Ended:
    """Submit all trials and yield each as it ends; a trial without an outcome was lost by the cluster.

    Args:
        folder: for the scripts and logs of jobs.

    Raises:
        ConfigError: submitit is not installed, finds no cluster, or the cluster refuses the jobs.
    """
    if not works:
        return
    try:
        import submitit
    except ImportError:
        raise ConfigError("--jobs slurm needs submitit; install it with: pip install 'gnnbench[slurm]'") from None
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=queue.cluster)
    except RuntimeError as error:
        raise ConfigError(f"--jobs slurm: {error}") from None
    asked = {
        "name": "gnnbench",
        "timeout_min": queue.minutes,
        "gpus_per_node": queue.gpus,
        "slurm_array_parallelism": queue.abreast,
        "slurm_partition": queue.partition,
        "slurm_exclusive": queue.exclusive,
    }
    executor.update_parameters(**{name: value for name, value in asked.items() if value})
    try:
        jobs = executor.map_array(partial(cells.perform, tell=print), works)
    except submitit.core.utils.FailedJobError as error:
        raise ConfigError(f"--jobs slurm: the cluster refuses the jobs: {' '.join(str(error).split())}") from None
    running = dict(zip(jobs, works, strict=True))
    try:
        for job in submitit.helpers.as_completed(jobs, poll_frequency=POLL_S.get(queue.cluster, 0.1)):
            work = running.pop(job)
            yield work, work.finished()
    finally:
        for job in running:
            job.cancel(check=False)


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
