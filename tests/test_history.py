"""Results over time, as they are read from the files of verbs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnbench import history, sweeps
from gnnbench.history import Entry
from gnnbench.report import tables
from gnnbench.results import files
from tests.support.commands import ROOT, TINY, run
from tests.support.compare_runner import Runner, compared
from tests.support.trials import swept, written


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_in_the_list_once(tmp_path: Path) -> None:
    assert json.loads(run("history", "--json").stdout) == history.epochs() == []
    for _ in range(2):
        assert run("train", *TINY, "--out", "runs/out", "--force", "--quiet").code == 0
    (entry,) = json.loads(run("history", "cora", "--json").stdout)
    assert (entry["backend"], entry["kind"]) == ("pyg", "run")
    assert entry["path"] == str(tmp_path / "runs" / "out" / "results.json")
    assert entry["low"] <= entry["epoch_s"] <= entry["high"]
    assert json.loads(run("history", "nothing", "--json").stdout) == []
    shown = run("history", "--plot", "h.svg", "--csv", "h.csv")
    assert "gcn (2 layers, 8 hidden) on synthetic cora x0.05" in shown.stdout
    assert (tmp_path / "h.svg").exists()
    assert (tmp_path / "h.csv").read_text().count("\n") == 2
    ((config, epoch_s),) = history.epochs()
    assert (config["model"]["hidden"], config["backend"]["name"], epoch_s) == (8, "pyg", entry["epoch_s"])


def test_parts_of_other_results_are_left_out_and_broken_ones_named(tmp_path: Path) -> None:
    compared(tmp_path / "results" / "a", Runner(), "pyg", "isplib")
    (tmp_path / "sweep").mkdir()
    swept(sweeps.load(written(tmp_path / "sweep")), tmp_path / "results" / "b")
    files.save_text("{}", tmp_path / "results" / "c" / "results.json")
    listed = run("history", "--in", "results", "--all-machines", "--json")
    assert [each["backend"] for each in json.loads(listed.stdout)] == ["pyg", "isplib"]
    assert "c/results.json: is not a result" in listed.stderr
    assert run("history", "--in", "nowhere").code == 2


def test_results_of_other_machines_are_left_out_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = [ROOT / "results" / name for name in ("tolokers_1_gcn.json", "ogbn-arxiv_1_gcn.json")]
    entries, _ = history.entries(stored, all_machines=True)
    names = iter(["another", entries[0].machine])
    real = history.machine
    monkeypatch.setattr(history.environment, "describe", lambda: {"cpu": None, "name": next(names)})
    monkeypatch.setattr(history, "machine", lambda facts: facts["name"] if "name" in facts else real(facts))
    assert history.entries(stored)[0] == []
    assert history.entries(stored)[0] == [each for each in entries if each.machine == entries[0].machine]


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


def test_results_are_a_table_and_a_picture_per_configuration() -> None:
    entries = [entry(1, 1.0), entry(2, 1.5), entry(2, 2.0, "pyg"), entry(3, 1.5)._replace(revision="0000002")]
    (table,) = history.tables(entries)
    assert "| 2026-01-02 12:00<br>0000002 | 1.50 s | 2.00 s | – | runs/2 |" in tables.markdown(table)
    (panel,) = history.panels(entries)
    assert {line.label: [*line.points] for line in panel.lines} == {
        "isplib": [(0.0, 1.0), (1.0, 1.5), (2.0, 1.5)],
        "pyg": [(1.0, 2.0)],
    }
    assert panel.names == {0.0: "0000001", 1.0: "0000002", 2.0: ""}
