"""Reproductions: cells run once whatever happens, claims are judged by both protocols, a paper is one file."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from gnnbench import cells as mechanism
from gnnbench import comparison, datasets, papers
from gnnbench.benchmarks.records import Bench
from gnnbench.cells import Outcome
from gnnbench.errors import ConfigError
from gnnbench.kinds import reproduction as report
from gnnbench.papers import _records
from gnnbench.papers._cells import Ops, Training, Work
from gnnbench.papers._records import Claim, Measurement, Reproduction
from gnnbench.report import plots, tables
from gnnbench.results import files
from gnnbench.results.schema import Ratio
from gnnbench.stats import Interval
from tests.support.commands import ROOT, run
from tests.support.compare_runner import Runner, cell
from tests.support.jobs import killed_at_random

PAPER = """
from gnnbench import datasets
from gnnbench.papers import Claim, Paper, Training

PAPER = Paper(name="fake", title="Fake", machine="a server", published="mean", corrected="median")
CLAIMS = [
    Claim(name=f"{op} epoch", value=value, source="a log", kind="log", op=op, baseline="pyg", hardware="CPU")
    for op, value in (("gcn", 7.9), ("sage", 8.5), ("gin", 100), ("tag", 2))
]

def cells(scale):
    return [
        Training(
            key=op, op=op, dataset=datasets.parse("synthetic:cora:0.05"), model={"name": op, "hidden": 8},
            train={"epochs": 4}, backends=["pyg", "isplib"], rounds=2,
        )
        for op in ("gcn", "sage", "gin")
    ]
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A third paper: one more file."""
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "fake.py").write_text(PAPER)
    path = [*papers.__path__, str(tmp_path / "papers")]
    monkeypatch.setattr(papers, "__path__", path)
    monkeypatch.setattr(papers.__spec__, "submodule_search_locations", path)
    monkeypatch.delitem(sys.modules, "gnnbench.papers.fake", raising=False)
    return "fake"


class Cells:
    """Stands in for the processes of cells; those of comparisons are replaced by `runner`."""

    def __init__(self, runner: Runner | None = None, **outcomes: Callable[[], Outcome]) -> None:
        self.runner, self.outcomes = runner or Runner(), outcomes
        self.ran: list[str] = []

    def __call__(self, work: Work, tell: Callable[[str], None]) -> Outcome:
        self.ran.append(work.cell.key)
        tell("working")
        if work.cell.key in self.outcomes:
            outcome = self.outcomes[work.cell.key]().model_copy(update={"code": work.code})
            files.save_json(outcome, work.path)
            return outcome
        mechanism.perform(work, tell)
        done = work.finished()
        assert done
        return done


@pytest.fixture(autouse=True)
def without_processes(monkeypatch: pytest.MonkeyPatch) -> Runner:
    runner = Runner()
    original = comparison.compare
    monkeypatch.setattr(comparison, "compare", lambda *a, **k: original(*a, **k, execute=runner))
    return runner


def roots(tmp_path: Path) -> datasets.Roots:
    return datasets.Roots(tmp_path / "raw", tmp_path / "cache")


def reproduced(paper: str, tmp_path: Path, cells: Cells, **options: Any) -> Reproduction:
    out = options.pop("out", tmp_path / "out")
    return papers.reproduce(paper, "demo", out=out, roots=roots(tmp_path), execute=cells, **options)


def test_claims_are_judged_under_both_protocols(fake: str, tmp_path: Path) -> None:
    found = reproduced(fake, tmp_path, Cells())
    verdicts = {one.claim.op: one.verdict for one in found.findings}
    assert verdicts == {"gcn": "exceeded", "sage": "reproduced", "gin": "not reached", "tag": "not run"}
    gcn = found.findings[0]
    assert gcn.corrected
    assert gcn.published
    assert gcn.corrected.value == pytest.approx(8.0)
    # Four epochs, the first a hundred times as long, and preparation of ten epochs where there is any.
    assert gcn.published.value == pytest.approx(0.8 * 103 / (0.1 * 113))
    assert gcn.published.verdict == "reproduced"
    assert found.findings[3].reason == "no cell of this scale measures it"
    assert (found.status, found.exit_code) == ("ok", 0)
    assert files.load(Reproduction, tmp_path / "out" / "reproduction.json") == found


@pytest.mark.parametrize(
    ("value", "low", "high", "verdict"),
    [
        (2.0, 2.01, 3.0, "exceeded"),
        (2.0, 1.9, 3.0, "reproduced"),
        (2.0, 1.0, 1.81, "reproduced"),
        (2.0, 1.0, 1.79, "not reached"),
    ],
)
def test_verdicts(value: float, low: float, high: float, verdict: str) -> None:
    assert _records.judge(value, low, high) == verdict


def measurement(**values: Any) -> Measurement:
    known = {"cell": "a", "graph": "g", "op": "gat", "phase": "forward", "width": 64, "status": "ok"}
    return Measurement(**{**known, "device": "CPU: Intel", **values})


def claim(**values: Any) -> Claim:
    known = {"name": "c", "value": 2.0, "source": "s", "kind": "paper", "op": "gat", "phase": "forward"}
    return Claim(**{**known, "baseline": "dgl", "hardware": "CPU", **values})


def beside(ours: dict[str, Any], theirs: dict[str, Any], *speedup: float, **case: Any) -> list[Measurement]:
    """DGL and ours on one case; `speedup` is a ratio and the ends of its interval, or nothing."""
    found = Ratio(ratio=speedup[0], low=speedup[1], high=speedup[2]) if speedup else None
    dgl = measurement(**case | theirs, implementation="dgl")
    return [dgl, measurement(**case | ours, implementation="isplib", speedup={"dgl": found})]


@pytest.mark.parametrize(
    ("hardware", "device", "verdict"),
    [
        ("CPU", "CPU: AMD EPYC", "exceeded"),
        ("GPU", "CPU: AMD EPYC", "not comparable"),
        ("GPU", "GPU: NVIDIA", "exceeded"),
        ("", "CPU", "not comparable"),
    ],
)
@pytest.mark.parametrize("quantity", ["time", "memory"])
def test_a_claim_is_judged_on_its_own_kind_of_hardware_only(
    hardware: str, device: str, verdict: str, quantity: str
) -> None:
    figures = ("memory_bytes", "published_memory_bytes", "published_time_s")
    measured = beside({**dict.fromkeys(figures, 100), "device": device}, dict.fromkeys(figures, 800), 8, 7, 9)
    for over in ("max", "median"):
        found = _records.finding(claim(hardware=hardware, quantity=quantity, over=over), measured, pending=False)
        assert found.published
        assert found.corrected
        assert {found.verdict, found.corrected.verdict, found.published.verdict} == {verdict}
        assert found.corrected.ratio == found.published.ratio == 4.0  # shown whatever the verdict


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results" / "reproductions").glob("*.json")), ids=lambda path: path.name
)
def test_stored_reproductions_load_and_hold_the_verdicts_of_today(path: Path) -> None:
    """A record of an earlier version, whose claims say nothing of hardware, loads as well."""
    stored = files.load(Reproduction, path)
    fresh = stored.model_copy(deep=True)
    papers.judge(fresh)
    assert fresh == stored
    raw = stored.model_dump(mode="json")
    for one in raw["findings"]:
        del one["claim"]["hardware"]
    old = Reproduction.model_validate(raw)
    assert {one.claim.hardware for one in old.findings} == {""}
    papers.judge(old)
    assert old == stored


def test_medians_and_maxima_are_of_cases_that_both_sides_ran() -> None:
    measured = []
    for width, ours, theirs in ((16, 1.0, 5.0), (32, 1.0, 3.0), (64, 2.0, 2.0), (128, 1.0, None)):
        dgl = {"status": "ok" if theirs else "oom", "published_time_s": theirs}
        speedup = (theirs / ours, 1.5, 6.0) if theirs else ()
        measured += beside({"published_time_s": ours}, dgl, *speedup, width=width)
    middle = _records.finding(claim(over="median"), measured, pending=False)
    assert middle.corrected
    assert (middle.corrected.value, middle.corrected.low, middle.corrected.high) == (3.0, 1.0, 5.0)
    assert (middle.corrected.where, middle.verdict) == ("3 cases", "exceeded")
    most = _records.finding(claim(value=4.0), measured, pending=False)
    assert most.corrected
    assert (most.corrected.value, most.corrected.low, most.corrected.where) == (5.0, 1.5, "g, width 16")
    assert most.verdict == "reproduced"


def test_a_claim_may_be_about_some_cells_and_all_their_ops() -> None:
    measured = []
    for cell_, op, ratio in (("small-a", "gat", 2.0), ("small-b", "dot", 8.0), ("large-a", "gat", 100.0)):
        dgl = {"published_time_s": ratio}
        measured += beside({"published_time_s": 1.0}, dgl, ratio, ratio, ratio, cell=cell_, op=op, graph=cell_)
    average = _records.finding(claim(op="", cells="small-", over="mean"), measured, pending=False)
    assert average.corrected
    assert average.published
    assert average.corrected.value == average.published.value == pytest.approx(4.0)  # geometric
    assert (average.corrected.low, average.corrected.high, average.corrected.where) == (2.0, 8.0, "2 cases")
    none = _records.finding(claim(cells="huge-"), measured, pending=False)
    assert none.reason == "no cell of this scale measures it"


def test_memory_is_absolute_in_the_papers_protocol_and_incremental_in_ours() -> None:
    dgl = {"memory_bytes": 800, "published_memory_bytes": 1000}
    measured = beside({"memory_bytes": 100, "published_memory_bytes": 500}, dgl)
    found = _records.finding(claim(quantity="memory"), measured, pending=False)
    assert found.corrected
    assert found.published
    assert (found.corrected.value, found.published.value) == (8.0, 2.0)


def test_our_side_comes_from_another_cell_where_the_paper_compares_unequal_models() -> None:
    measured = beside({"published_time_s": 2.0}, {"published_time_s": 8.0}, 4, 4, 4)
    measured.append(measurement(implementation="isplib", op="plain", published_time_s=1.0))
    found = _records.finding(claim(published_op="plain"), measured, pending=False)
    assert found.published
    assert found.corrected
    assert (found.published.value, found.corrected.value) == (8.0, 4.0)


def test_the_best_width_is_that_of_the_largest_gain() -> None:
    gains = {16: 1.1, 64: 1.8, 128: 1.2}
    measured = [
        measurement(
            op="spmm",
            width=width,
            implementation="isplib",
            device="CPU: AMD EPYC",
            speedup={"fallback": Ratio(ratio=gain, low=gain, high=gain)},
        )
        for width, gain in gains.items()
    ]
    widths = {"unit": "channels", "quantity": "best width", "op": "spmm", "baseline": "fallback"}
    amd = _records.finding(claim(value=64, machine="AMD", **widths), measured, pending=False)
    assert amd.verdict == "equal"
    assert amd.corrected
    assert amd.corrected.ratio is None  # of two widths says nothing
    assert _records.finding(claim(value=32, **widths), measured, pending=False).verdict == "different"
    intel = _records.finding(claim(value=32, machine="Intel", **widths), measured, pending=False)
    assert (intel.verdict, intel.reason) == (
        "not run",
        "it is about Intel, and this machine has another processor",
    )


def test_a_cell_that_fails_is_recorded_and_the_rest_goes_on(fake: str, tmp_path: Path) -> None:
    cells = Cells(sage=lambda: Outcome(status="oom", reason="out of memory: too large"))
    found = reproduced(fake, tmp_path, cells)
    assert cells.ran == ["gcn", "sage", "gin"]
    verdicts = [one.verdict for one in found.findings]
    assert verdicts == ["exceeded", "not run", "not reached", "not run"]
    assert found.findings[1].reason == "isplib: out of memory: too large"
    again = Cells()
    known = reproduced(fake, tmp_path, again)
    assert known.model_copy(update={"environment": found.environment}) == found
    assert again.ran == []
    reproduced(fake, tmp_path, again, force=True)
    assert again.ran == ["gcn", "sage", "gin"]


def test_a_backend_that_cannot_run_is_the_reason_of_its_claim(
    fake: str, tmp_path: Path, without_processes: Runner
) -> None:
    without_processes.cells["pyg"] = cell("oom")
    found = reproduced(fake, tmp_path, Cells())
    assert {one.verdict for one in found.findings} == {"not run"}
    assert found.findings[0].reason == "pyg: is oom"


def test_a_wrong_backend_gets_no_speedup(fake: str, tmp_path: Path, without_processes: Runner) -> None:
    without_processes.wrong = "isplib"
    found = reproduced(fake, tmp_path, Cells())
    assert found.exit_code == 3
    assert not any(one.corrected or one.published for one in found.findings)
    assert "differs" in found.findings[0].reason or found.findings[0].reason.startswith("isplib: ")


def test_claims_are_held_against_any_backend_with_kernels(fake: str, tmp_path: Path) -> None:
    found = reproduced(fake, tmp_path, Cells(), backend="reference")
    assert [one.verdict for one in found.findings] == ["not reached"] * 3 + ["not run"]  # slower than pyg here
    assert found.paper.ours == "reference"
    assert "Ours: backend `reference` instead of `isplib`" in found.paper.notes
    with pytest.raises(ConfigError, match="grid"):
        reproduced(fake, tmp_path, Cells())
    with pytest.raises(ConfigError, match="'refrence' has no kernels of its own; did you mean 'reference'"):
        reproduced(fake, tmp_path, Cells(), backend="refrence")


def test_ctrl_c_keeps_everything_and_the_same_call_goes_on(fake: str, tmp_path: Path) -> None:
    def stop() -> Outcome:
        raise KeyboardInterrupt

    found = reproduced(fake, tmp_path, Cells(gin=stop))
    assert (found.status, found.findings[0].verdict) == ("interrupted", "exceeded")
    assert found.findings[2].reason == "its cells have not run yet"
    cells = Cells()
    found = reproduced(fake, tmp_path, cells)
    assert (found.status, cells.ran) == ("ok", ["gin"])


def test_progress_tells_what_runs(fake: str, tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    shown: list[str] = []

    def hear(record: Reproduction, cell: str, step: str) -> None:
        seen.append((cell, step))
        shown.append(report.progress(record, cell, step)[0].splitlines()[-1])

    reproduced(fake, tmp_path, Cells(), on_event=hear)
    assert seen[:3] == [
        ("gcn", ""),
        ("gcn", "working"),
        ("gcn", "pyg, parity check"),
    ]
    assert [line for line in shown if "," not in line] == ["gcn (1 of 3)", "sage (2 of 3)", "gin (3 of 3)"]


def test_another_grid_in_the_same_folder_is_refused_and_force_replaces_it(fake: str, tmp_path: Path) -> None:
    reproduced(fake, tmp_path, Cells())
    with pytest.raises(ConfigError, match=r"holds fake at scale demo with another grid.*--force"):
        papers.reproduce("fake", "small", out=tmp_path / "out", roots=roots(tmp_path), execute=Cells())
    papers.reproduce("fake", "small", out=tmp_path / "out", roots=roots(tmp_path), execute=Cells(), force=True)


@pytest.mark.parametrize(
    ("paper", "scale", "words"), [("isplb", "demo", "did you mean 'isplib'"), ("isplib", "dem", "'demo'")]
)
def test_bad_input_is_one_sentence(tmp_path: Path, paper: str, scale: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        papers.reproduce(paper, scale, out=tmp_path, roots=roots(tmp_path), execute=Cells())


ABOUT = dict.fromkeys(("name", "title", "machine", "published", "corrected"), "p")


def test_claims_of_the_same_quantity_share_a_row_and_a_bar() -> None:
    measured = beside({"published_time_s": 1.0}, {"published_time_s": 4.0}, 3, 2.5, 3.5)
    claims = [
        claim(),
        claim(value=8.0, kind="blog"),
        claim(over="median"),
        claim(value=1.5, hardware="GPU", op="x"),
    ]
    findings = [_records.finding(one, measured, pending=False) for one in claims]
    found = Reproduction(paper=ABOUT, scale="small", cells=[], findings=findings, measurements=measured)
    text = tables.markdown(report.claims(found))
    assert (
        "| c<br>max, vs dgl | 2.00x paper<br>8.00x blog | 4.00x | 3.00x<br>2.50–3.50x | 1.50x<br>0.38x "
        "| exceeded<br>not reached |"
    ) in text
    assert sum(line.startswith("| c<br>") for line in text.splitlines()) == 3
    bars = report.pictures(found)["speedups"][0]
    assert isinstance(bars, plots.Bars)
    assert bars.groups[0] == "gat\nforward\nmax\nvs dgl\n(paper,\nblog)"
    assert [re.split("[,;]", series.label)[0] for series in bars.series] == ["published", "ours", "ours"]
    assert bars.series[0].values == [Interval(2.0, 2.0, 8.0), Interval(2.0, 2.0, 2.0)]


def test_tables_and_pictures_say_what_was_measured(fake: str, tmp_path: Path) -> None:
    found = reproduced(fake, tmp_path, Cells(gin=lambda: Outcome(status="failed", reason="crashed")))
    texts = [tables.markdown(table) for table in report.tables(found)]
    text = "\n".join(texts)
    assert "| gcn epoch<br>max, vs pyg | 7.90x log | 7.29x | 8.00x | 1.01x | exceeded |" in text
    assert "| gcn on zoo" in text
    assert "gin epoch: not run because isplib: crashed" in text
    assert "Published on: CPU, a server" in text
    for name, panels in report.pictures(found).items():
        plots.save(panels, "title", tmp_path / f"{name}.svg")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()
    assert {"speedups", "memory"} <= report.pictures(found).keys()


def test_an_op_runs_on_a_batch_of_graphs_in_a_process_of_its_own(tmp_path: Path) -> None:
    """On the first graphs of a set, put together as one; too few are an outcome."""
    small = Ops(
        key="a",
        op="dot_attention",
        dataset=datasets.parse("synthetic:mnist:0.0002"),
        batch=6,
        widths=[4],
        against=["pyg"],
        backend="reference",
        backward=False,
        protocol="mean",
    )
    work, told = Work(cell=small, roots=roots(tmp_path), out=tmp_path / "a"), []
    outcome = mechanism.execute(work, told.append)
    assert outcome == Outcome(status="ok", code=work.code, wall_s=outcome.wall_s)
    assert "dot_attention forward, width 4: timing" in told
    ours, pyg = small.measured(work.out)
    assert (ours.status, pyg.status, ours.batch) == ("ok", "ok", 6)
    assert ours.graph == "synthetic mnist x0.0002, 6 graphs"
    samples = [*chain.from_iterable(files.load(Bench, work.out / "bench.json").rows[0].time_s.samples)]
    assert ours.published_time_s == pytest.approx(fmean(samples))
    large = Work(cell=small.model_copy(update={"batch": 1000}), roots=roots(tmp_path), out=tmp_path / "b")
    mechanism.perform(large, told.append)
    outcome = large.finished()
    assert outcome
    assert (outcome.status, "fewer than the 1,000 asked for" in outcome.reason) == ("failed", True)


def test_epochs_of_batches_are_told_apart_by_phase(tmp_path: Path, without_processes: Runner) -> None:
    """PyG's loader is no part of the paper's epoch, and is one of the corrected protocol's."""

    def loading(job: Any) -> Any:
        result = without_processes.good(job)
        for sample in result.samples:
            sample.load_s = 0.2
        return result

    without_processes.cells["pyg"] = loading
    one = Training(
        key="a",
        op="gt",
        dataset=datasets.parse("synthetic:pattern:0.001"),
        model={"name": "transformer", "heads": 1},
        batch={"kind": "graphs", "size": 4},
        train={"epochs": 4},
        backends=["pyg:loader=pyg", "isplib"],
        rounds=1,
        phases=["epoch", "forward"],
        protocol="collected",
    )
    one.run(Work(cell=one, roots=roots(tmp_path), out=tmp_path), lambda _: None)
    epoch, forward, ours, our_forward = one.measured(tmp_path)
    assert epoch.graph == "zoo, batches of 4"
    assert (epoch.published_time_s, epoch.time_s) == (pytest.approx(0.6), pytest.approx(0.8))
    assert (forward.phase, forward.published_time_s) == ("forward", pytest.approx(0.2))
    assert epoch.parts_s == pytest.approx({"load": 0.2, "forward": 0.2, "backward": 0.4, "optimizer": 0.2})
    ratios = [each.speedup["pyg:loader=pyg"] for each in (ours, our_forward)]
    assert [ratio and ratio.ratio for ratio in ratios] == pytest.approx([8.0, 8.0])


def test_pictures_show_what_speedups_and_epochs_depend_on() -> None:
    cells = [
        Ops(key=key, op="gat", dataset={"name": name}, batch=batch, widths=widths, against=["pyg"])
        for key, name, batch, widths in (
            ("a", "pattern", 64, [32]),
            ("b", "mnist", 64, [32]),
            ("c", "pattern", 64, [16]),
            ("d", "pattern", 256, [32]),
        )
    ]
    measured = [
        measurement(
            cell=one.key,
            graph=f"{one.dataset['name']}, {one.batch} graphs",
            batch=one.batch,
            width=one.widths[0],
            implementation="isplib",
            speedup={"pyg": Ratio(ratio=place, low=place, high=place)},
        )
        for place, one in enumerate(cells, start=1)
    ]
    training = [
        measurement(cell="e", phase="epoch", implementation=name, parts_s={"load": 0.1, "forward": seconds})
        for name, seconds in (("pyg", 2.0), ("isplib", 1.0))
    ]
    definitions = [{"key": one.key, "definition": one.model_dump(mode="json")} for one in cells]
    definitions.append({"key": "e", "definition": {"kind": "training", "dataset": {}}})
    rows = [*measured, *training]
    found = Reproduction(paper=ABOUT, scale="demo", cells=definitions, findings=[], measurements=rows)
    drawn = report.pictures(found)
    assert [[line.points for line in panel.lines] for panel in drawn["widths"]] == [[[(16.0, 3.0), (32.0, 1.0)]]]
    assert [[line.points for line in panel.lines] for panel in drawn["batches"]] == [[[(64.0, 1.0), (256.0, 4.0)]]]
    (sets,) = drawn["sets"]
    assert (sets.groups, [each.value for each in sets.series[0].values]) == (["pattern", "mnist"], [1.0, 2.0])
    (epochs,) = drawn["epochs"]
    assert epochs.stacked
    assert epochs.groups == ["gat\npyg", "gat\nours"]
    assert [(part.label, part.values) for part in epochs.series] == [("load", [0.1, 0.1]), ("forward", [2.0, 1.0])]


@pytest.mark.parametrize("paper", papers.names())
@pytest.mark.parametrize("scale", ["demo", "small", "paper"])
def test_every_grid_is_valid(paper: str, scale: Any) -> None:
    module = papers.registry.find("papers", paper.replace("-", "_"))
    cells = module.cells(scale)
    keys = [one.key for one in cells]
    assert len({*keys}) == len(keys)
    for claim in module.CLAIMS:
        measuring = [one for one in cells if one.key.startswith(claim.cells) and claim.op in ("", one.op)]
        assert measuring or claim.not_run, claim.name
    assert all(claim.hardware for claim in module.CLAIMS)
    for one in cells:
        assert one.configs()
        assert not isinstance(one, papers.Ops) or one.grid.sizes()


def test_sigkill_at_random_moments_ends_with_the_same_table(fake: str, tmp_path: Path) -> None:
    """Processes are killed until one comes to its end; a finished cell is never run again."""

    def slowly(work: Work, tell: Callable[[str], None]) -> Outcome:
        return Cells()(work, lambda _: time.sleep(0.01))

    out = tmp_path / "out"
    assert killed_at_random(reproduced, fake, tmp_path, slowly, out=out, kills=4, longest_s=0.6)
    found = files.load(Reproduction, out / "reproduction.json")
    whole = reproduced(fake, tmp_path, Cells(), out=tmp_path / "whole")
    assert found.findings == whole.findings
    assert found.measurements == whole.measurements


def test_the_command_line(fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanism, "execute", Cells())
    output = run("reproduce", "fake", "--out", tmp_path / "out", "--csv", tmp_path / "rows.csv")
    assert output.code == 0
    assert "exceeded" in output.stdout
    assert (tmp_path / "out" / "speedups.png").stat().st_size > 10_000
    assert (tmp_path / "out" / "memory.svg").exists()
    assert (tmp_path / "rows.csv").read_text().count("\n") == 7
    as_json = run("reproduce", "fake", "--out", tmp_path / "out", "--json")
    assert Reproduction.model_validate_json(as_json.stdout).status == "ok"
