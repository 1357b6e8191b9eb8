"""Check what is recorded about the machine: ready for JSON, without names, and never an error."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnbench import measure
from gnnbench.measure import environment

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc and /sys")


def test_everything_is_recorded_and_goes_through_json() -> None:
    found = environment.describe()
    assert json.loads(json.dumps(found)) == found
    assert set(found) == {
        "cpu", "memory_bytes", "threads", "gpus", "cuda", "os", "python", "packages", "git", "load_average",
    }  # fmt: skip
    assert found["packages"]["torch"] == torch.__version__
    assert found["packages"]["gnnbench"]
    assert found["python"] == platform.python_version()
    assert found["threads"]["torch"] == torch.get_num_threads()
    assert 1 <= found["cpu"]["usable_cores"] <= found["cpu"]["logical_cores"]
    assert found["memory_bytes"] > 2**28


@linux
def test_linux_tells_about_its_processor() -> None:
    cpu = environment.describe()["cpu"]
    assert cpu["model"] is None or cpu["model"] in Path("/proc/cpuinfo").read_text()
    assert set(cpu["isa"]) <= {*environment.ISA_FLAGS, "neon"}
    assert all(size >= 1024 for size in (cpu["cache_bytes"] or {}).values())


def test_neither_host_nor_user_is_named() -> None:
    found = environment.describe()
    del found["packages"], found["git"]  # their texts may hold anything
    text = json.dumps(found)
    if len(platform.node()) > 4:  # a shorter name may be part of any word
        assert platform.node() not in text
    assert str(Path.home()) not in text


def test_what_cannot_be_found_out_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refused)
    monkeypatch.setattr(environment.subprocess, "run", refused)
    monkeypatch.setattr(environment.psutil, "getloadavg", refused)
    found = environment.describe()
    assert found["git"] is None
    assert found["load_average"] is None
    assert found["cuda"]["driver"] is None
    assert found["python"]


@linux
def test_openmp_runtimes_are_those_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "7f00-7f01 r-xp 00000000 08:01 11 /opt/torch/lib/libgomp-a34b3233.so.1",
        "7f01-7f02 r--p 00000000 08:01 11 /opt/torch/lib/libgomp-a34b3233.so.1",
        "7f02-7f03 r-xp 00000000 08:01 12 /opt/my packages/libiomp5.so",
        "7f03-7f04 r-xp 00000000 08:01 13 /usr/lib/libc.so.6",
        "7f04-7f05 rw-p 00000000 00:00 0 ",
        "7f05-7f06 r-xp 00000000 08:01 14 /opt/libgomper/libother.so",
        "7f06-7f07 r-xp 00000000 08:01 15 /opt/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0",
    ]
    monkeypatch.setattr(Path, "read_text", lambda self: "\n".join(lines))
    assert environment.openmp_runtimes() == ["libgomp-a34b3233.so.1", "libiomp5.so"]


def test_thread_variables_are_recorded_as_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert environment.threads()["variables"] == {"OMP_NUM_THREADS": "3"}


@linux
def test_cores_are_those_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert environment.usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_the_revision_is_of_our_checkout_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = Path(environment.gnnbench.__file__).resolve().parent.parent
    answers = {"--show-toplevel": str(root), "HEAD": "0123abc", "--untracked-files=no": " M gnnbench/run.py"}
    monkeypatch.setattr(environment, "_command", lambda *words: answers[words[-1]])
    assert environment._git() == {"revision": "0123abc", "dirty": True}
    answers["--untracked-files=no"] = ""
    assert environment._git() == {"revision": "0123abc", "dirty": False}
    answers["--show-toplevel"] = str(tmp_path)  # installed into an environment inside someone's project
    assert environment._git() is None


def test_threads_spin_briefly_unless_the_user_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {name: value for name, value in os.environ.items() if name not in measure.SPIN_VARIABLES}
    monkeypatch.setattr(os, "environ", {**variables, "OMP_WAIT_POLICY": "ACTIVE"})
    measure.spin_briefly()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setattr(os, "environ", variables)
    measure.spin_briefly()
    assert os.environ["GOMP_SPINCOUNT"] == str(measure.SPINS)
    assert environment.describe()["threads"]["variables"]["GOMP_SPINCOUNT"] == str(measure.SPINS)
