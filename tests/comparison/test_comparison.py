"""The record of a comparison: figures, speedups only behind a green gate, warnings, the fixed JSON names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnbench.comparison import record, stored
from gnnbench.comparison.process import Job
from gnnbench.results.schema import Result
from tests.support.compare_runner import EPOCHS, SECONDS, Runner, cell, compared, row, run_config


def test_figures_are_worked_out_from_all_rounds(tmp_path: Path) -> None:
    found = compared(tmp_path, Runner())
    isplib, pyg = row(found, "isplib"), row(found, "pyg")
    assert found.status == "ok"
    assert found.exit_code == 0
    assert found.parity.ok is True
    assert isplib.epoch_s is not None
    assert isplib.epoch_s.median == pytest.approx(0.1)  # without warm-up
    assert isplib.epoch_s.count == 3 * (EPOCHS - 1)
    assert isplib.round_epoch_s == pytest.approx([0.1] * 3)
    assert isplib.speedup["pyg"] is not None
    assert isplib.speedup["pyg"].ratio == pytest.approx(8)
    assert isplib.speedup["fastest_pyg"] is not None
    assert (isplib.speedup["fastest_pyg"].baseline, isplib.speedup["fastest_pyg"].ratio) == (
        "pyg-sparse",
        pytest.approx(4),
    )
    assert pyg.speedup["pyg"] is not None
    assert (pyg.speedup["pyg"].low, pyg.speedup["pyg"].high) == (1, 1)
    assert isplib.memory_ratio == pytest.approx(1 / 8)
    assert isplib.memory_increase_bytes == 50
    assert isplib.break_even_epochs == 2  # 1 s of preparation, 0.7 s gained per epoch
    assert row(found, "pyg-sparse").break_even_epochs == 10
    assert isplib.metrics is not None
    assert isplib.metrics.test == 0.7


def test_where_pyg_cannot_run_the_next_backend_is_the_reference(tmp_path: Path) -> None:
    found = compared(tmp_path, Runner(pyg=cell("oom", "reference")), "pyg", "pyg-sparse", "isplib")
    assert found.parity.reference == "pyg-sparse"
    assert row(found, "pyg").status == "oom"
    assert row(found, "isplib").speedup["pyg"] is None
    assert row(found, "isplib").speedup["fastest_pyg"] is not None


def test_without_any_reference_times_are_shown_but_no_speedup(tmp_path: Path) -> None:
    broken = {name: cell("failed", "reference") for name in ("pyg", "pyg_sparse", "reference")}
    found = compared(tmp_path, Runner(**broken), "pyg", "isplib")
    assert found.parity.ok is None
    assert "could not be established" in found.parity.reason
    assert row(found, "isplib").epoch_s is not None
    assert row(found, "isplib").speedup["fastest_pyg"] is None
    assert found.exit_code == 0


def test_a_red_gate_takes_the_speedup_of_the_wrong_backend_only(tmp_path: Path) -> None:
    runner = Runner()
    runner.wrong = "isplib"
    found = compared(tmp_path, runner)
    assert found.parity.ok is False
    assert found.exit_code == 3
    assert "isplib: logits" in found.parity.reason
    assert row(found, "isplib").epoch_s is not None
    assert row(found, "isplib").speedup == record.NO_SPEEDUP
    assert row(found, "isplib").break_even_epochs is None
    assert row(found, "pyg-sparse").speedup["pyg"] is not None


def test_a_wrong_pyg_row_is_no_baseline(tmp_path: Path) -> None:
    runner = Runner()
    runner.wrong = "pyg-sparse"
    fastest = row(compared(tmp_path, runner), "isplib").speedup["fastest_pyg"]
    assert fastest is not None
    assert fastest.baseline == "pyg"


def test_warnings_come_once_with_the_backends_that_had_them(tmp_path: Path) -> None:
    runner = Runner()
    runner.warnings = ["4 threads share 2 cores: set measure.threads"]
    found = compared(tmp_path, runner, "pyg", "isplib", rounds=2)
    assert found.warnings == ["pyg, isplib: 4 threads share 2 cores: set measure.threads (and 3 more runs)"]


def test_noisy_rounds_and_losses_that_part_are_warned_of(tmp_path: Path) -> None:
    runner = Runner()

    def drift(job: Job) -> Result:
        result = Runner.good(runner, job)
        if job.out.parent.name == "2":
            for sample in result.samples:
                sample.epoch_s *= 1.5
            result.samples[2].loss = 1.25
            result.environment = {"packages": {"torch": "2"}}
        return result

    runner.cells["isplib"] = drift
    noisy, parted, software = compared(tmp_path, runner, "pyg", "isplib", rounds=2).warnings
    assert "isplib: rounds differ by 50%" in noisy
    assert "in epoch 3 (1 and 1.25)" in parted
    assert "different software" in software


def test_only_the_row_that_changed_is_computed_and_the_others_are_as_if_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    real = record._row
    monkeypatch.setattr(record, "_row", lambda name, *rest: computed.append(name) or real(name, *rest))
    found = compared(tmp_path, Runner(), rounds=2)
    assert computed.count("isplib") == 3  # its verdict, and its rounds
    again = found.model_copy(deep=True)
    again.update({name: stored(tmp_path, name) for name in SECONDS if name != "reference"}, [*SECONDS])
    assert again == found


def test_a_configuration_is_validated_once_before_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config()
    monkeypatch.setattr("gnnbench.config.validate", None)
    monkeypatch.setattr("gnnbench.comparison.turns.validate", None)  # for options of a backend alone
    assert compared(tmp_path, Runner(), "pyg", "isplib", rounds=1, config=config).status == "ok"
