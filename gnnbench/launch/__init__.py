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
from gnnbench.launch import _fork, _ranks, _task
from gnnbench.launch._fork import OnStart
from gnnbench.launch._fork import keep_server as keep_server
from gnnbench.launch._task import Task as Task
from gnnbench.launch._task import start as start
from gnnbench.measure import waiting
from gnnbench.results import files
from gnnbench.results.schema import Status

FILE = "task.json"
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


def run_ranks(
    task: Task, count: int, rendezvous: str, tell: Callable[[str], None] = lambda _: None
) -> dict[int, int]:
    """Write `task` to its folder, and perform it in several processes; see `_ranks.run`.

    They talk through the loopback interface and share the cores, unless `GLOO_SOCKET_IFNAME` and `OMP_NUM_THREADS`
    say otherwise.

    Raises:
        GnnbenchError: `task.out` cannot be written.
    """
    import psutil

    path = task.out / "workers" / FILE
    files.save_json(task, path)
    waiting.spin_briefly()
    cores = len(psutil.Process().cpu_affinity()) if FORKS else psutil.cpu_count() or 1
    own = {"GLOO_SOCKET_IFNAME": loopback(), "OMP_NUM_THREADS": str(max(1, cores // count))}
    return _ranks.run(task.kind, path, count, {**own, **_fork.environment()}, rendezvous, tell)


def rank_verdict(task: Task, rank: int, code: int) -> tuple[Status, str]:
    """Status and sentence for a rank of `run_ranks`, as `verdict` gives them."""
    log = _ranks.log(task.out / "workers" / FILE, rank).read_text(errors="replace")
    status, reason = verdict(code, log)
    return status, f"worker {rank}: {reason}"


def loopback() -> str:
    """The network interface that reaches nothing but this machine."""
    import psutil

    interfaces = psutil.net_if_addrs().items()
    return next(name for name, addresses in interfaces if any(each.address == "127.0.0.1" for each in addresses))


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
