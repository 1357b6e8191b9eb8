"""The page of a result: its answer, its tables and pictures, and that nothing in it is taken for markup."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.figure import Figure

from gnnbench import config, kinds, sweeps, units
from gnnbench.benchmarks.records import Bench
from gnnbench.comparison.record import Comparison
from gnnbench.kinds import bench, comparison, sweep
from gnnbench.kinds.run import Run
from gnnbench.kinds.tuning import Tuning
from gnnbench.report import page, plots, tables
from gnnbench.report.page import Section
from gnnbench.report.plots import Bars, Line, Panel
from gnnbench.results import files
from gnnbench.results.schema import Result
from gnnbench.stats import Interval
from tests.support.commands import ROOT, run
from tests.support.compare_runner import Runner, compared
from tests.support.page import Element, parsed
from tests.support.records import MACHINE, long_run, tuned
from tests.support.trials import swept, written

HOSTILE = (
    "<script>alert(1)</script>\"'&$x^2$ </title><img src=http://example.com/x onerror=alert(2)>\x01--> {{ 7*7 }}"
)
FIVE = ("pyg", "pyg-sparse", "isplib", "reference", "isplib:fold_norm=false")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of five backends."""
    out = tmp_path_factory.mktemp("comparison")
    record = compared(out, Runner(), *FIVE)
    record.environment = MACHINE
    files.save_json(record, out / "comparison.json")
    return out


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return page.html([kinds.load(folder)])


@pytest.fixture(scope="module")
def root(text: str) -> Element:
    return parsed(text)


def section(record: Any, kind: Any = comparison.Comparison) -> Section:
    return kind.of(record, Path("x.json")).section()


def test_five_backends_make_a_small_page_and_the_same_each_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = {name: [long_run(200)] * 3 for name in FIVE}
    result = kinds.load(folder)
    monkeypatch.setattr(comparison.Comparison, "results", lambda _: rounds)
    text = page.html([result])
    assert len(text.encode()) < 300_000
    assert page.html([result]) == text


def test_ids_are_unique_and_lead_somewhere(root: Element) -> None:
    ids = [element.attributes["id"] for element in root.all() if "id" in element.attributes]
    assert len(ids) == len({*ids})
    for element in root.all():
        targets = (element.attributes.get("aria-labelledby") or "").split()
        assert {*targets, *re.findall(r"^#(.+)", element.attributes.get("href") or "")} <= {*ids}


def test_nothing_outside_the_page_is_asked_for(text: str, root: Element) -> None:
    for element in root.all():
        assert not {"srcset", "xlink:href"} & {*element.attributes}
        assert re.match("data:|$", element.attributes.get("src") or "")
        assert not [name for name in element.attributes if name.startswith("on")]
        assert re.match("#|data:|$", element.attributes.get("href") or "")
    assert not re.search(r"url\((?!#)|@import", text)
    (policy,) = root.all("meta", http_equiv="Content-Security-Policy")
    (script,) = root.all("script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in (policy.attributes["content"] or "")
    assert "default-src 'none'" in (policy.attributes["content"] or "")
    assert len(script.text.splitlines()) < 80


def test_everything_has_a_name_for_screen_readers(root: Element) -> None:
    assert root.all("html")[0].attributes["lang"] == "en"
    assert len(root.all("h1")) == 1
    for picture, title in zip(root.all("img"), root.all("figcaption"), strict=True):
        assert (picture.attributes["alt"] or "").startswith(f"{title.all('b')[0].text}: ")
        assert "isplib" in (picture.attributes["alt"] or "")
    for table in root.all("table"):
        assert table.all("caption")[0].text
        headings = table.all("th", scope="col")
        assert all(
            each.attributes["aria-sort"] == "none" and each.all("button", type="button") for each in headings
        )
        assert len(table.all("th", scope="row")) == len(table.all("tbody")[0].all("tr"))
    for scroller in root.all("div", class_="scroll"):
        assert scroller.attributes["tabindex"] == "0"
        assert scroller.attributes["role"] == "region"


def test_a_comparison_opens_with_its_answer(root: Element, folder: Path) -> None:
    (answer,) = root.all("p", class_="answer")
    assert answer.text.startswith("isplib trains 4.00x as fast as pyg-sparse (no interval).")
    assert section(kinds.load(folder)).verdict[1] == "isplib trains 8.00x as fast as pyg (no interval)."
    (best,) = root.all("tr", class_="best")
    assert best.text.split()[:2] == ["isplib", "fastest"]
    titles = [each.text for each in root.all("b")]
    assert titles[:3] == ["Every epoch of every backend", "What an epoch is made of", "Peak memory"]
    assert titles[-1] == "Training loss over epochs"
    (command, _) = root.all("code")[0], root.all("code")[1]
    assert command.text == f"gnnbench compare run.yaml --backends {','.join(FIVE)} --rounds 3"
    assert MACHINE["cpu"]["model"] in root.all("pre", class_="sheet")[0].text
    tables_ = section(kinds.load(folder)).tables
    assert "Parity: green" in " ".join(tables_[0].notes)


def test_cells_carry_what_they_are_sorted_by(root: Element) -> None:
    cells = [each for each in root.all("td") if each.text == "800 ms"]
    assert {float(cell.attributes["data-key"] or "") for cell in cells} == {0.8}


def test_the_json_is_in_the_page(root: Element, folder: Path) -> None:
    (link,) = (each for each in root.all("a") if "download" in each.attributes)
    content = base64.b64decode((link.attributes["href"] or "").partition("base64,")[2])
    assert Comparison.model_validate_json(gzip.decompress(content)) == Comparison.model_validate(
        kinds.load(folder).model_dump()
    )


def test_the_configuration_of_the_page_is_the_one_that_ran(root: Element, tmp_path: Path, folder: Path) -> None:
    (text,) = (each.text for each in root.all("code") if each.text.startswith("dataset:"))
    (tmp_path / "run.yaml").write_text(text)
    record = kinds.load(folder)
    assert config.load(tmp_path / "run.yaml") == config.validate(record.config, "stored")


def test_names_are_no_markup(folder: Path) -> None:
    record = kinds.load(folder).model_copy(deep=True)
    record.dataset, record.warnings = HOSTILE, [HOSTILE]
    record.environment = {HOSTILE: {HOSTILE: HOSTILE}}
    record.config["dataset"][HOSTILE] = HOSTILE
    record.rows[1].backend = record.rows[2].reason = HOSTILE
    verdict = record.parity.backends["isplib"]
    verdict.tensors[HOSTILE] = next(iter(verdict.tensors.values()))
    text = page.html([comparison.Comparison.of(record, Path(HOSTILE))])
    root = parsed(text)
    assert len(root.all("script")) == 1
    assert len(root.all("title")) == 1
    shown = HOSTILE.replace("\x01", "\ufffd")
    assert root.all("h1")[0].text.endswith(shown)
    picture = root.all("img")[0].attributes
    assert shown in (picture["alt"] or "")
    drawn = ElementTree.fromstring(base64.b64decode((picture["src"] or "").partition("base64,")[2]))
    assert shown[: plots.LETTERS - 1] in "".join(drawn.itertext())
    assert "\x01" not in text


def test_words_between_backticks_are_code(folder: Path) -> None:
    record = kinds.load(folder).model_copy(deep=True)
    record.warnings = ["see `warnings` and `<b>`"]
    (advice,) = parsed(page.html([comparison.Comparison.of(record, Path("x"))])).all("section", class_="advice")
    assert [each.text for each in advice.all("code")] == ["warnings"]
    assert "`<b>`" in advice.text


def test_what_is_wrong_has_no_speedup(tmp_path: Path) -> None:
    runner = Runner()
    runner.wrong = "isplib"
    record = compared(tmp_path, runner, "pyg", "isplib", rounds=1)
    made = section(record)
    assert made.tone == "bad"
    assert made.verdict[0].startswith("isplib gets no speedup: logits")
    assert "8.00x" not in page.html([comparison.Comparison.of(record, Path("x.json"))])
    assert made.grids[0].marked == []
    record.parity.ok, record.parity.reason = None, "no reference could run"
    made = section(record)
    assert made.verdict == ["Parity was not checked, so no speedup is given: no reference could run."]


def test_a_peer_that_is_wrong_is_no_peer() -> None:
    path = ROOT / "results" / "ops" / "2_spmm_synthetic_reddit.json"
    record = files.load(Bench, path)
    assert section(record, bench.Bench).tone in ("good", "plain")
    ours = [each for each in record.rows if each.implementation == record.backend]
    for each in ours:
        each.status = "wrong"
    made = section(record, bench.Bench)
    assert made.tone == "bad"
    assert f"{record.backend} is wrong in" in made.verdict[0]


def test_of_a_file_alone_rounds_are_shown() -> None:
    result = kinds.load(ROOT / "results" / "tolokers_1_gcn.json")
    root = parsed(page.html([result]))
    assert root.all("b")[0].text == "The median epoch of every round"
    (answer,) = root.all("p", class_="answer")
    assert units.ratio(result.rows[-1].speedup["fastest_pyg"].ratio) in answer.text


@pytest.mark.parametrize(
    "name", ["collate/ogbg-molhiv", "ops/4_spmm_tolokers", "reproductions/isplib_small", "ogbn-arxiv_3_gin"]
)
def test_every_kind_has_its_page(name: str) -> None:
    result = kinds.load(ROOT / "results" / f"{name}.json")
    text = page.html([result])
    root = parsed(text)
    assert len(text.encode()) < 600_000
    assert root.all("table")
    assert len(root.all("img")) > 0 or name.startswith("collate")
    assert root.all("pre", class_="sheet")


def test_tuned_choices_have_theirs() -> None:
    made = section(tuned(), Tuning)
    assert made.verdict[0] == "1 choice of 2 differ from the heuristic's; the others are what it takes anyway."
    assert (
        made.verdict[1]
        == "The largest gain over the heuristic is 2.00x (spmm, width 32, 95% interval 1.90–2.10x)."
    )
    assert "gnnbench tune GRAPH --ops spmm --widths 16,32 --heads 1 --backend isplib" in made.command
    assert parsed(page.html([Tuning.of(tuned(), Path("x.json"))])).all("img")


def test_ten_thousand_epochs_are_drawn_and_not_carried() -> None:
    result = long_run(10_000)
    text = page.html([Run.of(result, Path("results.json"))])
    root = parsed(text)
    assert len(text.encode()) < 300_000
    assert "too long to be carried" in text
    assert "no speedup is given" in text
    assert len(root.all("img")) == 5
    assert "An epoch on isplib takes" in root.all("p", class_="answer")[0].text


def test_a_run_that_failed_says_so() -> None:
    result = long_run(3)
    result.status, result.reason = "oom", "needs more than 16GiB"
    made = section(result, Run)
    assert made.verdict[0] == "The run ended as out of memory: needs more than 16GiB."
    empty = Result(status="failed", reason="x", backend="pyg", dataset="", config=result.config)
    assert section(empty, Run).pictures == []
    assert parsed(page.html([Run.of(empty, Path("x"))])).all("h1")


@pytest.mark.parametrize("paper", ["#ffffff", "#121518"])
def test_lines_stand_out_from_their_background(paper: str) -> None:
    """WCAG's contrast of 3 for what pictures draw, as they are and as the page turns them in the dark."""
    assert f"--paper: {paper}" in (page.FOLDER / "page.css").read_text()
    turn = torch.tensor([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])  # hue-rotate(180deg)
    for colour in map(rgb, plots.COLOURS):
        shown = colour if paper == "#ffffff" else (turn @ (1 - colour)).clamp(0, 1)
        low, high = sorted((luminance(shown), luminance(rgb(paper))))
        assert (high + 0.05) / (low + 0.05) >= 3, colour


def rgb(colour: str) -> torch.Tensor:
    return torch.tensor([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])


def luminance(parts: torch.Tensor) -> float:
    linear = torch.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ torch.tensor([0.2126, 0.7152, 0.0722]))


def test_curves_have_whole_epochs_intervals_and_room_above_the_highest_point() -> None:
    figure = Figure()
    plots.draw(plots.curves({"a": [(1, 2.0), (2, 2.001), (3, 2.0)]}, "", zero=True), figure)
    (axes,) = figure.axes
    figure.draw_without_rendering()
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    assert axes.get_ylim()[1] > 2.001 * 1.03
    line = Line("a", [(0.1, 2.0), (0.2, Interval(2.001, 1.5, 2.9))])
    plots.draw(Panel("", "", "", [line]), figure := Figure(layout="constrained"))
    (axes,) = figure.axes
    assert axes.get_ylim()[1] > 2.9 * 1.03
    (bars,) = axes.containers
    assert [[*map(list, segment)] for segment in bars[2][0].get_segments()] == [
        [[0, 2.0], [0, 2.0]],
        [[1, 1.5], [1, 2.9]],
    ]


def test_a_sweep_is_drawn_with_the_spread_of_its_seeds(tmp_path: Path) -> None:
    record = swept(sweeps.load(written(tmp_path)), tmp_path / "out")
    panels = [panel for axis in sweep.pictures(record).values() for panel in axis]
    drawn = [y for panel in panels if isinstance(panel, Panel) for line in panel.lines for _, y in line.points]
    drawn += [y for panel in panels if isinstance(panel, Bars) for one in panel.series for y in one.values]
    assert any(y.low < y.high for y in drawn)


def test_the_command_writes_one_page_of_several_results(folder: Path, tmp_path: Path) -> None:
    out, run_ = tmp_path / "deep" / "report.html", folder / "rounds" / "1" / "pyg"
    output = run(
        "report", folder, run_, "--out", out, "--latex", tmp_path / "t.tex", "--markdown", tmp_path / "t.md"
    )
    assert output.code == 0, output.stderr
    assert output.stdout.startswith(f"{out}: 2 results, ")
    root = parsed(out.read_text(encoding="utf-8"))
    assert len(root.all("article")) == len(root.all("nav")[0].all("li")) == 2
    assert (tmp_path / "t.tex").read_text().count(r"\begin{table}") == 2
    assert "| isplib | 25.0 ms |" in (tmp_path / "t.md").read_text()
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_numbers_are_those_of_the_terminal(folder: Path) -> None:
    result = kinds.load(folder)
    expected = comparison.table(result)
    assert section(result).grids[0].table.rows == expected.rows
    assert tables.markdown(expected).splitlines()[2] in tables.markdown(section(result).tables[0])
