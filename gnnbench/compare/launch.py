"""Fresh processes: how they are started and waited for, and what their end says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gnnbench.measure import memory, waiting
from gnnbench.results import files
from gnnbench.results.schema import Status


def start(command: Sequence[str], log: Path, **options: Any) -> subprocess.Popen[str]:
    """A process in a group of its own, so that Ctrl-C reaches this process alone, which then ends the other."""
    with log.open("wb") as errors:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True, **options
        )


def run(module: str, task: BaseModel, path: Path, tell: Callable[[str], None] = lambda _: None) -> tuple[int, str]:
    """Write `task` to `path`, and run `python -m module` on it to its end: its exit code and its log.

    Args:
        tell: hears every line that the process prints.

    Raises:
        GnnbenchError: `path` cannot be written.
    """
    files.save_json(task, path)
    waiting.spin_briefly()
    log = path.with_name("log.txt")
    command = [sys.executable, "-X", "faulthandler", "-m", module, str(path), str(os.getpid())]
    process = start(command, log, stdin=subprocess.DEVNULL)
    try:
        assert process.stdout
        for line in process.stdout:
            tell(line.strip())
        code = process.wait()
    finally:
        process.kill()  # does nothing to a process that has ended
        process.communicate()
    return code, log.read_text(errors="replace")


def verdict(code: int, log: str) -> tuple[Status, str]:
    """Status and sentence for a process that ended with `code` (negative: a signal) and wrote no result."""
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


def die_with_parent(parent: int) -> None:
    """Ask Linux to end this process when the one that started it dies, even by SIGKILL."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it could be asked for
            sys.exit(1)
