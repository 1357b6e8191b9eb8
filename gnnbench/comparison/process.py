"""Jobs in fresh processes that leave a record on disk, even if they are killed; runs and steps of a comparison."""

from __future__ import annotations

import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from gnnbench import launch, stopping
from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.launch import Task
from gnnbench.results import files
from gnnbench.results.schema import OfRun, Result, Status

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import Run
    from gnnbench.training import setup
    from gnnbench.training.batching._batch import Batching

Kind = Literal["reference", "exact", "parity", "train", "rounding"]
R = TypeVar("R", bound=OfRun)


class Fresh(Task, Generic[R]):
    """A job of one backend."""

    record: ClassVar[Any]  # the class of what it leaves
    config: dict[str, Any]  # the resolved configuration, backend included
    reference: tuple[Path, str] | None = None  # tensors to compare its own with in the end, and whose they are

    @property
    def result_path(self) -> Path:
        return self.out / "results.json"

    @property
    def tensors_path(self) -> Path:
        return self.out / "tensors.pt"

    def finished(self) -> R | None:
        """The record of an earlier process that came to an end of any kind; None if there is none."""
        try:
            result: R = files.load(self.record, self.result_path)
        except GnnbenchError:
            return None
        return None if result.status == "interrupted" else result

    def failed(self, status: Status, reason: str) -> R:
        """The record of a job that never wrote one."""
        source = self.config["dataset"]
        return self.record(
            status=status,
            reason=reason,
            backend=self.config["backend"]["name"],
            dataset=str(source.get("name", source["source"])),
            config=self.config,
            code=self.code,
        )

    def attempt(self) -> int:
        """Do the job and write its record; returns the exit code."""
        raise NotImplementedError

    def perform(self) -> int:
        """Do the job in this process, whatever happens writing a record; returns the exit code."""
        from gnnbench.measure import memory

        try:
            return self.attempt()
        except Exception as error:
            traceback.print_exc()
            if launch.is_first() and self.finished() is None:
                files.save_json(self.failed(*memory.ending(error)), self.result_path)
            return getattr(error, "exit_code", 1)


def execute(job: Fresh[R]) -> R:
    """Run a job in a fresh process and wait; a process that is stopped or dies leaves a record too.

    Raises:
        ConfigError: the process found its input bad, which would be so for every backend.
        GnnbenchError: `job.out` cannot be written, or the code changed since `job` was made.
    """
    job.result_path.unlink(missing_ok=True)
    code, log = launch.run(job)
    result = job.finished()
    if code == ConfigError.exit_code and result is not None:
        job.result_path.unlink()
        raise ConfigError(result.reason)
    if result is None:
        result = job.failed(*launch.verdict(code, log))
        files.save_json(result, job.result_path)
    if result.code != job.code:
        job.result_path.unlink()
        raise GnnbenchError(
            f"the code of backend {result.backend!r} changed while it was compared: run the same command again"
        )
    return result


class Job(Fresh[Result]):
    """A run, or a step of one.

    Attributes:
        task: "train" one run, "rounding" one from weights that differ in their last bits; "reference", "exact",
            which is in float64, or "parity" steps whose tensors are saved beside the result.
    """

    record: ClassVar[Any] = Result
    task: Kind

    @property
    def verdict_path(self) -> Path:
        return self.out / "verdict.json"

    def attempt(self) -> int:
        from gnnbench import config
        from gnnbench.training import run

        run_config = config.validate(self.config, "comparison")
        if run_config.distributed and not launch.started():
            return _in_workers(self, run_config.train.workers)
        if self.task in ("reference", "exact", "parity"):
            _snapshot(self, run_config)
            return 0
        how: dict[str, Any] = {"inspect": partial(_inspect, self, run_config)} if self.reference else {}
        if self.task == "rounding":
            from gnnbench.comparison.parity import steps

            how = {"begin": steps.jitter_weights}
        result = run.run(run_config, roots=self.roots, out=self.out, **how)
        return stopping.exit_code() if result.status == "interrupted" else 0


def _in_workers(job: Job, count: int) -> int:
    """Do the job in so many processes; the exit code of the first that fails."""
    for rank, code in launch.run_ranks(job, count).items():
        if code:
            if job.finished() is None or code < 0:
                files.save_json(job.failed(*launch.rank_verdict(job, rank, code)), job.result_path)
            return code if code > 0 else 1
    return 0


def _snapshot(job: Job, wanted: Run) -> None:
    """Write what a backend computes, and a result."""
    from gnnbench import backends, datasets
    from gnnbench.comparison.parity import steps
    from gnnbench.measure import code, environment, memory
    from gnnbench.training.team import joined

    digest = code.digest(backends.module_of(wanted.backend.name))
    with joined(wanted, job.config, digest) as team, team.propagate_errors():
        environment.use_threads(wanted.measure.threads)
        backend = backends.load(wanted.backend, wanted.train)
        with memory.limited(wanted.measure.memory_limit, backend.device):
            data = datasets.load(wanted.dataset, job.roots)
            if job.task == "exact":
                computed = steps.in_float64(wanted, backend, data, job.roots.cache)
            else:
                computed = steps.computed(wanted, backend, data, job.task == "reference", job.roots.cache)
        if not team.rank:
            computed.save(job.tensors_path)
    if not team.rank:
        result = job.failed("ok", "").model_copy(update={"dataset": data.label, "code": digest})
        files.save_json(result, job.result_path)


def _inspect(
    job: Job, run_config: Run, backend: Backend, model: Module, batching: Batching, dims: setup.ModelDims
) -> None:
    """Check a trained model against the reference, and write the verdict."""
    from gnnbench.comparison.parity import judge, steps

    assert job.reference
    path, name = job.reference
    expected = judge.Snapshot.load(path)
    snapshot = steps.trained(run_config, backend, model, batching, dims)
    if launch.is_first():
        files.save_json(judge.judge_trained(snapshot, expected, name), job.verdict_path)
