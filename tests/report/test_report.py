"""Tables: what they say, and that nothing is cut off at any width."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gnnbench import doctor, units
from gnnbench.comparison.record import Comparison
from gnnbench.kinds import comparison, run
from gnnbench.report import live, tables
from gnnbench.report.tables import Cell, Table
from gnnbench.results.schema import Binding, Result
from tests.support.compare_runner import FACTS, Runner, cell, compared, row

BINDING = Binding(
    module="convs.0", conv="GCNConv", kernels={"spmm": "isplib"}, rewrites=["transform_first", "fold_norm"]
)


@pytest.fixture
def found(tmp_path: Path) -> Comparison:
    runner = Runner(cuda=cell("unavailable", "parity"), reference=cell("oom"))
    found = compared(tmp_path, runner, "pyg", "pyg-sparse", "isplib", "reference", "cuda")
    row(found, "isplib").bindings = [BINDING, BINDING.model_copy(update={"module": "convs.1"})]
    return found


@pytest.fixture
def result(tmp_path: Path) -> Result:
    compared(tmp_path, Runner(), rounds=1)
    return Result.model_validate_json((tmp_path / "rounds" / "1" / "isplib" / "results.json").read_bytes())


def shown(table: Table, width: int) -> str:
    out = io.StringIO()
    tables.show(table, Console(file=out, width=width, highlight=False, markup=False))
    return out.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.seconds(0.0123), "12.3 ms"),
        (units.seconds(0.0121, 0.0126), "12.1–12.6 ms"),
        (units.seconds(0.99, 1.01), "0.990–1.01 s"),
        (units.seconds(0.9999), "1.00 s"),
        (units.seconds(83.26), "83.3 s"),
        (units.seconds(1234.5), "1234 s"),
        (units.seconds(0), "0 s"),
        (units.seconds(3e-9), "0.00300 µs"),
        (units.size(0), "0 B"),
        (units.size(1023), "1023 B"),
        (units.size(1.5 * 1024**3), "1.50 GiB"),
        (units.size(-2048), "-2.00 KiB"),
        (units.ratio(0.976, 1.024), "0.98–1.02x"),
        (units.interval(units.ratio, 0.976, 1.024, "95%: {}"), "95%: 0.98–1.02x"),
        (units.interval(units.ratio, 1.024, 1.024, "95%: {}"), ""),
        (units.ratio(0.0123), "0.0123x"),
        (units.ratio(9.997), "10.0x"),
        (units.ratio(126.34), "126x"),
        (units.power(3.2e-7), "3e-7"),
        (units.count(114615892), "114,615,892"),
        (units.counted(1, "epoch"), "1 epoch"),
        (units.counted(1200, "epoch"), "1,200 epochs"),
    ],
)
def test_units_have_three_digits(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize("width", [80, 100, 140])
def test_a_comparison_is_whole_at_every_width(found: Comparison, width: int) -> None:
    table = replace(comparison.table(found), notes=["long-" * 30])
    text = shown(table, width)
    words = text.split()
    assert "…" not in text
    drawn = [line for line in text.splitlines() if "long-" not in line]
    assert max(map(len, drawn)) <= width
    for cells in table.rows:
        assert {word for one in cells for line in one for word in line.split()} <= set(words)
    assert "long-" * 30 in text


def test_a_comparison_fits_side_by_side_in_100_columns(found: Comparison) -> None:
    assert shown(comparison.table(found), 100).count("backend ") == 1
    assert shown(comparison.table(found), 80).count("backend ") == 2


def test_a_comparison_says_what_happened(found: Comparison) -> None:
    text = shown(comparison.table(found), 200)
    assert "gat (2 layers, 8 hidden) on zoo: 3 rounds of 4 epochs" in text
    assert re.search(r"isplib +25.0 ms +50.0 ms +100 ms +8.00x +4.00x", text)
    assert "Parity: green, logits and every gradient within 1e-4 of pyg" in text
    assert "2 x GCNConv: spmm by isplib; exact rewrites: transform before aggregate, normalisation as row" in text
    assert "reference: is oom" in text
    assert "cuda: is unavailable" in text
    assert re.search(r"reference +– +– +out of memory", text)
    assert "Graph: 3 nodes, 4 edges, 2 features, 2 classes" in text


def test_a_tolerance_of_ones_own_is_said(found: Comparison) -> None:
    found = found.model_copy(deep=True)
    found.parity.backends["isplib"].tolerance = 2e-2
    assert "within 1e-4 of pyg; isplib within 2e-2" in shown(comparison.table(found), 300)


def test_a_synthetic_graph_is_called_so(found: Comparison, result: Result) -> None:
    facts = FACTS.model_copy(update={"synthetic_parts": ["features", "split"]})
    found.dataset_facts = result.dataset_facts = facts
    for table in (comparison.table(found), run.table(result)):
        assert "Synthetic, not real data: features, split" in table.notes
        assert "Synthetic, not real data: features, split" in tables.markdown(table)


def test_a_red_gate_prints_no_speedup(tmp_path: Path) -> None:
    runner = Runner()
    runner.wrong = "isplib"
    found = compared(tmp_path, runner, "pyg", "isplib", rounds=1)
    table = comparison.table(found)
    text = shown(table, 140)
    assert "Parity: red against pyg" in text
    assert "isplib: logits" in text
    (line,) = (line for line in text.splitlines() if line.startswith("isplib "))
    assert "x" not in line
    records = list(csv.DictReader(io.StringIO(tables.to_csv(comparison.Comparison.of(found, Path()).records()))))
    assert not any(value for name, value in records[1].items() if name.startswith("speedup"))


def test_without_pyg_sparse_no_column_is_repeated(tmp_path: Path) -> None:
    table = comparison.table(compared(tmp_path, Runner(), "pyg", "isplib", rounds=1))
    assert sum("speedup" in heading for heading in table.heading) == 1
    assert all(len(cells) == len(table.heading) for cells in table.rows)


def test_before_anything_ran_a_comparison_is_a_table_too() -> None:
    config = {"model": {"name": "gcn", "layers": 2, "hidden": 4}, "dataset": {"source": "planetoid"}}
    found = Comparison(config=config, rounds=1, epochs=1, rows=[])
    assert "gcn (2 layers, 4 hidden) on planetoid: 1 round of 1 epoch" in shown(comparison.table(found), 100)


def test_the_csv_has_the_names_and_numbers_of_the_json(found: Comparison) -> None:
    records = list(csv.DictReader(io.StringIO(tables.to_csv(comparison.Comparison.of(found, Path()).records()))))
    assert [record["backend"] for record in records] == ["pyg", "pyg-sparse", "isplib", "reference", "cuda"]
    isplib = row(found, "isplib")
    assert isplib.epoch_s is not None
    assert isplib.speedup["pyg"] is not None
    assert float(records[2]["epoch_s.median"]) == isplib.epoch_s.median
    assert float(records[2]["speedup.pyg.ratio"]) == isplib.speedup["pyg"].ratio
    assert int(records[2]["peak_memory_bytes"]) == isplib.peak_memory_bytes
    assert records[3]["status"] == "oom"
    assert records[3]["epoch_s.median"] == ""


def test_markdown_has_every_cell_and_note(found: Comparison) -> None:
    table = comparison.table(found)
    lines = tables.markdown(table).splitlines()
    body = [line for line in lines if line.startswith("| ")]
    assert len(body) == len(table.rows) + 2
    assert len({line.count("|") for line in body}) == 1
    assert "100 B<br>0.12x pyg" in body[4]
    assert all(f"- {note}" in lines for note in table.notes)


def test_markdown_escapes_bars() -> None:
    assert "a\\|b" in tables.markdown(Table(("", ""), [[Cell("a|b"), Cell("1")]]))


def test_a_run_says_what_was_measured(result: Result) -> None:
    result.bindings = [BINDING]
    result.warnings = ["the machine is noisy: close other programs"]
    text = shown(run.table(result), 100)
    assert "gat (2 layers, 8 hidden) on zoo, isplib" in text
    assert re.search(r"epoch +100 ms +of 3 epochs", text)
    assert re.search(r"peak memory +100 B +50.0 B above the 50.0 B before training", text)
    assert re.search(r"test accuracy +0.7000", text)
    assert "Kernels: 1 x GCNConv: spmm by isplib; exact rewrites: transform before aggregate" in text
    assert "Warning: the machine is noisy: close other programs" in text


def test_a_stopped_run_says_why(result: Result) -> None:
    result.status, result.reason = "oom", "out of memory: needs more than 16GiB"
    result.environment = {"other_programs_busy_cores": 0.0}
    text = shown(run.table(result), 100)
    assert "Status: out of memory: out of memory: needs more than 16GiB" in text


def test_every_epoch_is_a_line_of_the_csv(result: Result) -> None:
    records = list(csv.DictReader(io.StringIO(tables.to_csv(run.Run.of(result, Path()).records()))))
    assert [int(record["epoch"]) for record in records] == [1, 2, 3, 4]
    assert [record["warmup"] for record in records] == ["True", "False", "False", "False"]
    assert [record["test"] for record in records] == ["0.7", "", "", ""]
    assert float(records[3]["epoch_s"]) == result.samples[3].epoch_s


def test_piped_output_is_plain_and_of_a_known_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = io.StringIO()
    console = tables.console(out)
    tables.show(Table(("a", "b"), [[Cell("x"), Cell("1", "below")]], title="title [bold]kept[/bold]"), console)
    assert console.width == tables.PIPED_WIDTH
    assert "\x1b" not in out.getvalue()
    assert "title [bold]kept[/bold]" in out.getvalue()


def terminal(width: int = 100) -> tuple[io.StringIO, Console]:
    out = io.StringIO()
    return out, Console(file=out, force_terminal=True, width=width, highlight=False, markup=False)


def test_the_training_view_shows_epochs_and_redraws_by_their_time(result: Result) -> None:
    from gnnbench.training.run import Event

    out, console = terminal()
    with run.TrainView(console) as view:
        view(Event(kind="dataset_loaded", result=result))
        view(Event(kind="prepared", result=result))
        for sample in result.samples:
            view(
                Event(
                    kind="epoch",
                    result=result,
                    sample=sample,
                    evaluation=result.evaluations[0] if sample.epoch == 1 else None,
                )
            )
        view(Event(kind="message", result=result, message="stopping after this epoch"))
    text = out.getvalue()
    assert "loading the dataset" in text
    assert "Graph: 3 nodes" in text
    assert "prepared for isplib in 1.00 s" in text
    assert "gat (2 layers, 8 hidden) on zoo, isplib: epoch 4 of 4" in text
    assert "0.7000" in text
    assert "stopping after this epoch" in text
    fast = [sample.model_copy(update={"epoch_s": 0.01}) for sample in result.samples * 10]
    out, console = terminal()
    with run.TrainView(console) as view:
        for sample in fast:
            view(Event(kind="epoch", result=result, sample=sample))
    assert out.getvalue().count("gat (2 layers") <= 2 + len(fast) * 0.01 / run.REDRAW_S


def test_the_comparison_view_shows_what_runs(tmp_path: Path) -> None:
    out, console = terminal()
    with live.View(console, comparison.progress) as view:
        compared(tmp_path, Runner(), rounds=2, on_event=view)
    text = out.getvalue()
    assert "parity check, isplib (3 of 9)" in text
    assert "round 2 of 2, pyg-sparse (7 of 9)" in text
    assert "Parity: green" in text


@pytest.mark.parametrize("width", [30, 60, 80, 120, 200])
def test_progress_has_as_many_columns_and_rows_as_there_is_room_for(width: int, tmp_path: Path) -> None:
    record = compared(tmp_path, Runner(), "pyg", "pyg-sparse", "isplib", "isplib:fold_norm=false")
    tables_of = {
        "compare": comparison.table(record),
        "claims": Table(["claim", "ours"], [[Cell("long " * 9), Cell("1x")]]),
    }
    for name, table in tables_of.items():
        console = Console(
            file=io.StringIO(), force_terminal=True, record=True, width=width, height=12, markup=False
        )
        view = live.View(console)
        view.draw("what runs now", table)
        lines = console.export_text().splitlines()
        view._live.stop()
        assert lines[0] == "what runs now"
        assert max(map(len, lines)) <= width
        columns = tables.leading(table, console)
        assert len(columns) > 1 or width <= 60 or name == "claims"
        for column in columns:  # no word is cut, and no column gets narrower than its words
            for text in table.heading[column].splitlines():
                assert any(text in line for line in lines), text
        shown = [row for row in table.rows if any(row[0].text in line for line in lines)]
        assert bool(shown) == bool(columns)
        assert shown == [*table.rows][: len(shown)]
        hidden = len(table.rows) - len(shown)
        assert not columns or not hidden or any(f"and {hidden} more row" in line for line in lines)
        assert len(lines) <= console.height


def test_an_installation_without_kernels_or_data_says_so() -> None:
    found = {
        "environment": {
            "python": "3.10.1",
            "packages": {"torch": "2.6", "triton": None},
            "cpu": {"model": None, "architecture": "arm64", "isa": None, "usable_cores": None},
            "threads": {"torch": 4, "variables": {"OMP_NUM_THREADS": "4"}, "openmp": None},
            "memory_bytes": None,
            "gpus": [{"model": "H200"}],
        },
        "available_memory_bytes": 1024**3,
        "compiler": None,
        "kernels": {"built": "no", "reason": "no module"},
        "tuned": {"graphs": {}, "other_files": 0},
        "backends": {
            "isplib": {"available": False, "reasons": ["install a compiler", "install more"], "remark": ""}
        },
        "data": {"root": "/nowhere", "root_exists": False, "cache": "/cache", "cache_bytes": 0, "on_disk": []},
    }
    text = shown(doctor.table(found), 100)
    for words in (
        "arm64",
        "4 threads",
        "H200",
        "install one such as gcc",
        "no module",
        "install more",
        "/nowhere",
    ):
        assert words in text
    assert "triton" not in text
