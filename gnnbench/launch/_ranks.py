"""Processes that work together, as torchrun starts them: ranks 0 to N - 1 on this machine."""

from __future__ import annotations

import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from gnnbench import stopping
from gnnbench.launch import _fork, _task
from gnnbench.launch._task import Task
from gnnbench.measure import waiting
from gnnbench.results import files
from gnnbench.results.schema import Status

FOLDER = "workers"
GRACE_S = 4  # that the others have to end in, once a process has failed


def run_ranks(
    task: Task, count: int, rendezvous: str, tell: Callable[[str], None] = lambda _: None
) -> dict[int, int]:
    """Write `task` to its folder, and perform it in `count` processes to their end.

    Once one of them fails the others have to end, too. A stop is passed on to all; a second Ctrl-C kills them.
    They talk through the loopback interface and share the cores, unless `GLOO_SOCKET_IFNAME` and `OMP_NUM_THREADS`
    say otherwise.

    Args:
        rendezvous: the variable that tells them where to meet.
        tell: hears every line that rank 0 prints.

    Returns:
        The exit codes by rank, negative for a signal; none of those that were killed here.

    Raises:
        GnnbenchError: `task.out` cannot be written.
    """
    import psutil

    path = task.out / FOLDER / _task.FILE
    files.save_json(task, path)
    waiting.spin_briefly()
    cores = len(psutil.Process().cpu_affinity()) if sys.platform == "linux" else psutil.cpu_count() or 1
    shared = {"GLOO_SOCKET_IFNAME": loopback(), "OMP_NUM_THREADS": str(max(1, cores // count))}
    events: queue.SimpleQueue[tuple[int, int | str]] = queue.SimpleQueue()
    codes: dict[int, int] = {}
    killed: set[int] = set()
    asked: set[int] = set()
    processes: list[subprocess.Popen[str]] = []

    def pass_on(number: int) -> None:
        asked.add(number)
        for process in processes:
            process.send_signal(number)  # does nothing to one that has ended

    with tempfile.TemporaryDirectory() as folder, stopping.handled(pass_on):
        meet = {rendezvous: f"file://{folder}/rendezvous", "WORLD_SIZE": str(count)}
        environment = {**shared, **_fork.environment(), **meet}
        try:
            for rank in range(count):
                process = _task.start(
                    _task.command(task.kind, path),
                    _log(task, rank),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL if rank else subprocess.PIPE,
                    env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                )
                processes.append(process)
                threading.Thread(target=_watch, args=(rank, process, events), daemon=True).start()
            failed = False
            while len(codes) < count:
                try:
                    rank, event = events.get(timeout=GRACE_S if failed else None)
                except queue.Empty:
                    killed |= {*range(count)} - codes.keys()
                    _kill(processes)
                    continue
                if isinstance(event, str):
                    tell(event)
                else:
                    codes[rank] = event
                    orderly = event == 0 or (stopping.stopped(event) and (event > 0 or bool(asked)))
                    failed = failed or not orderly
        finally:
            _kill(processes)
    return {rank: code for rank, code in codes.items() if rank not in killed}


def rank_verdict(task: Task, rank: int, code: int) -> tuple[Status, str]:
    """Status and sentence for a rank, as `_task.verdict` gives them."""
    status, reason = _task.verdict(code, _log(task, rank).read_text(errors="replace"))
    return status, f"worker {rank}: {reason}"


def loopback() -> str:
    """The network interface that reaches nothing but this machine."""
    import psutil

    interfaces = psutil.net_if_addrs().items()
    return next(name for name, addresses in interfaces if any(each.address == "127.0.0.1" for each in addresses))


def _log(task: Task, rank: int) -> Path:
    """Return the file of what a rank writes to standard error."""
    return task.out / FOLDER / f"log-{rank}.txt"


def _watch(rank: int, process: subprocess.Popen[str], events: queue.SimpleQueue[tuple[int, int | str]]) -> None:
    """Pass on every line of a process, then its exit code."""
    with process.stdout or nullcontext(()) as lines:
        for line in lines:
            events.put((rank, line.strip()))
    events.put((rank, process.wait()))


def _kill(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.wait()
