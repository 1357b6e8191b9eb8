"""Fresh processes: backends of other packages that are wrong or die, bad data, nothing left running."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnbench import config, datasets, launch
from gnnbench.comparison import compare, process, record, resolve
from gnnbench.comparison.process import Job
from gnnbench.errors import ConfigError
from tests.support.commands import run
from tests.support.compare_runner import jobs_of, row


@pytest.mark.parametrize(
    ("code", "log", "status", "words"),
    [
        (-signal.SIGKILL, "", "oom", "killed by the system, probably out of memory"),
        (-signal.SIGABRT, "terminate called after\n what(): std::bad_alloc", "oom", "bad_alloc"),
        (-signal.SIGSEGV, "Fatal Python error", "failed", "crashed with SIGSEGV"),
        (1, "Traceback\nKeyError: 'x'\n", "failed", "exit code 1 and no result: KeyError: 'x'"),
        (7, "", "failed", "exit code 7"),
    ],
)
def test_a_process_that_ends_without_result_is_told_by_its_end(
    code: int, log: str, status: str, words: str
) -> None:
    found, reason = launch.verdict(code, log)
    assert found == status
    assert words in reason


CHANGED = """
from gnnbench.backends import reference
from gnnbench.ops.kernels import Kernels

class Changed(Kernels):
    calls = 0

    def spmm(self, graph, x, value, reduce):
        self.calls += 1
        out = super().spmm(graph, x, value, reduce)
        {line}
        return out

class Backend(reference.Backend):
    name = "{name}"
    kernels = Changed
"""
ENDING = """
import os, signal, torch
from gnnbench.backends import base

class Backend(base.Backend):
    name = "{name}"

    def prepare(self, model, dataset):
        {line}
"""
FOREIGN = {
    "wrong": (CHANGED, "out[-1] = 0"),
    "late": (CHANGED, "out *= 1.0 + (self.calls > 14)"),
    "dying": (ENDING, "os.kill(os.getpid(), signal.SIGKILL)"),
    "hungry": (ENDING, "torch.empty(1 << 33, dtype=torch.uint8)"),
}
SMALL: dict[str, Any] = {
    "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.1},
    "model": {"name": "gcn", "hidden": 8},
    "train": {"epochs": 3},
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a backend as another package would."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ["PYTHONPATH"]]))
    monkeypatch.setenv("GNNBENCH_CACHE", str(tmp_path / "cache"))

    def install(name: str, source: str) -> None:
        about = site / f"foreign_{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (site / f"foreign_{name}.py").write_text(source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: foreign-{name}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[gnnbench.backends]\n{name} = foreign_{name}:Backend\n")

    return install


def small(out: Path, *names: str) -> record.Comparison:
    return compare(resolve(config.validate(SMALL, "test"), names), rounds=1, out=out, roots=datasets.roots())


@pytest.mark.slow
def test_wrong_late_dying_and_hungry_backends_of_other_packages(
    tmp_path: Path, installed: Callable[[str, str], None]
) -> None:
    for name, (source, line) in FOREIGN.items():
        installed(name, source.format(name=name, line=line))
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps({**SMALL, "measure": {"warmup": 1, "memory_limit": "3GiB"}}))
    options = "--rounds", "1", "--out", tmp_path / "out", "--json", "--markdown", tmp_path / "table.md"
    output = run("compare", path, "--backends", "pyg,wrong,late,dying,hungry", *options)
    assert output.code == 3, output.stderr
    found = record.Comparison.model_validate_json(output.stdout)
    assert found.dataset.startswith("synthetic")
    assert found.parity.ok is False
    assert "wrong: logits" in found.parity.reason
    assert row(found, "wrong").status == "ok"
    assert row(found, "wrong").speedup == record.NO_SPEEDUP
    late = found.parity.backends["late"]
    assert (late.ok, late.green) == (True, False)  # the gate's own steps do not reach its third epoch
    assert "late: after the last epoch of round 1: " in found.parity.reason
    assert (row(found, "dying").status, row(found, "hungry").status) == ("oom", "oom")
    assert row(found, "dying").reason == "killed by the system, probably out of memory"
    assert row(found, "pyg").speedup["pyg"] is not None
    lines = [line for line in (tmp_path / "table.md").read_text().splitlines() if line.startswith("| wrong ")]
    assert lines
    assert not [line for line in lines if re.search(r"\dx\b(?! pyg)", line)]  # a ratio of memory may be shown

    output = run("infer", path, "--backends", "pyg,wrong,dying", "--rounds", "1", "--json")
    rows = {one["backend"]: one for one in json.loads(output.stdout)["rows"]}
    assert (output.code, rows["wrong"]["speedup"], rows["dying"]["status"]) == (
        3,
        dict.fromkeys(["pyg", record.FASTEST]),
        "oom",
    )


def test_bad_data_end_the_comparison_instead_of_filling_it_with_cells(tmp_path: Path) -> None:
    raw = {"dataset": {"source": "nowhere"}, "backend": {"name": "pyg"}, "model": {}}
    job = Job(task="train", config=raw, roots=datasets.Roots(tmp_path, tmp_path), out=tmp_path / "out")
    with pytest.raises(ConfigError, match="unknown source 'nowhere'"):
        process.execute(job)
    assert job.finished() is None


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends orphans on Linux only")
@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_comparison(
    tmp_path: Path, installed: Callable[[str, str], None], signal_: signal.Signals
) -> None:
    program = (
        "import signal, sys; from pathlib import Path; from tests.comparison import test_child;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"  # which a job in the background starts without
        "found = test_child.small(Path(sys.argv[1]), 'pyg');"
        "print(found.status)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        text=True,
    )
    job = tmp_path / "out" / "parity" / "pyg" / "task.json"
    deadline = time.monotonic() + 60
    while not (running := jobs_of(parent.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    processes = running[0], running[0].parent()
    parent.send_signal(signal_)
    output, _ = parent.communicate(timeout=30)
    for each in processes:
        assert each
        each.wait(timeout=30)
    assert not job.with_name("results.json").exists()
    assert output.strip() == ("interrupted" if signal_ == signal.SIGINT else "")
