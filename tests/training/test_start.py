"""A run in several processes: its figures, and every way in which all of them end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gnnbench import config, datasets, launch
from gnnbench.backends import isplib
from gnnbench.comparison import record
from gnnbench.errors import ConfigError
from gnnbench.results import files
from gnnbench.results.schema import Result
from gnnbench.training import run as alone
from gnnbench.training import start
from gnnbench.training.run import Event
from tests.support.commands import ROOT, TINY, run

BACKEND = "reference" if isplib.MISSING else "isplib"
SECTIONS: dict[str, dict[str, Any]] = {
    "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.1, "features": 16},
    "model": {"name": "gcn", "hidden": 8, "norm": "layer"},
    "batch": {"kind": "parts", "method": "contiguous"},
    "train": {"epochs": 6, "checkpoint_every": 2, "workers": 2},
    "backend": {"name": BACKEND, "sparse_features": False},  # of which one process would drop others
}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    assert not workers()


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> datasets.Roots:
    folder = tmp_path_factory.mktemp("cache")
    return datasets.Roots(folder / "data", folder)


def configuration(**sections: dict[str, Any]) -> Any:
    return config.validate(
        {name: {**content, **sections.get(name, {})} for name, content in SECTIONS.items()}, "test"
    )


def single(wanted: config.Run, roots: datasets.Roots) -> Result:
    """The same in this process."""
    raw = alone.resolved(wanted)
    raw = {**raw, "batch": {"kind": "full"}, "train": {**raw["train"], "workers": 1}}
    return alone.run(config.validate(raw, "test"), roots=roots, out=None)


def workers(rank: int | None = None) -> list[psutil.Process]:
    """Those that run, or the one of this rank."""
    children = [child for child in psutil.Process().children() if launch._ranks.MODULE in child.cmdline()]
    return [child for child in children if rank is None or child.environ()["RANK"] == str(rank)]


def after(epoch: int, act: Callable[[], Any]) -> Callable[[Event], None]:
    def on_event(event: Event) -> None:
        if event.sample and event.sample.epoch == epoch:
            act()

    return on_event


def losses(result: Result) -> list[float]:
    return [sample.loss for sample in result.samples]


def scores(result: Result) -> list[float | None]:
    return [score for each in result.evaluations for score in (each.train, each.val, each.test)]


def test_two_workers_learn_what_one_process_does_and_tell_what_each_measured(
    roots: datasets.Roots, tmp_path: Path
) -> None:
    events: list[Event] = []
    wanted = configuration()
    result = start.run(wanted, roots=roots, out=tmp_path, on_event=events.append)
    assert (result.status, result.reason) == ("ok", "")
    assert result == files.load(Result, tmp_path / "results.json")
    expected = single(wanted, roots)
    if BACKEND == "isplib":  # plain torch draws dropout by its own generator
        assert losses(result) == pytest.approx(losses(expected), rel=1e-4)
        assert scores(result) == pytest.approx(scores(expected), abs=0.05)  # of few nodes, in float32
    assert [event.kind for event in events] == ["dataset_loaded", "prepared", *["epoch"] * 6, "repeat_done"]
    assert losses(events[-1].result) == losses(result)
    first, second = result.workers
    facts = result.dataset_facts
    assert facts is not None
    assert first.nodes + second.nodes == facts.nodes
    assert first.edges + second.edges == facts.edges
    assert (first.sent_bytes, first.received_bytes) == (second.received_bytes, second.sent_bytes)
    assert first.sent_bytes > 0
    assert result.largest["edges"] == max(first.edges, second.edges)
    assert result.peak_memory_bytes == max(first.peak_memory_bytes, second.peak_memory_bytes)
    for sample in result.samples:
        phases = (sample.forward_s, sample.backward_s, sample.exchange_s, sample.optimizer_s)
        assert all(phases)
        assert sum(filter(None, phases)) <= sample.epoch_s


@pytest.mark.slow
def test_a_killed_worker_ends_the_run_and_it_can_be_resumed(roots: datasets.Roots, tmp_path: Path) -> None:
    wanted = configuration(train={"epochs": 100})
    kill = after(5, lambda: workers(rank=1)[0].kill())
    result = start.run(wanted, roots=roots, out=tmp_path, on_event=kill)
    assert result.status == "oom"
    assert result.reason == (
        "worker 1: killed by the system, probably out of memory; go on from the last checkpoint with: "
        f"gnnbench train --resume {tmp_path}"
    )
    assert 5 <= len(result.samples) < 100
    resumed = start.run(wanted, roots=roots, out=tmp_path, resume=True)
    assert resumed.status == "ok"
    assert len(resumed.samples) == 100
    if BACKEND == "isplib":
        assert losses(resumed)[:20] == pytest.approx(
            losses(single(configuration(train={"epochs": 20}), roots)), rel=1e-3
        )


@pytest.mark.slow
def test_a_worker_that_hangs_ends_the_run(roots: datasets.Roots, tmp_path: Path) -> None:
    wanted = configuration(train={"epochs": 10_000}, batch={"timeout_s": 2})
    stop = after(2, lambda: workers(rank=1)[0].suspend())
    result = start.run(wanted, roots=roots, out=tmp_path, on_event=stop)
    assert result.status == "failed"
    assert result.reason.startswith("another worker did not answer in time")


@pytest.mark.slow
def test_ctrl_c_stops_all_after_the_same_epoch(roots: datasets.Roots, tmp_path: Path) -> None:
    press = after(3, lambda: signal.raise_signal(signal.SIGINT))
    result = start.run(configuration(train={"epochs": 10_000}), roots=roots, out=tmp_path, on_event=press)
    assert result.status == "interrupted"
    assert result.reason.startswith(f"stopped by Ctrl-C after epoch {len(result.samples)} of repeat 0")
    assert len(result.workers) == 2


@pytest.mark.slow
def test_bad_input_of_workers_is_one_sentence(roots: datasets.Roots, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"leave backend\.dropout out"):
        start.run(configuration(backend={"dropout": False}), roots=roots, out=tmp_path)


def test_a_number_of_workers_that_does_not_fit_is_refused(
    roots: datasets.Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"train.workers=2 is for one whole graph, and batch.kind=graphs"):
        config.validate({**SECTIONS, "batch": {"kind": "graphs"}}, "test")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert start.by_torchrun(configuration(train={"workers": 1})).train.workers == 3
    with pytest.raises(ConfigError, match=r"train.workers is 2, but 3 processes were started"):
        start.run(configuration(), roots=roots, out=tmp_path)


@pytest.mark.slow
def test_torchrun_starts_the_same_run(tmp_path: Path) -> None:
    """Alone the first worker speaks."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "gnnbench",
    ]
    options = ["train", *TINY, "--backend", BACKEND, "--out", str(tmp_path), "--json"]
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": launch.loopback(),
        "GNNBENCH_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = Result.model_validate_json(done.stdout)
    assert [worker.rank for worker in result.workers] == [0, 1]
    assert result.config["train"]["workers"] == 2


@pytest.mark.slow
def test_workers_are_compared_with_pyg(folder: Path) -> None:
    """Logits and all gradients, also those at every node, before and after training."""
    options = [
        *TINY,
        "--rounds",
        "1",
        "--backends",
        f"pyg,{BACKEND}:workers=2",
        "--out",
        str(folder / "out"),
        "--json",
    ]
    output = run("compare", *options)
    assert output.code == 0, output.stderr
    comparison = record.Comparison.model_validate_json(output.stdout)
    assert comparison.parity.ok
    assert [row.status for row in comparison.rows] == ["ok", "ok"]
