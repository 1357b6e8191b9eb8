"""Jobs, each in a fresh process of its own: how they are run and waited for, and what their end says.

__init__     the ways to run a job, alone or as ranks that work together, and the choice between them
_task        what a process is to do, and a fresh interpreter that does it
_fork        jobs forked from a server, which imports PyTorch and PyG once, and what a fork leaves out
_server      that process
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from gnnbench import stopping
from gnnbench.launch import _fork, _task
from gnnbench.launch._fork import keep_server as keep_server
from gnnbench.launch._task import FILE, THREADS, Task
from gnnbench.launch._task import start as start
from gnnbench.launch._task import verdict as verdict
from gnnbench.results import files
from gnnbench.results.schema import Status

GRACE_S = 0.2  # in which what kills all processes of a cluster's job reaches this one too
RANKS_GRACE_S = 4  # that the other ranks have to end in, once one has failed
RANKS = "workers"  # the folder of what is theirs
RENDEZVOUS = "GNNBENCH_RENDEZVOUS"  # the variable that tells them where to meet
# Linux ends a process with its parent; macOS does not, nor does it fork safely, and CUDA does not survive a fork.
FORKS = sys.platform == "linux" and not os.path.exists("/dev/nvidiactl")
Process = subprocess.Popen[str] | _fork.Child  # a job that was started


def prepare() -> None:
    """Begin to import what jobs need, in another process, so that the first of them starts sooner."""
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
    group = group or Group()
    process = _start(task.kind, path, log, {}, group=group)
    try:
        group.add(process.kill)
        assert process.stdout
        with process.stdout:
            for line in process.stdout:
                tell(line.strip())
        code = process.wait()
    finally:
        process.kill()  # does nothing to a process that has ended
        process.wait()
    if group.ended or stopping.stopped(code):
        raise KeyboardInterrupt
    if code == -signal.SIGKILL:
        threading.Event().wait(GRACE_S)
    return code, log.read_text(errors="replace")


def _start(
    kind: str,
    path: Path,
    log: Path,
    variables: dict[str, str],
    stdout: int = subprocess.PIPE,
    group: Group | None = None,
) -> Process:
    """Start the task of this kind that is in `path`, with these variables in its environment too."""
    if not FORKS:
        environment = {**_fork.environment(), **variables}
        return start(_task.command(kind, path), log, stdout, stdin=subprocess.DEVNULL, env=environment)
    server = _fork.server()
    if group:
        group.add(server.close)  # as it may have to be waited for
    return server.start(kind, path, log, variables, stdout)


def run_ranks(task: Task, count: int, tell: Callable[[str], None] = lambda _: None) -> dict[int, int]:
    """Write `task` to its folder, and perform it to its end in `count` processes, as torchrun starts them.

    Once one of them fails the others have to end, too. A stop is passed on to all; a second Ctrl-C kills them.
    They talk through the loopback interface and share the cores, unless `GLOO_SOCKET_IFNAME` and `OMP_NUM_THREADS`
    say otherwise.

    Args:
        tell: hears every line that rank 0 prints.

    Returns:
        The exit codes by rank, negative for a signal; none of those that were killed here.

    Raises:
        GnnbenchError: `task.out` cannot be written.
    """
    from gnnbench.measure import environment as machine  # which imports PyTorch

    path = task.out / RANKS / FILE
    files.save_json(task, path)
    threads = max(1, machine.usable_cores() // count)
    shared = {"GLOO_SOCKET_IFNAME": loopback(), THREADS: str(threads)}
    shared = {name: value for name, value in shared.items() if name not in os.environ}
    events: queue.SimpleQueue[tuple[int, int | str]] = queue.SimpleQueue()
    codes: dict[int, int] = {}
    asked: set[int] = set()
    processes: list[Process] = []

    def pass_on(number: int) -> None:
        asked.add(number)
        for process in processes:
            process.send_signal(number)  # does nothing to one that has ended

    def watch(rank: int, process: Process) -> None:
        """Pass on every line of a process, then its exit code."""
        with process.stdout or nullcontext(()) as lines:
            for line in lines:
                events.put((rank, line.strip()))
        events.put((rank, process.wait()))

    with tempfile.TemporaryDirectory() as folder, stopping.handled(pass_on):
        meet = {RENDEZVOUS: f"file://{folder}/rendezvous", "WORLD_SIZE": str(count)}
        try:
            for rank in range(count):
                place = {**shared, **meet, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                output = subprocess.DEVNULL if rank else subprocess.PIPE
                process = _start(task.kind, path, _log(task, rank), place, output)
                processes.append(process)
                for number in asked:  # meanwhile
                    process.send_signal(number)
                threading.Thread(target=watch, args=(rank, process), daemon=True).start()
            failed = False
            while len(codes) < count:
                try:
                    rank, event = events.get(timeout=RANKS_GRACE_S if failed else None)
                except queue.Empty:
                    break
                if isinstance(event, str):
                    tell(event)
                else:
                    codes[rank] = event
                    orderly = event == 0 or (stopping.stopped(event) and (event > 0 or bool(asked)))
                    failed = failed or not orderly
        finally:
            for process in processes:
                process.kill()
                process.wait()
    return codes


def started() -> tuple[int, int] | None:
    """Rank of this process and number of processes, as torchrun says in the environment; None for one alone."""
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None


def is_first() -> bool:
    """Return whether this process writes what all of them come to."""
    return (started() or (0, 1))[0] == 0


def rank_verdict(task: Task, rank: int, code: int) -> tuple[Status, str]:
    """Status and sentence for a rank, as `verdict` gives them."""
    status, reason = verdict(code, _log(task, rank).read_text(errors="replace"))
    return status, f"worker {rank}: {reason}"


def loopback() -> str:
    """The network interface that reaches nothing but this machine."""
    import psutil

    interfaces = psutil.net_if_addrs().items()
    return next(name for name, addresses in interfaces if any(each.address == "127.0.0.1" for each in addresses))


def _log(task: Task, rank: int) -> Path:
    """Return the file of what a rank writes to standard error."""
    return task.out / RANKS / f"log-{rank}.txt"
