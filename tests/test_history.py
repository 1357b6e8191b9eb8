"""The index of results: what verbs wrote is in it, and it can be made anew from their files."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest

from gnnbench import history, sweeps
from gnnbench.history import Entry
from gnnbench.report import history as report
from gnnbench.report import plots, tables
from gnnbench.report.page import Stored
from gnnbench.results import files
from tests.support import recorded
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


def compared_with_pyg(ours: Sequence[float], pyg: Sequence[float] = ()) -> list[Entry]:
    """Results in their order, alone or beside those of PyG."""
    alone = [entry(number, epoch_s) for number, epoch_s in enumerate(ours, start=1)]
    return alone + [entry(number, epoch_s, "pyg") for number, epoch_s in enumerate(pyg, start=1)]


def drawn(rng: random.Random, results: int = 20) -> list[float]:
    """Median epochs of results of three recorded rounds each."""
    return [
        median(second for of_round in rng.sample(recorded.rounds(), 3) for second in of_round)
        for _ in range(results)
    ]


def test_equal_code_has_no_changes() -> None:
    """At most 5 of 100 histories of recorded rounds; and every stretch of ten or more of a real series."""
    rng = random.Random(0)
    assert sum(bool(history.changes(compared_with_pyg(drawn(rng), drawn(rng)))) for _ in range(50)) <= 2
    assert sum(bool(history.changes(compared_with_pyg(drawn(rng)))) for _ in range(50)) <= 2
    ours, pyg = ([median(each) for each in recorded.series()[name]] for name in ("isplib", "pyg"))
    stretches = [slice(begin, end) for begin in range(7) for end in range(begin + 10, 17)]
    assert [at for at in stretches if history.changes(compared_with_pyg(ours[at], pyg[at]))] == []


def test_slower_code_is_marked_where_it_began_and_a_slower_machine_is_not() -> None:
    rng, hits = random.Random(1), 0
    for _ in range(20):
        ours, pyg = drawn(rng), drawn(rng)
        slower = [epoch_s * (1.2 if place >= 12 else 1.0) for place, epoch_s in enumerate(ours)]
        found = history.changes(compared_with_pyg(slower, pyg))
        hits += any(abs(int(each.revision) - 13) <= 1 and each.backend == "isplib" for each in found)
        all_slower = [epoch_s * (1.2 if place >= 12 else 1.0) for place, epoch_s in enumerate(pyg)]
        machine = history.changes(compared_with_pyg(slower, all_slower))
        assert "isplib" not in {each.backend for each in machine}
    assert hits >= 17


def test_changes_are_in_the_table_the_picture_and_the_json(cache: Path) -> None:
    levels = [1.0] * 8 + [1.5] * 8 + [0.5] * 8
    entries = [entry(number, level + 0.0001 * (number % 3)) for number, level in enumerate(levels, start=1)]
    entries[16] = entries[16]._replace(revision=entries[15].revision)
    changes = history.changes(entries)
    assert [each.written[:10] for each in changes] == ["2026-01-09", "2026-01-17"]
    (table,) = report.tables(entries[4:], changes)
    text = tables.markdown(table)
    assert "| 2026-01-09 12:00<br>0000009 | 1.50 s<br>1.50x slower | – | runs/9 |" in text
    assert "1.50x slower from 2026-01-09 12:00 (0000009) on; before: 0000008; 8 results before it, 8 since" in text
    assert "3.00x faster from 2026-01-17 12:00 (0000016) on; the same revision as before" in text
    (panel,) = report.panels(entries, changes)
    assert [(line.label, line.marks) for line in panel.lines] == [
        ("isplib", [(8.0, "1.50x slower"), (16.0, "3.00x faster")])
    ]
    assert (panel.names[8.0], panel.names[16.0]) == ("0000009", "")
    plots.save([panel], "", cache.parent / "h.svg")
    assert "1.50x slower" in (cache.parent / "h.svg").read_text()
    assert [each["change"] for each in report.records(entries, changes)][7:9] == [
        None,
        pytest.approx(1.5, rel=0.01),
    ]


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
