"""A run in several processes: its figures, and every way in which all of them end together."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
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
from gnnbench.training.batching import links
from gnnbench.training.run import Event
from tests.support import faults, two_machines
from tests.support.commands import TINY, run

SECONDS = 30  # 10 where tests have the cores to themselves; `pytest -s` shows them
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


def sharing(**train: Any) -> Any:
    """Two workers that share out the nodes of sampled batches, of which the last has one."""
    batch = {"kind": "neighbors", "size": 13, "fanouts": [4, 3]}
    sections = {"model": {**SECTIONS["model"], "dropout": 0.0}, "train": {**SECTIONS["train"], **train}}
    return config.validate({**SECTIONS, **sections, "batch": batch}, "test")


def single(wanted: config.Run, roots: datasets.Roots) -> Result:
    """Train in this process."""
    raw = alone.resolved(wanted)
    batch = {"kind": "full"} if wanted.batch.distributed else raw["batch"]
    raw = {**raw, "batch": batch, "train": {**raw["train"], "workers": 1}}
    return alone.run(config.validate(raw, "test"), roots=roots, out=None)


def workers() -> list[psutil.Process]:
    """Return those that run, by rank."""
    children = [child for child in psutil.Process().children() if launch.__name__ in " ".join(child.cmdline())]
    if launch.FORKS:
        children = [each for server in children for each in server.children()]
    return sorted(children, key=lambda child: (child.create_time(), child.pid))


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
    result = alone.start(wanted, roots=roots, out=tmp_path, on_event=events.append)
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
@pytest.mark.parametrize("of", ["parts", "shares"])
def test_a_killed_worker_ends_the_run_and_it_can_be_resumed(
    of: str, roots: datasets.Roots, tmp_path: Path
) -> None:
    if of == "shares" and isplib.MISSING:
        pytest.skip(f"the sampler is not built: {isplib.MISSING}")
    wanted = configuration(train={"epochs": 40}) if of == "parts" else sharing(epochs=40)
    killed = []

    def kill() -> None:
        workers()[1].kill()
        killed.append(time.monotonic())

    result = alone.start(wanted, roots=roots, out=tmp_path, on_event=after(5, kill))
    print(f"killed: {time.monotonic() - killed[0]:.1f} s until all ended")
    assert time.monotonic() - killed[0] < SECONDS
    assert result.status == "oom"
    assert result.reason == (
        "worker 1: killed by the system, probably out of memory; go on from the last checkpoint with: "
        f"gnnbench train --resume {tmp_path}"
    )
    assert 5 <= len(result.samples) < 40
    resumed = alone.start(wanted, roots=roots, out=tmp_path, resume=True)
    assert resumed.status == "ok"
    assert len(resumed.samples) == 40
    assert [bool(worker.edges) for worker in resumed.workers] == [True, True]
    if BACKEND == "isplib":
        expected = single(configuration(train={"epochs": 20}) if of == "parts" else sharing(epochs=20), roots)
        assert losses(resumed)[:20] == pytest.approx(losses(expected), rel=1e-3 if of == "parts" else 1e-5)
        assert of == "parts" or scores(resumed)[:60] == pytest.approx(scores(expected), abs=0.02)


DIFFERS = "worker 1 has another configuration and another version of the code than worker 0"
ENDS = {
    "not a number": ("failed", r"the loss became nan in epoch 3; lower train\.lr"),
    "out of memory": ("oom", r"worker 1: .*memory"),
    "hangs": ("failed", r"another worker did not answer in time; it hangs, or batch\.timeout_s is too short"),
    "interrupted": ("interrupted", r"stopped by Ctrl-C after epoch 3 of repeat 0; continue with: gnnbench train"),
    faults.OTHERS: ("failed", DIFFERS),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ENDS)
def test_what_one_worker_meets_ends_all_within_seconds(
    fault: str, roots: datasets.Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For one reason; the fixture sees to it that no process is left."""
    monkeypatch.setattr(alone, "Share", faults.Share)
    faults.wanted(tmp_path).write_text(fault)
    wanted = configuration(train={"epochs": 10_000}, batch={"timeout_s": 2 if fault == "hangs" else 60})
    try:
        result = alone.start(wanted, roots=roots, out=tmp_path)
        status, reason = result.status, result.reason
    except ConfigError as error:
        status, reason = "failed", str(error)
    seconds = time.time() - faults.at(tmp_path).stat().st_mtime
    print(f"{fault}: {seconds:.1f} s until all ended")
    assert (status, re.match(ENDS[fault][1], reason) is not None) == (ENDS[fault][0], True), reason
    assert seconds < SECONDS


@pytest.mark.slow
def test_ctrl_c_stops_all_after_the_same_epoch(roots: datasets.Roots, tmp_path: Path) -> None:
    press = after(3, lambda: signal.raise_signal(signal.SIGINT))
    result = alone.start(configuration(train={"epochs": 10_000}), roots=roots, out=tmp_path, on_event=press)
    assert result.status == "interrupted"
    assert result.reason.startswith(f"stopped by Ctrl-C after epoch {len(result.samples)} of repeat 0")
    assert len(result.workers) == 2


def test_a_number_of_workers_that_does_not_fit_and_a_port_that_is_taken_are_refused(
    roots: datasets.Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links.Config, "data_parallel", False)  # as of a kind that someone adds
    with pytest.raises(ConfigError, match=r"train.workers is 2, but batch.kind=links trains in one process"):
        config.validate({**SECTIONS, "batch": {"kind": "links"}}, "test")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert alone.by_torchrun(configuration(train={"workers": 1})).train.workers == 3
    with pytest.raises(ConfigError, match=r"train.workers is 2, but 3 processes were started"):
        alone.start(configuration(), roots=roots, out=tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError, match=f"port {port} is taken; choose another MASTER_PORT"):
            alone.start(configuration(), roots=roots, out=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("machines", [1, 2])
def test_torchrun_starts_the_same_run(machines: int, tmp_path: Path) -> None:
    """Only the first worker prints. Two machines are network namespaces, joined by one interface each."""
    if machines == 2 and (why := two_machines.obstacle()):
        pytest.skip(why)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "gnnbench", "train"]
    command = [sys.executable, *(torchrun if machines == 1 else [two_machines.__file__])]
    options = [*TINY, "--backend", BACKEND, "--out", str(tmp_path), "--json"]
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
    if machines == 2:
        between = re.search(r"^(\d+) bytes came from the other machine$", done.stderr, re.MULTILINE)
        assert between
        assert int(between[1]) > len(result.samples) * result.workers[0].received_bytes > 0


@pytest.mark.slow
def test_workers_are_compared_with_pyg(folder: Path) -> None:
    """Logits and all gradients, also those at every node, before and after training."""
    options = [
        *TINY,
        "--rounds",
        "1",
        "--backends",
        f"pyg,{BACKEND}:workers=2,{BACKEND}:workers=2:halo=bf16",
        "--out",
        str(folder / "out"),
        "--json",
    ]
    output = run("compare", *options)
    assert output.code == 0, output.stderr
    comparison = record.Comparison.model_validate_json(output.stdout)
    assert comparison.parity.ok
    assert [row.status for row in comparison.rows] == ["ok"] * 3
    assert [verdict.tolerance for verdict in comparison.parity.backends.values()] == [1e-4, 1e-4, 2e-2]
