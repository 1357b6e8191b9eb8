"""One job in a fresh process: what becomes of it is a `Result` on disk, even if the process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gnnbench.errors import BackendUnavailable, ConfigError, GnnbenchError, OutOfMemory, UnsupportedOp
from gnnbench.results import files
from gnnbench.results.schema import Record, Result, Status

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import RunConfig
    from gnnbench.datasets import Roots
    from gnnbench.train.loop import Task
    from gnnbench.train.run import Inspect

BAD_INPUT = 2
EXHAUSTED = ("bad_alloc", "cannot allocate memory", "can't allocate memory", "out of memory", "memoryerror")
STATUS: dict[type[BaseException], Status] = {
    UnsupportedOp: "unsupported",
    BackendUnavailable: "unavailable",
    OutOfMemory: "oom",
}


class Job(Record):
    """What a fresh process is to do.

    Attributes:
        task: "train" one run, "reference" or "parity" one step whose tensors are saved beside the result.
        config: the resolved configuration, backend included.
        raw, cache: see `gnnbench.datasets.Roots`.
        out: the folder that everything of this job goes to.
        code: hash of the code that is to run, see `gnnbench.measure.code`.
        reference: of training, the tensors that it is checked against after its last epoch, and whose they are.
    """

    task: Literal["reference", "parity", "train"]
    config: dict[str, Any]
    raw: Path
    cache: Path
    out: Path
    code: str = ""
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


def execute(job: Job) -> Result:
    """Run a job in a fresh process and wait; a process that is stopped or dies becomes a `Result` too.

    Raises:
        ConfigError: the process found its input bad, which would be so for every backend.
        GnnbenchError: `job.out` cannot be written, or the code changed since `job` was made.
    """
    job.result_path.unlink(missing_ok=True)
    path, log = job.out / "job.json", job.out / "log.txt"
    files.save_json(job, path)
    command = [sys.executable, "-X", "faulthandler", "-m", "gnnbench.compare.process", str(path), str(os.getpid())]
    with log.open("wb") as output:
        # A process group of its own, so that Ctrl-C reaches this process alone, which then stops the child.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            code = process.wait()
        finally:
            process.kill()  # does nothing to a process that has ended
            process.wait()
    result = job.finished()
    if code == BAD_INPUT and result is not None:
        job.result_path.unlink()
        raise ConfigError(result.reason)
    if result is None:
        status, reason = verdict(code, log.read_text(errors="replace"))
        result = failed(job, status, reason)
        files.save_json(result, job.result_path)
    if result.code != job.code:
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


def verdict(code: int, log: str) -> tuple[Status, str]:
    """Status and sentence for a process that ended with `code` (negative: a signal) and wrote no result."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    exhausted = next((line for line in reversed(lines) if any(sign in line.lower() for sign in EXHAUSTED)), None)
    if code == -signal.SIGKILL:
        return "oom", "killed by the system, probably out of memory"
    if exhausted is not None:
        return "oom", f"out of memory: {exhausted}"
    if code < 0:
        return "failed", f"crashed with {signal.Signals(-code).name}; see its log.txt"
    last = f": {lines[-1]}" if lines else ""
    return "failed", f"ended with exit code {code} and no result{last}"


def perform(job: Job) -> int:
    """Do the job in this process, whatever happens writing a `Result`; returns the exit code."""
    from gnnbench import config
    from gnnbench.datasets import Roots
    from gnnbench.measure import memory
    from gnnbench.train import run

    roots = Roots(job.raw, job.cache)
    try:
        run_config = config.validate(job.config, "comparison")
        if job.task == "train":
            run.run(run_config, roots=roots, out=job.out, inspect=_inspection(job, run_config))
        else:
            files.save_json(_snapshot(job, run_config, roots), job.result_path)
    except Exception as error:
        status: Status = "oom" if memory.is_exhaustion(error) else "failed"
        status = next((found for kind, found in STATUS.items() if isinstance(error, kind)), status)
        reason = str(error) if isinstance(error, GnnbenchError) else f"{type(error).__name__}: {error}"
        traceback.print_exc()
        if job.finished() is None:
            files.save_json(failed(job, status, reason.partition("\n")[0]), job.result_path)
        return getattr(error, "exit_code", 1)
    return 0


def _snapshot(job: Job, run_config: RunConfig[Any, Any], roots: Roots) -> Result:
    from gnnbench import backends
    from gnnbench.compare.parity import steps
    from gnnbench.measure import code

    digest = code.digest(backends.module_of(run_config.backend.name))
    label = steps.snapshot(run_config, roots, job.tensors_path, as_reference=job.task == "reference")
    return Result(status="ok", backend=run_config.backend.name, dataset=label, config=job.config, code=digest)


def _inspection(job: Job, run_config: RunConfig[Any, Any]) -> Inspect | None:
    """What holds a trained model against the reference and writes the verdict."""
    if job.reference is None:
        return None
    path, name = job.reference

    def inspect(backend: Backend, model: Module, task: Task) -> None:
        from gnnbench.compare.parity import judge, steps

        expected = judge.Snapshot.load(path)
        found = steps.trained(run_config, backend, model, task, expected.tensors["logits"].size(1))
        files.save_json(judge.judge_trained(found, expected, name), job.verdict_path)

    return inspect


def die_with_parent(parent: int) -> None:
    """Ask Linux to end this process when the comparison that started it dies, even by SIGKILL."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be asked for
            sys.exit(1)


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    sys.exit(perform(Job.model_validate_json(Path(sys.argv[1]).read_bytes())))
