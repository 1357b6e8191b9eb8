"""Work for a fresh process: the file that it is read from, its kind by name, and what its end says."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from gnnbench.datasets import Roots
from gnnbench.launch import _fork
from gnnbench.results.schema import Record, Status

FILE = "task.json"
THREADS = "OMP_NUM_THREADS"  # the variable of how many there are in a process


class Task(Record):
    """Work for a fresh process."""

    roots: Roots  # where datasets are read, and where processed files go
    out: Path  # the folder that everything of it goes to
    code: str = ""  # hash of the code that is to run, see `gnnbench.measure.code`; empty: not known

    def perform(self) -> int:
        """Do the work in this process; returns the exit code."""
        raise NotImplementedError

    @property
    def kind(self) -> str:
        """Return where the fresh process finds this class: `"module:name"`."""
        return f"{type(self).__module__}:{type(self).__qualname__}"


def command(kind: str, path: Path) -> list[str]:
    """The command of a fresh interpreter that does the task of this kind in a file, and dies with this process."""
    return [sys.executable, "-X", "faulthandler", "-m", __name__, str(os.getpid()), kind, str(path)]


def start(
    command: Sequence[str], log: Path, stdout: int = subprocess.PIPE, **options: Any
) -> subprocess.Popen[str]:
    """A process in a group of its own, so that Ctrl-C reaches this process alone, which then ends the other."""
    with log.open("wb") as errors:
        return subprocess.Popen(
            command, stdout=stdout, stderr=errors, text=True, start_new_session=True, **options
        )


def verdict(code: int, log: str) -> tuple[Status, str]:
    """Status and sentence for a process that ended with `code` (negative: a signal) and wrote no result."""
    from gnnbench.measure import memory  # which imports PyTorch

    lines = [line.strip() for line in log.splitlines() if line.strip()]
    exhausted = next((line for line in reversed(lines) if memory.says_exhausted(line)), None)
    if code == -signal.SIGKILL:
        return "oom", "killed by the system, probably out of memory"
    if exhausted is not None:
        return "oom", f"out of memory: {exhausted}"
    if code < 0:
        return "failed", f"crashed with {signal.Signals(-code).name}; see its log.txt"
    last = f": {lines[-1]}" if lines else ""
    return "failed", f"ended with exit code {code} and no result{last}"


def perform(kind: str, path: Path) -> int:
    """Do the task of this kind that is in a file; returns the exit code."""
    module, _, name = kind.partition(":")
    gc.disable()  # which would take a fifth of the time of the imports of a fresh interpreter
    task: Task = getattr(import_module(module), name).model_validate_json(path.read_bytes())
    gc.enable()
    return task.perform()


if __name__ == "__main__":
    if sys.platform == "linux":
        _fork.die_with(int(sys.argv[1]))
    sys.exit(perform(sys.argv[2], Path(sys.argv[3])))
