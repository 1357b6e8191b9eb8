"""Trials as jobs of a cluster, on submitit's executor for this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gnnbench import cells, sweep
from gnnbench.errors import ConfigError
from gnnbench.sweep import _slurm
from tests.support.commands import ROOT
from tests.support.trials import swept, written

GRID = "run: run.yaml\ngrid: {model.hidden: [4, 8]}\n"


@pytest.mark.slow
def test_jobs_run_the_trials_and_lost_ones_are_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    plan = sweep.load(written(tmp_path, GRID), timed=False)
    context = cells.Context(raw=tmp_path / "raw", cache=tmp_path / "cache")
    queue = sweep.Queue(cluster="local", minutes=5)
    with monkeypatch.context() as lossy:
        lossy.setattr(cells, "perform", print)  # a job that leaves nothing
        found = sweep.sweep(plan, out=tmp_path, context=context, queue=queue)
    assert (found.status, found.exit_code, [point.seeds for point in found.points]) == ("incomplete", 1, [0, 0])
    assert found.warnings == ["the cluster lost 2 trials: the same command runs them again"]
    found = sweep.sweep(plan, out=tmp_path, context=context, queue=queue)
    assert (found.status, [point.seeds for point in found.points]) == ("ok", [1, 1])
    assert all(point.peak_memory_bytes and point.epoch_s is None for point in found.points)


def test_what_is_asked_of_the_cluster(tmp_path: Path) -> None:
    asked = _slurm.parameters(sweep.Queue(16, partition="gpu", minutes=90, gpus=1, exclusive=True))
    assert asked == {
        "name": "gnnbench",
        "timeout_min": 90,
        "gpus_per_node": 1,
        "slurm_array_parallelism": 16,
        "slurm_partition": "gpu",
        "slurm_exclusive": True,
    }
    assert {*_slurm.parameters(sweep.Queue())} == {"name", "timeout_min", "slurm_array_parallelism"}
    submitit = pytest.importorskip("submitit", reason="submitit is not installed")
    executor = submitit.AutoExecutor(folder=tmp_path, cluster="local")
    executor.update_parameters(**asked)  # raises for names that submitit does not know


def test_without_submitit_or_a_cluster_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = sweep.load(written(tmp_path, GRID), timed=False)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match=r"pip install 'gnnbench\[slurm\]'"):
        swept(plan, tmp_path, queue=sweep.Queue())
    monkeypatch.undo()
    pytest.importorskip("submitit", reason="submitit is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))  # without srun
    with pytest.raises(ConfigError, match="--jobs slurm"):
        swept(plan, tmp_path, queue=sweep.Queue())
