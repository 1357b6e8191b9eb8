"""Trials as jobs of a cluster, by submitit; one task each, of one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gnnbench import cells
from gnnbench.errors import ConfigError

POLL_S = {"slurm": 10.0}  # between two looks at the jobs; elsewhere
SOON_S = 0.1


@dataclass(frozen=True)
class Queue:
    """Resources asked of the cluster for every trial.

    Attributes:
        abreast: jobs that may run at a time.
        partition: empty for the cluster's own choice.
        minutes: limit of a trial.
        gpus: of a trial.
        exclusive: whether a trial has its node to itself.
        cluster: "slurm"; for tests "local", processes on this machine, or "debug", this process.
    """

    abreast: int = 64
    partition: str = ""
    minutes: int = 60
    gpus: int = 0
    exclusive: bool = False
    cluster: str = "slurm"


def submitted(works: Sequence[cells.Work], *, queue: Queue, folder: Path) -> cells.Ended:
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
    executor.update_parameters(**parameters(queue))
    perform = partial(cells.perform, tell=_silent)
    try:
        jobs = executor.map_array(perform, works)
    except submitit.core.utils.FailedJobError as error:
        raise ConfigError(f"--jobs slurm: the cluster refuses the jobs: {' '.join(str(error).split())}") from None
    running = dict(zip(jobs, works, strict=True))
    try:
        every = POLL_S.get(queue.cluster, SOON_S)
        for job in submitit.helpers.as_completed(jobs, poll_frequency=every):
            work = running.pop(job)
            yield work, work.finished()
    finally:
        for job in running:
            job.cancel(check=False)


def parameters(queue: Queue) -> dict[str, Any]:
    """Return the parameters for submitit."""
    asked = {
        "name": "gnnbench",
        "timeout_min": queue.minutes,
        "gpus_per_node": queue.gpus,
        "slurm_array_parallelism": queue.abreast,
        "slurm_partition": queue.partition,
        "slurm_exclusive": queue.exclusive,
    }
    return {name: value for name, value in asked.items() if value}


def _silent(_: str) -> None:
    """Jobs tell nobody what they are about to do."""
