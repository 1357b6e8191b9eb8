"""Sweeps: every trial once whatever happens, the best by validation, problems of a file listed at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from gnnbench import cells, datasets, kinds, stats, sweeps
from gnnbench.cells import Outcome, Work
from gnnbench.errors import ConfigError
from gnnbench.kinds import sweep as report
from gnnbench.report import page, plots, tables
from gnnbench.results import files
from gnnbench.sweeps import Sweep
from tests.support.commands import run
from tests.support.jobs import killed_at_random
from tests.support.page import parsed
from tests.support.trials import GRID, RUN, Trials, swept, written

KILLED_AFTER_S = 0.25  # at most: 20 times that, drawn at random, are 3.1 s in all
TRIAL_S = 0.02  # at least: 200 of them outlast the last kill


@pytest.fixture
def plan(tmp_path: Path) -> sweeps.Plan:
    return sweeps.load(written(tmp_path))


def test_every_configuration_runs_with_the_first_seed_before_the_next(plan: sweeps.Plan, tmp_path: Path) -> None:
    trials = Trials()
    found = swept(plan, tmp_path / "out", trials)
    assert trials.ran[:3] == ["hidden 8, pyg, 5", "hidden 8, isplib, 5", "hidden 16, pyg, 5"]
    assert trials.ran[6:8] == ["hidden 8, pyg, 6", "hidden 8, isplib, 6"]
    assert (found.status, found.exit_code, len(trials.ran)) == ("ok", 0, 12)
    trains = [trial.config["train"] for trial in plan.trials]
    assert {(train["seed"], train["repeats"], train["epochs"]) for train in trains} == {(5, 1, 3), (6, 1, 3)}
    assert files.load(Sweep, tmp_path / "out" / "sweep.json") == found


def test_the_best_is_chosen_by_validation_with_the_mean_and_spread_of_its_test(
    plan: sweeps.Plan, tmp_path: Path
) -> None:
    found = swept(plan, tmp_path)
    (best,) = (point for point in found.points if point.best)
    assert best.name == "hidden 16, pyg"
    assert best.val == pytest.approx(0.91)
    assert best.test == pytest.approx(0.81)
    assert best.test_std == pytest.approx(0.02 / 2**0.5)
    ours = next(point for point in found.points if point.name == "hidden 8, isplib")
    assert ours.epoch_s
    assert (ours.epoch_s.median, ours.epoch_s.count) == (
        pytest.approx(0.01),
        4,
    )  # two epochs that count, two seeds
    assert ours.peak_memory_bytes == 8000


def test_every_dataset_has_its_best(tmp_path: Path) -> None:
    two = "dataset: [synthetic:cora:0.05, synthetic:reddit:0.001]"
    grid = GRID.replace("backend: [pyg, isplib]", two)
    found = swept(sweeps.load(written(tmp_path, grid)), tmp_path / "out")
    assert [(point.dataset, point.values["model.hidden"]) for point in found.points if point.best] == [
        ("cora", 16),
        ("reddit", 16),
    ]


def test_a_configuration_with_fewer_seeds_is_not_the_best(plan: sweeps.Plan, tmp_path: Path) -> None:
    def stop(work: Work, tell: Callable[[str], None]) -> Outcome:
        if work.cell.seed == 6 and work.cell.values["model.hidden"] == 16:
            raise KeyboardInterrupt
        return Trials()(work, tell)

    found = swept(plan, tmp_path, stop)
    assert (found.status, found.exit_code) == ("interrupted", 1)
    assert [point.name for point in found.points if point.best] == ["hidden 8, pyg"]


def test_what_has_ended_is_never_run_again_and_force_forgets_it(plan: sweeps.Plan, tmp_path: Path) -> None:
    broken = Trials(broken=["hidden 32, pyg"])
    found = swept(plan, tmp_path / "out", broken)
    point = next(point for point in found.points if point.name == "hidden 32, pyg")
    assert (point.status, point.reason, point.seeds) == ("oom", "out of memory: too wide", 0)
    again = Trials()
    assert swept(plan, tmp_path / "out", again) == found
    assert again.ran == []
    wider = sweeps.load(written(tmp_path, GRID.replace("32]", "32, 64]")))
    swept(wider, tmp_path / "out", again)  # another grid shares what is the same
    assert again.ran == ["hidden 64, pyg, 5", "hidden 64, isplib, 5", "hidden 64, pyg, 6", "hidden 64, isplib, 6"]
    swept(plan, tmp_path / "out", again, force=True)
    assert len(again.ran) == 4 + 12


def test_another_run_timing_or_code_is_another_trial(
    plan: sweeps.Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept(plan, tmp_path / "out")
    for changed in (
        sweeps.load(written(tmp_path, run=RUN.replace("epochs: 3", "epochs: 4"))),
        sweeps.load(written(tmp_path), timed=False),
    ):
        trials = Trials()
        swept(changed, tmp_path / "out", trials)
        assert len(trials.ran) == 12
    monkeypatch.setattr("gnnbench.measure.code.digest", lambda module="": "other")
    trials = Trials()
    swept(plan, tmp_path / "out", trials)
    assert len(trials.ran) == 12


def test_sigkill_at_random_moments_loses_and_repeats_no_finished_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trial ends exactly once, and the figures are of all of them."""
    monkeypatch.setattr(stats, "RESAMPLES", 10)
    widths = ", ".join(str(8 * number) for number in range(1, 11))
    grid = GRID.replace("8, 16, 32", widths).replace("repeats: 2", "repeats: 10")
    plan = sweeps.load(written(tmp_path, grid))
    assert len(plan.trials) == 200
    log = tmp_path / "ended"

    def told(work: Work, tell: Callable[[str], None]) -> Outcome:
        time.sleep(TRIAL_S)
        outcome = Trials()(work, tell)
        with log.open("a") as file:
            file.write(f"{work.cell.key}\n")
        return outcome

    out = tmp_path / "out"
    assert killed_at_random(swept, plan, out, told, out=out, kills=20, longest_s=KILLED_AFTER_S) == 20
    ended = log.read_text().split()
    assert len({*ended}) == len(ended)
    found = files.load(Sweep, out / "sweep.json")
    assert found.points == swept(plan, out).points  # as worked out anew from all that is on disk
    assert {point.seeds for point in found.points} == {10}


def test_all_problems_of_a_file_are_listed_at_once(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
run: run.yaml
gird: {}
grid:
  model.hidden: 16
  hidden: [1]
  train.seed: [1, 2]
  model.layers: [2, 2]
  dataset: []
repeats: 0
""",
        RUN.replace("epochs: 3", "epochs: 0"),
    )
    with pytest.raises(ConfigError) as error:
        sweeps.load(path)
    problems = error.value.problems
    for words in (
        "grid.yaml: gird: unknown key; did you mean 'grid'?",
        "grid.yaml: grid.model.hidden: must be a valid list, found 16",
        "grid.yaml: grid.dataset: List should have at least 1 item",
        "grid.yaml: grid.hidden: is neither section.key",
        "grid.yaml: grid.train.seed: every configuration runs with the same seeds",
        "grid.yaml: grid.model.layers: holds 2 more than once",
        "grid.yaml: repeats: must be greater than 0",
        "run.yaml: train.epochs: must be greater than 0, found 0",
    ):
        assert sum(words in problem for problem in problems) == 1, (words, problems)
    assert len(problems) == 8


def test_all_problems_of_the_configurations_are_listed_at_once(tmp_path: Path) -> None:
    grid = "run: run.yaml\ngrid:\n  model.hiden: [1]\n  modle.hidden: [1]\n  train.lr: [1, -1]\n"
    grid += "  dataset: [cora, coar]\n  backend: [pyg, islib]\n"
    with pytest.raises(ConfigError) as error:
        sweeps.load(written(tmp_path, grid))
    problems = "\n".join(error.value.problems)
    for words in (
        "grid: model.hiden: unknown key; did you mean 'hidden'?",
        "grid: modle: unknown key; did you mean 'model'?",
        "grid: unknown dataset 'coar'; did you mean 'cora'?",
        "grid: train.lr: must be greater than 0, found -1" if "must be" in problems else "train.lr",
    ):
        assert problems.count(words) == 1, (words, problems)
    fewer = "run: run.yaml\ngrid: {backend: [pyg, islib, 'pyg:fold_norm=false']}\n"
    with pytest.raises(ConfigError) as error:
        sweeps.load(written(tmp_path, fewer))
    assert "unknown backend 'islib'; did you mean 'isplib'?" in error.value.problems[0]
    assert "takes no rewrites" in error.value.problems[1]
    big = f"run: run.yaml\ngrid: {{model.hidden: {list(range(1, 202))}, model.layers: {list(range(1, 102))}}}\n"
    with pytest.raises(ConfigError, match="spans 20,301 configurations"):
        sweeps.load(written(tmp_path, big))


def test_trials_that_are_timed_run_alone(plan: sweeps.Plan, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--no-timing, or use --jobs 1"):
        swept(plan, tmp_path, jobs=2)
    with pytest.raises(ConfigError, match="--exclusive"):
        swept(plan, tmp_path, queue=sweeps.Queue())
    untimed = sweeps.load(tmp_path / "grid.yaml", timed=False)
    found = swept(untimed, tmp_path, jobs=3)
    assert (found.status, {point.seeds for point in found.points}) == ("ok", {2})
    assert not any(point.epoch_s for point in found.points)
    assert "no times are given" in " ".join(report.table(found).notes)
    assert "epoch" not in report.table(found).heading


def test_estimates_come_from_finished_trials_of_the_same_kind(plan: sweeps.Plan, tmp_path: Path) -> None:
    roots = datasets.Roots(tmp_path, tmp_path)
    assert {each.estimate_s for each in sweeps.planned(plan, out=tmp_path, roots=roots)} == {None}
    elsewhere = [(plan.trials[1].config, 0.5), (plan.trials[1].config, 0.7)]  # of isplib, the latest first
    guess = sweeps.planned(plan, out=tmp_path, roots=roots, epochs=elsewhere)
    assert [each.estimate_s for each in guess] == 6 * [None, 3 * 0.5]

    def first(work: Work, tell: Callable[[str], None]) -> Outcome:
        if work.cell.name != "hidden 8, pyg":
            raise KeyboardInterrupt
        return Trials()(work, tell)

    swept(plan, tmp_path, first)
    found = sweeps.planned(plan, out=tmp_path, roots=roots)
    assert [each.outcome is not None for each in found] == [True] + 11 * [False]
    assert [each.estimate_s for each in found] == 6 * [2.0, None]  # of pyg, and none of isplib
    notes = report.plan("grid", found, start_s=1.5).notes
    assert notes[0] == "1 of 12 trials finished; the others take about 11.5 s without 6 trials of unknown length"


def test_tables_pictures_and_the_page_say_what_was_measured(plan: sweeps.Plan, tmp_path: Path) -> None:
    found = swept(plan, tmp_path, Trials(broken=["hidden 32, isplib"]))
    text = tables.markdown(report.table(found))
    assert "gcn over hidden, backend: 6 configurations, 2 seeds each" in text
    assert "| hidden 16, pyg<br>best of cora | 0.9100<br>± 0.0141 | 0.8100<br>± 0.0141 | 200 ms |" in text
    assert "| hidden 32, isplib | – | – | – | – | 0 of 2<br>out of memory |" in text
    assert "- hidden 32, isplib: out of memory: out of memory: too wide" in text
    drawn = report.pictures(found)
    hidden, times = drawn["model.hidden"]
    assert isinstance(hidden, plots.Panel)
    assert isinstance(times, plots.Panel)
    assert [x for x, _ in hidden.lines[0].points] == [8, 16, 32]
    assert [line.label for line in times.lines] == ["cora, pyg", "cora, isplib"]
    assert [bars.groups for bars in drawn["backend"] if isinstance(bars, plots.Bars)] == 2 * [["pyg", "isplib"]]
    assert len(report.Sweep.records(found)) == 12
    result = kinds.load(tmp_path)
    assert (type(result), result.model_dump()) == (report.Sweep, found.model_dump())
    root = parsed(page.html([result]))
    assert root.all("p", class_="answer")[0].text.startswith(
        "Best on cora: hidden 16, pyg; validation accuracy 0.9100"
    )
    assert root.all("tr", class_="best")[0].text.split()[:4] == ["hidden", "16,", "pyg", "best"]
    assert len(root.all("img")) == 4
    (grid,) = (each.text for each in root.all("code") if each.text.startswith("run: run.yaml"))
    assert yaml.safe_load(grid)["grid"]["model.hidden"] == [8, 16, 32]


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNBENCH_CACHE", str(tmp_path / "cache"))  # without a history
    monkeypatch.setattr(cells, "execute", Trials())
    path = written(tmp_path, GRID.replace("  backend: [pyg, isplib]\n", ""))
    dry = run("sweep", path, "--dry-run")
    assert dry.code == 0
    assert "0 of 6 trials finished; the others take an unknown time" in dry.stdout
    assert "stop it with Ctrl-C after a trial, and ask again" in " ".join(dry.stdout.split())
    assert not (tmp_path / "runs").exists()
    output = run("sweep", path, "--csv", "rows.csv", "--markdown", "t.md", "--report", "page.html")
    assert (output.code, output.stderr) == (0, "")
    assert "Best on cora: hidden 16; validation" in " ".join(output.stdout.split())
    header, *rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert header.startswith("model.hidden,seed,status,reason,graph,metric,val,test,epoch_s.median")
    assert len(rows) == 6
    assert (tmp_path / "runs" / "grid-sweep" / "model.hidden.svg").exists()
    assert "Best on cora" in (tmp_path / "page.html").read_text()
    as_json = run("sweep", path, "--json")
    assert Sweep.model_validate_json(as_json.stdout).status == "ok"
    assert {each["status"] for each in json.loads(run("sweep", path, "--dry-run", "--json").stdout)} == {"ok"}
    for arguments, words in (
        (("--jobs", "4"), "--no-timing"),
        (("--jobs", "many"), "--jobs many: must be a number such as 4"),
        (("--gpus", "1"), "add --jobs slurm"),
        (("--set", "train.epoch=5"), "did you mean 'epochs'?"),
    ):
        refused = run("sweep", path, *arguments)
        assert (refused.code, refused.stdout) == (2, "")
        assert words in refused.stderr
