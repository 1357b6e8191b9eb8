"""Trials as jobs of a cluster: on submitit's executors for one machine, and on Slurm's commands as scripts."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gnnbench import cells, datasets, kinds, sweeps
from gnnbench.errors import ConfigError
from tests.support.commands import run
from tests.support.trials import swept, written

GRID = "run: run.yaml\ngrid: {model.hidden: [4, 8]}\n"
SLURM = {  # as far as submitit uses it: tasks of an array are processes, which end after sbatch does
    "sbatch": """
        cp "$1" "$SLURM_FAKE/script"
        [ -e "$SLURM_FAKE/full" ] && { echo "sbatch: error: Invalid partition" >&2; exit 1; }
        for task in 0 1; do
            SLURM_JOB_ID=7$task SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$task SLURM_NTASKS=1 SLURM_NNODES=1 \\
            SLURM_JOB_NODELIST=host SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 \\
            bash -c 'bash "$0"; touch "$SLURM_FAKE/ended-$SLURM_ARRAY_TASK_ID"' "$1" &>"$SLURM_FAKE/log-$task" &
        done
        echo "Submitted batch job 7"
    """,
    "srun": """
        while [[ "$1" == -* ]]; do [[ "$1" == *=* || "$1" == --unbuffered ]] || shift; shift; done
        exec "$@"
    """,
    "sacct": """
        echo 'JobID|State|NodeList'
        for task in 0 1; do
            [ -e "$SLURM_FAKE/ended-$task" ] && echo "7_$task|COMPLETED|host" || echo "7_$task|RUNNING|host"
        done
    """,
    "scancel": 'echo "$@" >>"$SLURM_FAKE/cancelled"',
}


@pytest.fixture
def submitit() -> Any:
    return pytest.importorskip("submitit", reason="submitit is not installed: pip install -e '.[slurm]'")


@pytest.fixture
def slurm(submitit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what Slurm's commands were told."""
    folder = tmp_path / "slurm"
    folder.mkdir()
    for name, text in SLURM.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("SLURM_FAKE", str(folder))
    monkeypatch.setattr(sweeps, "POLL_S", {})
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.usefixtures("submitit")
def test_trials_that_the_cluster_lost_are_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = sweeps.load(written(tmp_path, GRID), timed=False)
    roots = datasets.Roots(tmp_path / "raw", tmp_path / "cache")
    queue = sweeps.Queue(cluster="debug")
    with monkeypatch.context() as lossy:
        lossy.setattr(cells, "perform", lambda work, tell: None)  # a job that leaves nothing
        found = sweeps.sweep(plan, out=tmp_path, roots=roots, queue=queue)
    assert (found.status, found.exit_code, [point.seeds for point in found.points]) == ("incomplete", 1, [0, 0])
    assert found.warnings == ["the cluster lost 2 trials: the same command runs them again"]
    found = sweeps.sweep(plan, out=tmp_path, roots=roots, queue=queue)
    assert (found.status, [point.seeds for point in found.points]) == ("ok", [1, 1])
    assert all(point.peak_memory_bytes and point.epoch_s is None for point in found.points)


@pytest.mark.slow
@pytest.mark.usefixtures("submitit")
def test_a_job_is_a_process_and_may_have_workers(tmp_path: Path) -> None:
    grid = written(tmp_path, "run: run.yaml\ngrid: {backend: [reference]}\n")
    plan = sweeps.load(grid, ["train.workers=2", "batch.method=contiguous"], timed=False)
    roots = datasets.Roots(tmp_path / "raw", tmp_path / "cache")
    found = sweeps.sweep(plan, out=tmp_path, roots=roots, queue=sweeps.Queue(cluster="local", minutes=5))
    assert (found.status, [point.seeds for point in found.points]) == ("ok", [1]), found.points
    (trial,) = plan.trials
    assert [worker.rank for worker in trial.result(tmp_path / "cells" / trial.key).workers] == [0, 1]
    (pickle,) = (tmp_path / "slurm").glob("*_result.pkl")
    assert pickle.name.partition("_")[0] != str(os.getpid())


@pytest.mark.slow
def test_what_the_command_line_asks_reaches_slurm(slurm: Path, tmp_path: Path) -> None:
    options = ("--jobs", "slurm:1", "--partition", "gpu", "--time", "90", "--gpus", "1", "--exclusive")
    output = run("sweep", written(tmp_path, GRID), *options, "--out", "out")
    assert output.code == 0, (output, (slurm / "log-0").read_text())
    asked = dict(re.findall(r"#SBATCH --([\w-]+)(?:=(.*))?", (slurm / "script").read_text()))
    expected = {"array": "0-1%1", "partition": "gpu", "time": "90", "gpus-per-node": "1", "exclusive": ""}
    assert {**asked, **expected} == asked
    points = kinds.load(tmp_path / "out").points
    assert [(point.seeds, bool(point.epoch_s)) for point in points] == [(1, True), (1, True)]


def test_ctrl_c_cancels_the_jobs_that_run(slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    (slurm / "sbatch").write_text("#!/bin/sh\necho Submitted batch job 7\n")
    monkeypatch.setattr("submitit.helpers.as_completed", stopped)
    found = swept(sweeps.load(written(tmp_path, GRID), timed=False), tmp_path, queue=sweeps.Queue())
    assert found.status == "interrupted"
    assert (slurm / "cancelled").read_text().split() == ["7_0", "7_1"]


def test_a_cluster_that_refuses_says_so(slurm: Path, tmp_path: Path) -> None:
    (slurm / "full").touch()
    output = run("sweep", written(tmp_path, GRID), "--jobs", "slurm", "--no-timing")
    assert output.code == 2
    assert (
        "gnnbench: --jobs slurm: the cluster refuses the jobs: sbatch: error: Invalid partition" in output.stderr
    )


def test_without_submitit_or_a_cluster_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = sweeps.load(written(tmp_path, GRID), timed=False)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match=r"pip install 'gnnbench\[slurm\]'"):
        swept(plan, tmp_path, queue=sweeps.Queue())
    monkeypatch.undo()
    pytest.importorskip("submitit", reason="submitit is not installed: pip install -e '.[slurm]'")
    monkeypatch.setenv("PATH", str(tmp_path))  # without srun
    with pytest.raises(ConfigError, match="--jobs slurm"):
        swept(plan, tmp_path, queue=sweeps.Queue())
