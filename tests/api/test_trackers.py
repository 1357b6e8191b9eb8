"""Trackers hear every epoch by the names of the JSON, while nothing is timed, and cannot end a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gnnbench
from gnnbench.errors import ConfigError
from gnnbench.measure import clock
from gnnbench.results.schema import Result

SET = {"model.hidden": 8, "train.repeats": 2, "train.eval_every": 2}


class Server:
    """Stands in for mlflow and wandb: keeps what they are called with, and refuses calls in timed regions."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[dict[str, Any]] = []
        self.timing = self.down = False
        module: Any = ModuleType(name)
        module.__spec__ = SimpleNamespace(name=name)
        module.start_run = lambda run_name: self.open(run_name)
        module.log_params = lambda config: self.runs[-1].update(config=config)
        module.log_metrics = lambda values, step: self.log(values, step)
        module.end_run = lambda: self.runs[-1].update(ended=True)
        module.init = lambda project, name, config, dir: self.open(name, config)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delitem(sys.modules, f"gnnbench.trackers.{name}", raising=False)
        epoch = clock.Recorder.epoch

        @contextmanager
        def timed(recorder: clock.Recorder) -> Iterator[None]:
            with epoch(recorder):
                self.timing = True
                yield
                self.timing = False

        monkeypatch.setattr(clock.Recorder, "epoch", timed)

    def open(self, name: str, config: Any = None) -> SimpleNamespace:
        self.runs.append({"name": name, "config": config, "epochs": {}, "ended": False})
        return SimpleNamespace(log=self.log, finish=lambda: self.runs[-1].update(ended=True))

    def log(self, values: dict[str, float], step: int) -> None:
        assert not self.timing
        if self.down and step == 3:
            raise ConnectionError("the server is down")
        self.runs[-1]["epochs"][step] = values


def trained(folder: Path, track: str) -> Result:
    """A small run of two repeats that is tracked."""
    return gnnbench.train(
        backend="reference", dataset="synthetic:cora:0.05", epochs=4, set=SET, out=folder, track=track, quiet=True
    )


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_server_hears_every_epoch_between_timed_regions(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(name, monkeypatch)
    result = trained(tmp_path / "run", name)
    assert [each["name"] for each in server.runs] == ["run-0", "run-1"]
    for repeat, each in enumerate(server.runs):
        assert each["ended"]
        assert each["config"]["model.hidden"] == 8
        assert [*each["epochs"]] == [1, 2, 3, 4]
        samples = {sample.epoch: sample for sample in result.samples if sample.repeat == repeat}
        assert all(values["samples/loss"] == samples[epoch].loss for epoch, values in each["epochs"].items())
        assert all(values["samples/epoch_s"] == samples[epoch].epoch_s for epoch, values in each["epochs"].items())
        assert [epoch for epoch, values in each["epochs"].items() if "evaluations/val" in values] == [2, 4]


def test_a_server_that_fails_is_told_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    server = Server("wandb", monkeypatch)
    server.down = True
    assert trained(tmp_path / "run", "wandb").status == "ok"
    assert [*server.runs[0]["epochs"]] == [1, 2]
    assert len(server.runs) == 1
    assert capfd.readouterr().err.count("wandb no longer tracks this run: the server is down") == 1


def test_tensorboard_reads_its_events(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = trained(tmp_path / "run", "tensorboard")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard" / "run-1")).Reload()
    told = [(event.step, event.value) for event in events.Scalars("samples/loss")]
    assert told == [(s.epoch, pytest.approx(s.loss)) for s in result.samples if s.repeat == 1]


def test_a_tracker_that_is_not_there_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=r"unknown tracker 'tensorbord'; did you mean 'tensorboard'\?"):
        trained(tmp_path / "run", "tensorbord")
    with pytest.raises(ConfigError, match="--track mlflow needs the package mlflow: pip install mlflow"):
        trained(tmp_path / "run", "mlflow")
    assert not (tmp_path / "run").exists()
