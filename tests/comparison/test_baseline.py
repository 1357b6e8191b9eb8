"""Baselines: equal code passes, slower code does not, and what says nothing is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gnnbench import comparison, kinds, stats
from gnnbench.comparison import baseline as baselines
from gnnbench.comparison.baseline import Baseline
from gnnbench.errors import ConfigError
from gnnbench.measure import environment
from tests.support import recorded
from tests.support.commands import run
from tests.support.compare_runner import Runner, run_config

BACKENDS = ("pyg", "isplib", "reference")
HERE = environment.describe()


def drawn(rng: random.Random, number: int, slower: float = 1.0, drift: float = 1.0) -> dict[str, Any]:
    """Rounds of every backend; our code, and the machine as a whole, may be slower."""
    pool = rng.sample(recorded.rounds(), number * len(BACKENDS))
    return {
        name: [
            [second * drift * (1.0 if name == "pyg" else slower) for second in pool.pop()] for _ in range(number)
        ]
        for name in BACKENDS
    }


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bootstrap intervals of fewer draws."""
    monkeypatch.setattr(stats, "RESAMPLES", 400)


def flagged(slower: float, drift: float, times: int, rounds: int = 4) -> int:
    """Comparisons of `times` in which any backend is called slower by more than 5%."""
    rng, count = random.Random(0), 0
    for _ in range(times):
        then = Baseline(config={}, environment={}, rounds=drawn(rng, rounds))
        now = drawn(rng, rounds, slower, drift)
        count += baselines.judge(then, "main", BACKENDS, now, 0.05).regressed
    return count


def test_equal_code_is_flagged_at_most_five_times_of_a_hundred(quick: None) -> None:
    """Over rounds that were recorded, on a machine that is the same, slower, and faster on the second day."""
    assert len(recorded.rounds()) > 200
    assert flagged(1.0, 1.0, times=100) <= 5
    assert flagged(1.0, 1.3, times=20) <= 1
    assert flagged(1.0, 0.7, times=20) <= 1


def test_a_busy_machine_that_drifts_is_called_slower_at_most_five_times_of_a_hundred(quick: None) -> None:
    """One real series of equal code, every four rounds of it beside every other four in a row."""
    series = recorded.series()
    flags = []
    for one in range(13):
        for other in (place for place in range(13) if abs(place - one) >= 4):
            then, now = ({name: rounds[at : at + 4] for name, rounds in series.items()} for at in (one, other))
            baseline = Baseline(config={}, environment={}, rounds=then)
            flags.append(baselines.judge(baseline, "main", [*series], now, 0.05).regressed)
    assert len(flags) == 90
    assert sum(flags) <= 4


def test_slower_code_is_flagged_however_the_machine_is(quick: None) -> None:
    assert flagged(1.6, 1.0, times=10) >= 8
    assert flagged(1.6, 1.2, times=10) >= 8
    assert flagged(1.4, 1.0, times=10, rounds=6) >= 5
    assert flagged(1.02, 1.0, times=10) == 0  # within what is tolerated


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNBENCH_CACHE", str(tmp_path / "cache"))
    config = run_config().model_dump(mode="json", serialize_as_any=True)
    config["backend"] = {"name": "pyg"}
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    return tmp_path


class Machine(Runner):
    """Runs on this machine, slower than usual by a factor for isplib."""

    slower = 1.0

    def good(self, job: Any) -> Any:
        result = super().good(job)
        result.environment = HERE
        for number, sample in enumerate(result.samples):
            noise = 1 + 0.001 * (len(self.jobs) + number)
            sample.epoch_s *= noise * (self.slower if result.backend == "isplib" else 1.0)
        result.refresh()
        return result


def compared(folder: Path, runner: Runner, *arguments: str) -> Any:
    original = comparison.compare

    def replaced(*args: Any, **options: Any) -> Any:
        return original(*args, **options, execute=runner)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "compare", replaced)
        return run("compare", folder / "run.yaml", "--backends", "pyg,isplib", *arguments)


def test_the_command_line_fails_on_a_regression(folder: Path) -> None:
    assert compared(folder, Machine(), "--save-baseline", "main").code == 0
    same = compared(folder, Machine(), "--baseline", "main", "--out", "same")
    assert same.code == 0, same.stdout
    assert "not slower by more than 5% beyond doubt" in " ".join(same.stdout.split())
    slow = Machine()
    slow.slower = 1.5
    failed = compared(folder, slow, "--baseline", "main", "--fail-above", "10%", "--out", "slow", "--json")
    assert failed.code == 4
    (change,) = json.loads(failed.stdout)["against"]["changes"]
    assert (change["backend"], change["regressed"]) == ("isplib", True)
    assert change["slowdown"]["ratio"] == pytest.approx(1.5, rel=0.02)
    made = kinds.load(folder / "slow").section()
    assert made.tone == "bad"
    assert made.verdict[0].startswith("Regression: isplib: an epoch takes 1.50x that of baseline main")
    gone = Machine(isplib=lambda job: job.failed("oom", "is oom"))
    output = compared(folder, gone, "--baseline", "main")
    assert output.code == 4
    assert "Regression: isplib did not run to its end" in " ".join(output.stdout.split())


REFUSED: tuple[tuple[dict[str, Any], list[str], str], ...] = (
    ({}, ["--baseline", "mian"], "unknown baseline 'mian'; did you mean 'main'?"),
    ({}, ["--baseline", "main", "--fail-above", "x"], "--fail-above x: must be a percentage such as 5%"),
    ({}, ["--save-baseline", "../x"], "letters, digits, dots and dashes"),
    ({}, ["--baseline", "main", "--epochs", "9"], "another configuration (train.epochs differs)"),
    ({}, ["--baseline", "main", "--rounds", "1"], "give --rounds 3 to both"),
    ({"cpu": {"model": "Z80"}}, ["--baseline", "main"], "another machine (cpu Z80 there, "),
    ({"gpus": [{"model": "H1"}]}, ["--baseline", "main"], "another machine (gpus H1 there, none here)"),
)


def test_what_says_nothing_is_refused_before_anything_runs(folder: Path, quick: None) -> None:
    compared(folder, Machine(), "--save-baseline", "main")
    path = folder / "cache" / "baselines" / "main.json"
    raw = json.loads(path.read_text())
    for change, arguments, words in REFUSED:
        path.write_text(json.dumps({**raw, "environment": raw["environment"] | change}))
        runner = Machine()
        output = compared(folder, runner, *arguments)
        assert (output.code, output.stdout, runner.jobs) == (2, "", []), words
        assert words in output.stderr


def test_more_backends_need_more_rounds_to_be_told_from_chance() -> None:
    run = comparison.resolve(run_config(), BACKENDS)
    rounds = {name: [[1.0]] * 3 for name in BACKENDS}
    with pytest.raises(ConfigError, match="give --rounds 4 to both"):
        baselines.check(Baseline(config=run.config, environment=HERE, rounds=rounds), "main", run, rounds=3)
