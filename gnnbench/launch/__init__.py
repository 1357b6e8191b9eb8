"""Jobs, each in a fresh process of its own: how they are run and waited for, and what their end says.

__init__     the ways to run a job, and the choice between them
_task        what a process is to do, and a fresh interpreter that does it
_fork        jobs forked from a server, which imports PyTorch and PyG once, and what a fork leaves out
_server      that process
_ranks       processes that work together
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from gnnbench import stopping
from gnnbench.launch import _fork, _task
from gnnbench.launch._fork import OnStart
from gnnbench.launch._fork import keep_server as keep_server
from gnnbench.launch._ranks import loopback as loopback
from gnnbench.launch._ranks import rank_verdict as rank_verdict
from gnnbench.launch._ranks import run_ranks as run_ranks
from gnnbench.launch._task import FILE, Task
from gnnbench.launch._task import start as start
from gnnbench.launch._task import verdict as verdict
from gnnbench.measure import waiting
from gnnbench.results import files

GRACE_S = 0.2  # in which what kills all processes of a cluster's job reaches this one too
# Linux ends a process with its parent; macOS does not, nor does it fork safely, and CUDA does not survive a fork.
FORKS = sys.platform == "linux" and not os.path.exists("/dev/nvidiactl")


def prepare() -> None:
    """Begin to import what jobs need, in another process, so that the first of them starts sooner."""
    waiting.spin_briefly()
    if FORKS:
        _fork.server()


class Group:
    """Jobs that threads wait for, so that another thread can end them all."""

    def __init__(self) -> None:
        self.ended = False
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []

    def add(self, end: Callable[[], None]) -> None:
        """A job that is about to start, or has just; if all were ended meanwhile, so is this one."""
        with self._lock:
            self._ends.append(end)
            if self.ended:
                end()

    def end(self) -> None:
        """End those that run, and those that are still to come."""
        with self._lock:
            self.ended = True
            for end in self._ends:
                end()


def run(task: Task, tell: Callable[[str], None] = lambda _: None, group: Group | None = None) -> tuple[int, str]:
    """Write `task` to its folder, and perform it in a fresh process to its end.

    The process dies with this one. An exception here, such as by Ctrl-C, ends it too. A signal that stops it alone
    stops this one too.

    Args:
        tell: hears every line that the process prints.
        group: ends the process from another thread; this then raises KeyboardInterrupt.

    Returns:
        Its exit code, negative for a signal, and its log.

    Raises:
        GnnbenchError: `task.out` cannot be written.
    """
    path, log = task.out / FILE, task.out / "log.txt"
    files.save_json(task, path)
    waiting.spin_briefly()
    try:
        code = (_fork.run if FORKS else _run)(task.kind, path, log, tell, group.add if group else lambda _: None)
    except OSError:
        if group and group.ended:
            raise KeyboardInterrupt from None
        raise
    if (group and group.ended) or stopping.stopped(code):
        raise KeyboardInterrupt
    if code == -signal.SIGKILL:
        threading.Event().wait(GRACE_S)
    return code, log.read_text(errors="replace")


def _run(kind: str, path: Path, log: Path, tell: Callable[[str], None], on_start: OnStart) -> int:
    """Run a job in a fresh interpreter."""
    process = start(_task.command(kind, path), log, stdin=subprocess.DEVNULL, env=_fork.environment())
    try:
        on_start(process.kill)
        assert process.stdout
        for line in process.stdout:
            tell(line.strip())
        return process.wait()
    finally:
        process.kill()  # does nothing to a process that has ended
        process.communicate()
