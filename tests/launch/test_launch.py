"""Jobs: each has its own memory and environment, computes what a fresh interpreter does, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gnnbench import config, datasets, launch, stopping
from gnnbench.comparison.process import Job
from gnnbench.launch import _server
from gnnbench.training.run import resolved
from tests.support import jobs

pytestmark = pytest.mark.skipif(not launch.FORKS, reason="jobs are forked on Linux only")


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(autouse=True, scope="module")
def nothing_left() -> Iterator[None]:
    before = psutil.Process().children()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch._fork, "_here", threading.local())  # without the server that all tests have
        with launch.keep_server():
            yield
    left = [child for child in psutil.Process().children() if child not in before]
    assert not [child for child in left if _server.__name__ in child.cmdline()]


def told(do: str, folder: Path) -> list[int]:
    """The numbers that a job prints."""
    lines: list[str] = []
    assert jobs.run(do, folder, lines.append) == (0, "")
    return [int(each) for each in " ".join(lines).split()]


def gone(pid: int) -> bool:
    """Return whether a process is gone within a few seconds."""
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not psutil.pid_exists(pid)


def test_jobs_have_their_own_session_environment_and_peak_of_memory(tmp_path: Path) -> None:
    variable, threads, total, pid, session, threads_of_server = told("surroundings", tmp_path)
    assert (variable, threads, total, threads_of_server) == (2, 2, 1 << 20, 1)
    assert session == pid
    much, little = told("much", tmp_path), told("little", tmp_path)
    assert 1 << 29 <= much[0] < 3 << 28
    assert 1 << 20 <= little[0] < 1 << 22


def test_a_job_that_dies_or_fails_is_told_by_its_end(tmp_path: Path) -> None:
    assert jobs.run("killed", tmp_path) == (-signal.SIGKILL, "")
    code, log = jobs.run("failed", tmp_path)
    assert launch.verdict(code, log) == ("failed", "ended with exit code 1 and no result: KeyError: 'here'")


def test_a_job_ends_with_the_job_that_waits_for_it(tmp_path: Path) -> None:
    """Both are forked from the same server, which goes on."""
    seen: list[list[int]] = []

    def kill(line: str) -> None:
        seen.append([int(each) for each in line.split()])
        os.kill(seen[0][0], signal.SIGKILL)

    assert jobs.run("nested", tmp_path, kill) == (-signal.SIGKILL, "")
    _, server, inner = seen[0]
    assert gone(inner)
    lines: list[str] = []
    assert jobs.run("surroundings", tmp_path, lines.append)[0] == 0
    assert psutil.Process(server).is_running()


def test_losses_are_those_of_a_fresh_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {
        "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.1},
        "model": {"name": "gcn", "hidden": 16, "dropout": 0.5},
        "train": {"epochs": 5},
    }
    roots, losses = datasets.roots(), []
    for forks in (True, False):
        monkeypatch.setattr(launch, "FORKS", forks)
        job = Job(
            task="train",
            config=resolved(config.validate(raw, "test")),
            roots=datasets.Roots(roots.raw, tmp_path),
            out=tmp_path / str(forks),
        )
        assert launch.run(job)[0] == 0
        result = job.finished()
        assert result
        assert result.status == "ok"
        losses.append([sample.loss for sample in result.samples])
    assert losses[0] == losses[1]


def test_a_killed_server_is_told_and_replaced(tmp_path: Path) -> None:
    told("little", tmp_path)
    killed = []

    def kill(line: str) -> None:
        killed.append(int(line))
        psutil.Process(int(line)).parent().kill()  # type: ignore[union-attr]

    assert jobs.run("hung", tmp_path, kill) == (-signal.SIGKILL, "")
    assert gone(killed[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_job_that_is_stopped_stops_this_process_too(tmp_path: Path, number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        jobs.run("hung", tmp_path, lambda line: os.kill(int(line), number))
    assert stopping.exit_code() == 128 + number


def test_an_exception_here_ends_the_job_and_another_environment_is_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def stop(line: str) -> None:
        seen.append(int(line))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.run("hung", tmp_path, stop)
    assert gone(seen[0])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert told("surroundings", tmp_path)[:2] == [1, 1]


PRELOADING = """
import json, sys, threading
from pathlib import Path
import torch

def refuse(*_, **__):
    raise SystemExit("CUDA would be initialised")

for name in ("is_available", "device_count", "current_device", "init", "_lazy_init"):
    setattr(torch.cuda, name, refuse)
from gnnbench.launch import _server
_server.preload()
ours = [name for name in sys.modules if name.startswith(("gnnbench.ops", "gnnbench.convs", "gnnbench.patch"))]
missing = [name for name in _server.PRELOADED if name not in sys.modules]
print(json.dumps([len([*Path("/proc/self/task").iterdir()]), ours, missing]))
"""


def test_preloading_starts_no_threads_touches_no_gpu_and_loads_nothing_of_ours_that_computes() -> None:
    done = subprocess.run([sys.executable, "-c", PRELOADING], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [1, [], []]
