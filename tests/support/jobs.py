"""Jobs for the tests of what runs jobs; what they find out, they print."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch

from gnnbench import launch
from gnnbench.measure import memory
from tests.support.compare_runner import ROOTS


class Task(launch.Task):
    do: str

    def perform(self) -> int:
        job: Callable[[Path], int] = globals()[self.do]
        return job(self.out)


def run(do: str, folder: Path, tell: Callable[[str], None] = lambda _: None) -> tuple[int, str]:
    folder.mkdir(exist_ok=True)
    return launch.run(Task(do=do, roots=ROOTS, out=folder), tell)


def surroundings(out: Path) -> int:
    """Environment, threads, session, and the threads of the parent."""
    total = torch.ones(1 << 20).sum()  # by all threads
    own = os.getpid(), os.getsid(0), psutil.Process().parent().num_threads()  # type: ignore[union-attr]
    print(os.environ["OMP_NUM_THREADS"], torch.get_num_threads(), int(total), *own)
    return 0


def little(out: Path, size: int = 1 << 20) -> int:
    """Bytes of the peak above those at rest."""
    meter = memory.HighWaterMark()
    rest = meter.resting()
    torch.ones(size, dtype=torch.uint8)
    print(meter.peak() - rest)
    return 0


def much(out: Path) -> int:
    return little(out, 1 << 29)


def killed(out: Path) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def failed(out: Path) -> int:
    raise KeyError("here")


def hung(out: Path) -> int:
    print(os.getpid(), flush=True)
    threading.Event().wait()
    return 0


def nested(out: Path) -> int:
    """A job that waits for a job of its own, and tells both their processes."""
    run("hung", out / "inner", lambda line: print(os.getpid(), os.getppid(), line, flush=True))
    return 0


def killed_at_random(target: Callable[..., Any], *arguments: Any, out: Path, kills: int, longest_s: float) -> int:
    """How many processes that ran it were killed, up to `kills`, before one came to its end.

    What a cell below `out` has written once it ended is never written again.
    """
    rng, finished, killed = random.Random(0), {}, 0
    while True:
        process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
        process.start()
        process.join(rng.uniform(0.0, longest_s) if killed < kills else None)
        if process.exitcode is not None:
            assert process.exitcode == 0
            return killed
        process.kill()
        process.join()
        killed += 1
        for path in out.glob("cells/*/outcome.json"):
            assert finished.setdefault(path, path.stat().st_mtime_ns) == path.stat().st_mtime_ns
