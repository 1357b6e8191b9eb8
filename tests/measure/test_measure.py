"""The recorder, with a clock and a memory meter that are told what to show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import gnnbench
from gnnbench.measure import clock, energy
from gnnbench.measure.clock import Recorder


class Bench:
    """A clock that only moves when told, a meter that shows the last peak it was given, and a log of both."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.seconds = 100.0
        self.peak_bytes = 0

    def now(self) -> float:
        self.log.append("clock")
        return self.seconds

    def resting(self) -> int:
        self.log.append("resting")
        return 50

    def reset(self) -> None:
        self.log.append("reset")
        self.peak_bytes = 0

    def peak(self) -> int:
        self.log.append("peak")
        return self.peak_bytes

    def work(self, seconds: float, peak_bytes: int) -> None:
        self.seconds += seconds
        self.peak_bytes = max(self.peak_bytes, peak_bytes)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def epoch(recorder: Recorder, bench: Bench, forward: float, peak_bytes: int) -> None:
    with recorder.epoch():
        with recorder.phase("forward"):
            bench.work(forward, peak_bytes)
        bench.work(0.25, 0)  # between the phases, but in the epoch
        with recorder.phase("backward"):
            bench.work(2.0, peak_bytes // 2)
        with recorder.phase("optimizer"):
            bench.work(0.5, 0)


def test_phases_the_whole_epoch_and_its_own_peak(bench: Bench) -> None:
    recorder = Recorder(0, bench.now, bench)
    recorder.begin(epochs=2)
    epoch(recorder, bench, forward=1.0, peak_bytes=900)
    first = recorder.sample(repeat=3, epoch=1, loss=0.5)
    epoch(recorder, bench, forward=4.0, peak_bytes=700)
    second = recorder.sample(repeat=3, epoch=2, loss=0.25)

    assert (first.forward_s, first.backward_s, first.optimizer_s, first.epoch_s) == (1.0, 2.0, 0.5, 3.75)
    assert (second.forward_s, second.epoch_s) == (4.0, 6.75)
    assert (first.peak_memory_bytes, second.peak_memory_bytes) == (900, 700)
    assert (second.repeat, second.epoch, second.loss, second.warmup) == (3, 2, 0.25, False)


def test_time_between_epochs_is_nobodys(bench: Bench) -> None:
    recorder = Recorder(0, bench.now, bench)
    recorder.begin(epochs=1)
    bench.work(1000.0, 10**9)
    epoch(recorder, bench, forward=1.0, peak_bytes=10)
    bench.work(1000.0, 10**9)
    sample = recorder.sample(0, 1, 0.0)
    assert (sample.epoch_s, sample.peak_memory_bytes) == (3.75, 10)


def test_memory_is_read_outside_of_the_timed_region(bench: Bench) -> None:
    recorder = Recorder(0, bench.now, bench)
    recorder.begin(epochs=1)
    epoch(recorder, bench, forward=1.0, peak_bytes=10)
    assert bench.log == ["reset", *["clock"] * 8, "peak"]


@pytest.mark.parametrize(
    ("warmup", "epochs", "flags"),
    [
        (0, 3, [False, False, False]),
        (2, 4, [True, True, False, False]),
        (5, 3, [True, True, False]),
        (2, 1, [False]),
    ],
)
def test_warm_up_comes_first_in_every_repeat_and_leaves_one(
    bench: Bench, warmup: int, epochs: int, flags: list[bool]
) -> None:
    recorder = Recorder(warmup, bench.now, bench)
    for repeat in range(2):
        recorder.begin(epochs)
        found = []
        for number in range(1, epochs + 1):
            epoch(recorder, bench, forward=1.0, peak_bytes=1)
            found.append(recorder.sample(repeat, number, 0.0).warmup)
        assert found == flags


def test_time_returns_what_the_work_returned(bench: Bench) -> None:
    recorder = Recorder(0, bench.now, bench)

    def work() -> str:
        bench.work(7.0, 0)
        return "adjacency"

    assert recorder.time(work) == ("adjacency", 7.0)


def test_an_error_in_a_phase_is_not_swallowed(bench: Bench) -> None:
    recorder = Recorder(0, bench.now, bench)
    with pytest.raises(ZeroDivisionError), recorder.epoch(), recorder.phase("forward"):
        _ = 1 / 0


def test_the_clock_of_a_gpu_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    cuda = torch.device("cuda", 0)
    now = clock.of(cuda)
    assert now() <= now()
    assert waited == [cuda, cuda]
    clock.of(torch.device("cpu"))()
    assert len(waited) == 2


def test_other_programs_are_what_remains_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, own = iter([0.0, 45.0]), iter([0.0, 30.0])
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(psutil, "cpu_percent", lambda: next(machine))
    monkeypatch.setattr(psutil.Process, "cpu_percent", lambda _: next(own))
    assert clock.OtherPrograms().busy_cores() == pytest.approx(4 * 0.45 - 0.3)


def packages(folder: Path, *energies_uj: int) -> list[Path]:
    """Counters of processor packages, and one of a part of a package, which counts no more."""
    for number, energy_uj in enumerate(energies_uj):
        for name in (f"intel-rapl:{number}", f"intel-rapl:{number}:0"):
            (folder / name).mkdir()
            (folder / name / "energy_uj").write_text(f"{energy_uj}\n")
            (folder / name / "max_energy_range_uj").write_text("1000000\n")
    return [folder / f"intel-rapl:{number}" / "energy_uj" for number in range(len(energies_uj))]


def test_energy_is_that_of_all_packages_over_the_end_of_a_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    first, second = packages(tmp_path, 900_000, 0)
    joules, reason = energy.meter(torch.device("cpu"))
    assert joules
    assert not reason
    bench = Bench()
    recorder = Recorder(0, bench.now, bench, joules)
    recorder.begin(1)
    with recorder.epoch():
        first.write_text("400000")  # begun anew
        second.write_text("250000")
    assert recorder.sample(0, 1, 0.5).energy_j == pytest.approx(0.5 + 0.25)


def test_a_run_tells_its_energy_or_why_it_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    small: Any = {"dataset": "synthetic:cora:0.05", "epochs": 2, "set": {"measure.energy": True}, "quiet": True}
    unknown = gnnbench.train(out=tmp_path / "unknown", **small)
    assert unknown.energy_j is None
    assert unknown.warnings[0].startswith(f"no energy: {tmp_path} has no counter of a processor")
    packages(tmp_path, 7)
    known = gnnbench.train(out=tmp_path / "known", **small)
    assert known.energy_j == 0
    assert "energy" in str(known)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("")
    assert energy.meter(torch.device("cpu"))[1].endswith("administrator make energy_uj readable")
