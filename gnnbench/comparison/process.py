"""One job in a fresh process: what becomes of it is a `Result` on disk, even if the process is killed."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gnnbench import launch, stopping
from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.launch import Task
from gnnbench.results import files
from gnnbench.results.schema import Result, Status

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import Run
    from gnnbench.training import setup
    from gnnbench.training.batching._batch import Batching
    from gnnbench.training.run import Inspect

BAD_INPUT = 2


class Job(Task):
    """A run, or a step of one.

    Attributes:
        task: "train" one run, "reference" or "parity" one step whose tensors are saved beside the result.
        config: the resolved configuration, backend included.
        reference: of training, the tensors that it is checked against after its last epoch, and whose they are.
    """

    task: Literal["reference", "parity", "train"]
    config: dict[str, Any]
    reference: tuple[Path, str] | None = None

    @property
    def result_path(self) -> Path:
        return self.out / "results.json"

    @property
    def tensors_path(self) -> Path:
        return self.out / "tensors.pt"

    @property
    def verdict_path(self) -> Path:
        return self.out / "verdict.json"

    def finished(self) -> Result | None:
        """The result of an earlier process that came to an end of any kind; None if there is none."""
        try:
            result = files.load(Result, self.result_path)
        except GnnbenchError:
            return None
        return None if result.status == "interrupted" else result

    def perform(self) -> int:
        """Do the job in this process, whatever happens writing a `Result`; returns the exit code."""
        from gnnbench import config
        from gnnbench.measure import memory
        from gnnbench.training import run, team

        try:
            run_config = config.validate(self.config, "comparison")
            if run_config.distributed and not team.started():
                return _in_workers(self, run_config.train.workers)
            if self.task == "train":
                inspect = _inspection(self, run_config)
                result = run.run(run_config, roots=self.roots, out=self.out, inspect=inspect)
                return stopping.exit_code() if result.status == "interrupted" else 0
            _snapshot(self, run_config)
        except Exception as error:
            traceback.print_exc()
            if team.is_first() and self.finished() is None:
                files.save_json(failed(self, *memory.ending(error)), self.result_path)
            return getattr(error, "exit_code", 1)
        return 0


def execute(job: Job) -> Result:
    """Run a job in a fresh process and wait; a process that is stopped or dies becomes a `Result` too.

    Raises:
        ConfigError: the process found its input bad, which would be so for every backend.
        GnnbenchError: `job.out` cannot be written, or the code changed since `job` was made.
    """
    job.result_path.unlink(missing_ok=True)
    code, log = launch.run(job)
    result = job.finished()
    if code == BAD_INPUT and result is not None:
        job.result_path.unlink()
        raise ConfigError(result.reason)
    if result is None:
        result = failed(job, *launch.verdict(code, log))
        files.save_json(result, job.result_path)
    if result.code != job.code:
        job.result_path.unlink()
        raise GnnbenchError(
            f"the code of backend {result.backend!r} changed while it was compared: run the same command again"
        )
    return result


def failed(job: Job, status: Status, reason: str) -> Result:
    """The result of a job that never wrote one."""
    source = job.config["dataset"]
    return Result(
        status=status,
        reason=reason,
        backend=job.config["backend"]["name"],
        dataset=str(source.get("name", source["source"])),
        config=job.config,
        code=job.code,
    )


def _in_workers(job: Job, count: int) -> int:
    """Do the job in so many processes; the exit code of the first that fails."""
    from gnnbench.training import team

    for rank, code in launch.run_ranks(job, count, team.RENDEZVOUS).items():
        if code:
            if job.finished() is None or code < 0:
                files.save_json(failed(job, *launch.rank_verdict(job, rank, code)), job.result_path)
            return code if code > 0 else 1
    return 0


def _snapshot(job: Job, run_config: Run) -> None:
    """Write what a backend computes, and a result."""
    from gnnbench import backends
    from gnnbench.comparison.parity import steps
    from gnnbench.measure import code
    from gnnbench.training.team import joined

    digest = code.digest(backends.module_of(run_config.backend.name))
    with joined(run_config, job.config, digest) as team, team.propagate_errors():
        path = None if team.rank else job.tensors_path
        label = steps.snapshot(run_config, job.roots, path, as_reference=job.task == "reference")
    if path:
        name = run_config.backend.name
        result = Result(status="ok", backend=name, dataset=label, config=job.config, code=digest)
        files.save_json(result, job.result_path)


def _inspection(job: Job, run_config: Run) -> Inspect | None:
    """The check of a trained model against the reference, which writes the verdict; None without a reference."""
    if job.reference is None:
        return None
    path, name = job.reference

    def inspect(backend: Backend, model: Module, batching: Batching, dims: setup.ModelDims) -> None:
        from gnnbench.comparison.parity import judge, steps
        from gnnbench.training import team

        expected = judge.Snapshot.load(path)
        snapshot = steps.trained(run_config, backend, model, batching, dims)
        if team.is_first():
            files.save_json(judge.judge_trained(snapshot, expected, name), job.verdict_path)

    return inspect
