"""A job in a fresh process that leaves a record on disk, even if the process is killed."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from gnnbench import launch
from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.launch import Task
from gnnbench.results import files
from gnnbench.results.schema import OfRun, Status

BAD_INPUT = 2
R = TypeVar("R", bound=OfRun)


class Fresh(Task, Generic[R]):
    """A job of one backend.

    Attributes:
        record: the class of what it leaves.
        config: the resolved configuration, backend included.
    """

    record: ClassVar[Any]
    config: dict[str, Any]

    @property
    def result_path(self) -> Path:
        return self.out / "results.json"

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
        result: R = self.record(
            status=status,
            reason=reason,
            backend=self.config["backend"]["name"],
            dataset=str(source.get("name", source["source"])),
            config=self.config,
            code=self.code,
        )
        return result

    def attempt(self) -> int:
        """Do the job and write its record; returns the exit code."""
        raise NotImplementedError

    def perform(self) -> int:
        """Do the job in this process, whatever happens writing a record; returns the exit code."""
        from gnnbench.measure import memory
        from gnnbench.training import team

        try:
            return self.attempt()
        except Exception as error:
            traceback.print_exc()
            if team.is_first() and self.finished() is None:
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
    if code == BAD_INPUT and result is not None:
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
