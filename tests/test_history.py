"""The index of results: what verbs wrote is in it, and it can be made anew from their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnbench import history, sweeps
from gnnbench.history import Entry
from gnnbench.report import history as report
from gnnbench.report import tables
from gnnbench.report.page import Stored
from gnnbench.results import files
from tests.support.commands import ROOT, TINY, run
from tests.support.compare_runner import Runner, compared
from tests.support.trials import swept, written


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_run_is_in_the_list_once(tmp_path: Path) -> None:
    for _ in range(2):
        assert run("train", *TINY, "--out", "out", "--force", "--quiet").code == 0
    (entry,) = json.loads(run("history", "cora", "--json").stdout)
    assert (entry["backend"], entry["kind"]) == ("pyg", "run")
    assert entry["path"] == str(tmp_path / "out" / "results.json")
    assert entry["low"] <= entry["epoch_s"] <= entry["high"]
    assert json.loads(run("history", "nothing", "--json").stdout) == []
    shown = run("history", "--plot", "h.svg", "--csv", "h.csv")
    assert "gcn (2 layers, 8 hidden) on synthetic cora x0.05" in shown.stdout
    assert (tmp_path / "h.svg").exists()
    assert (tmp_path / "h.csv").read_text().count("\n") == 2
    ((config, epoch_s),) = history.epochs(tmp_path / "cache")
    assert (config["model"]["hidden"], config["backend"]["name"], epoch_s) == (8, "pyg", entry["epoch_s"])
    (tmp_path / "out" / "results.json").unlink()
    assert history.epochs(tmp_path / "cache") == []


def test_it_is_made_anew_without_the_parts_of_other_results(tmp_path: Path, cache: Path) -> None:
    record = compared(tmp_path / "results" / "a", Runner(), "pyg", "isplib")
    (tmp_path / "sweep").mkdir()
    swept(sweeps.load(written(tmp_path / "sweep")), tmp_path / "results" / "b")
    files.save_text("{}", tmp_path / "results" / "c" / "results.json")
    rebuilt = run("history", "--rebuild", "results", "--all-machines", "--json")
    assert [each["backend"] for each in json.loads(rebuilt.stdout)] == ["pyg", "isplib"]
    assert "1 result indexed" in rebuilt.stderr
    assert "c/results.json: is not a result" in rebuilt.stderr
    before = history.entries(cache, all_machines=True)
    (cache / "history.sqlite").unlink()
    path = tmp_path / "results" / "a" / "comparison.json"
    history.add(cache, Stored("comparison", record, path))
    assert history.entries(cache, all_machines=True) == before
    assert run("history", "--rebuild", "nowhere").code == 2


def test_results_of_other_machines_are_left_out_unless_asked_for(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("history", "--rebuild", ROOT / "results", "--quiet").code == 0
    entries = history.entries(cache, all_machines=True)
    monkeypatch.setattr(history, "machine", lambda _: "another")
    assert history.entries(cache) == []
    monkeypatch.setattr(history, "machine", lambda _: entries[0].machine)
    assert history.entries(cache) == [each for each in entries if each.machine == entries[0].machine]


def entry(number: int, epoch_s: float, backend: str = "isplib") -> Entry:
    made = Entry(
        f"{Path.cwd()}/runs/{number}/comparison.json",
        backend,
        "comparison",
        f"2026-01-{number:02} 12:00:00",
        "gcn on x",
        machine="",
        revision=f"{number:07}",
        configuration="",
        epoch_s=epoch_s,
        low=epoch_s,
        high=epoch_s,
        metric="",
        test=None,
    )
    return made


def test_results_are_a_table_and_a_picture_per_configuration(cache: Path) -> None:
    entries = [entry(1, 1.0), entry(2, 1.5), entry(2, 2.0, "pyg"), entry(3, 1.5)._replace(revision="0000002")]
    (table,) = report.tables(entries)
    assert "| 2026-01-02 12:00<br>0000002 | 1.50 s | 2.00 s | – | runs/2 |" in tables.markdown(table)
    (panel,) = report.panels(entries)
    assert {line.label: [*line.points] for line in panel.lines} == {
        "isplib": [(0.0, 1.0), (1.0, 1.5), (2.0, 1.5)],
        "pyg": [(1.0, 2.0)],
    }
    assert panel.names == {0.0: "0000001", 1.0: "0000002", 2.0: ""}


def test_an_index_that_cannot_be_used_is_told_and_fails_no_run(cache: Path) -> None:
    cache.mkdir()
    (cache / "history.sqlite").write_text("this is no database, and long enough to be one " * 50)
    output = run("train", *TINY, "--out", "out", "--quiet")
    assert output.code == 0
    assert "history.sqlite: the index of results is broken" in output.stderr
    assert "gnnbench history --rebuild" in output.stderr
    assert run("history").code == 2
    assert run("history", "--rebuild", "out", "--quiet").code == 0
    assert len(json.loads(run("history", "--json").stdout)) == 1
