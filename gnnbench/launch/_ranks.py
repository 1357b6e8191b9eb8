"""Processes that work together, as torchrun starts them: ranks 0 to N - 1 on this machine."""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from gnnbench import stopping
from gnnbench.launch import _task

GRACE_S = 4  # that the others have to end in, once a process has failed


def run(
    kind: str, path: Path, count: int, environment: dict[str, str], rendezvous: str, tell: Callable[[str], None]
) -> dict[int, int]:
    """Perform the task of this kind that is in `path` in `count` processes to their end.

    Once one of them fails the others have to end, too. A stop is passed on to all; a second Ctrl-C kills them.

    Args:
        path: what they write to standard error goes to files beside it.
        environment: for all of them.
        rendezvous: the variable that tells them where to meet.
        tell: hears every line that rank 0 prints.

    Returns:
        The exit codes by rank, negative for a signal; none of those that were killed here.
    """
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
        try:
            processes.extend(_start(kind, path, rank, {**environment, **meet}) for rank in range(count))
            for rank, process in enumerate(processes):
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


def log(path: Path, rank: int) -> Path:
    """Return the file of what a rank writes to standard error."""
    return path.with_name(f"log-{rank}.txt")


def _start(kind: str, path: Path, rank: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    return _task.start(
        _task.command(kind, path),
        log(path, rank),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if rank else subprocess.PIPE,
        env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
    )


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
