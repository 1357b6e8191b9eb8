"""The tuner: noise cannot win, a wrong choice is noticed, choices are kept on disk and reach the kernels."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gnnbench import config, datasets, doctor, models
from gnnbench.backends import isplib
from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.graph import Graph
from gnnbench.kinds import tuning as report
from gnnbench.measure import clock
from gnnbench.ops.kernels import Choice, Kernels, choice_key
from gnnbench.results.files import save_json
from gnnbench.training import setup
from gnnbench.tuning import search, store
from gnnbench.tuning.search import Request
from gnnbench.tuning.store import Tuned
from tests.support import choosing, graphs
from tests.support.commands import TINY, Output, run

needs_kernels = pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
SPMM = Request("graph", "spmm", 4)


class Knobs(Kernels):
    """Kernels whose calls take as long as their choice says, on a clock of their own."""

    def __init__(self, *seconds: float, noise: float = 0.0, wrong: int = -1) -> None:
        self.seconds, self.noise, self.wrong = seconds, noise, wrong
        self.clock_s = 0.0
        self.random = random.Random(0)
        self.plain = Plain(self, 0.8)

    def now(self) -> float:
        return self.clock_s

    def fallback(self, choice: Choice) -> tuple[Kernels, Choice]:
        return self.plain, {}

    def choices(self, op: str, graph: Graph, width: int, dtype: torch.dtype, heads: int = 1) -> list[Choice]:
        return [{"algorithm": "row", "number": number} for number in range(len(self.seconds))]

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        number = int(graph.cache[choice_key("spmm", x.size(1), x.dtype)].get("number", 0))
        self.clock_s += self.seconds[number] * (1 + self.noise * self.random.random())
        return super().spmm(graph, x, value, reduce) + (number == self.wrong)


class Plain(Kernels):
    """The fallback, on the clock of the others."""

    def __init__(self, knobs: Knobs, seconds: float) -> None:
        self.knobs, self.seconds = knobs, seconds

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        self.knobs.clock_s += self.seconds
        return super().spmm(graph, x, value, reduce)


def tuned_by(knobs: Knobs, *wanted: Request) -> Tuned:
    graph = graphs.graph("power law")
    return search.tune(graph, "zoo", wanted or [SPMM], now=knobs.now, kernels=knobs)


def test_the_fastest_choice_wins() -> None:
    knobs = Knobs(0.4, 0.5, 0.1, 0.2)
    found = tuned_by(knobs)
    (record,) = found.choices
    assert (record.choice["number"], record.default["number"]) == (2, 0)
    assert record.time_s == pytest.approx(0.1)
    for ratio, expected in ((record.gain, 4.0), (record.speedup, 8.0)):
        assert (ratio.ratio, ratio.low, ratio.high) == pytest.approx((expected,) * 3)
    assert found.tuning_s == pytest.approx(knobs.clock_s)


def test_the_heuristic_stays_where_it_is_best_or_alone() -> None:
    for knobs in (Knobs(0.1, 0.2, 0.3), Knobs(0.1)):
        (record,) = tuned_by(knobs).choices
        assert record.choice == record.default
        assert (record.gain.ratio, record.speedup.ratio) == (1.0, pytest.approx(8.0))


def test_noise_does_not_win() -> None:
    replaced = [
        record
        for seed in range(20)
        for knobs in [Knobs(*[0.1] * 12, noise=0.3)]
        for _ in [knobs.random.seed(seed)]
        for record in tuned_by(knobs).choices
        if record.choice != record.default
    ]
    assert len(replaced) <= 3  # the interval is one of 95%


def test_a_choice_that_computes_something_else_is_an_error() -> None:
    with pytest.raises(GnnbenchError, match=r"'number': 1.*differs from.*nothing is kept"):
        tuned_by(Knobs(0.2, 0.1, wrong=1))


@needs_kernels
@pytest.mark.parametrize("op", search.AGGREGATIONS)
def test_choices_may_add_in_another_order(op: str, monkeypatch: pytest.MonkeyPatch, brief: None) -> None:
    """Blocks of different sizes do, on either side of the heuristic's; their sums differ in rounding."""
    choosing.use_blocks(monkeypatch, 7)
    kernels = isplib.IsplibKernels(threads=2)
    graph = graphs.power_law(600, 60_000, kernels)
    first = kernels.choices(op, graph, 24, torch.float32)[0]
    assert first["algorithm"] == "blocked"
    (record,) = search.tune(graph, "zoo", [Request("graph", op, 24)], now=clock.cpu, kernels=kernels).choices
    assert record.default == first


def test_a_search_leaves_no_choice_behind() -> None:
    graph, knobs = graphs.graph("power law"), Knobs(0.2, 0.1)
    search.tune(graph, "zoo", [SPMM], now=knobs.now, kernels=knobs)
    assert not [key for key in graph.cache if key[0] == "choice"]


def test_requests_cover_the_backward_of_asymmetric_graphs() -> None:
    assert search.requests(graphs.graph("symmetric"), ["spmm"], [4]) == [SPMM]
    assert search.requests(graphs.graph("hub"), ["spmm", "spmm_max"], [4]) == [
        SPMM,
        Request("graph", "spmm_max", 4),
        Request("transpose", "spmm", 4),
    ]
    over_heads = "gat_attention", "gat_attention_backward", "dot_attention_backward", "spmm_max"
    assert search.requests(graphs.graph("hub"), over_heads, [8], [2, 4])[::2] == [
        Request("graph", "gat_attention", 8, heads=2),
        Request("graph", "dot_attention_backward", 8, heads=2),
        Request("graph", "spmm_max", 8),
        Request("transpose", "gat_attention_backward", 8, heads=4),
        Request("transpose", "dot_attention_backward", 8, heads=4),
    ]
    bad = (
        (["spmn"], [4], [1], "did you mean 'spmm'"),
        (["spmm"], [0], [1], "no width"),
        (["sddmm"], [4], [0], "no number of heads"),
        (["sddmm"], [6], [1, 4], "width 6 cannot be shared by 4 heads"),
        ([], [], [1], "give"),
    )
    for ops, widths, heads, words in bad:
        with pytest.raises(ConfigError, match=words):
            search.requests(graphs.graph("hub"), ops, widths, heads)


@pytest.fixture
def cache(folder: Path) -> Path:
    return folder / "cache"


def test_what_is_kept_grows_and_is_replaced(cache: Path) -> None:
    graph = graphs.graph("power law")
    first = search.keep(tuned_by(Knobs(0.2, 0.1), SPMM, SPMM._replace(width=8)), cache, graph)
    second = search.keep(tuned_by(Knobs(0.1, 0.2), SPMM), cache, graph)
    assert [(record.width, record.choice["number"]) for record in first.choices] == [(4, 1), (8, 1)]
    assert [(record.width, record.choice["number"]) for record in second.choices] == [(4, 0), (8, 1)]
    assert second.tuning_s > first.tuning_s
    assert list(store.known(cache)) == [second]
    assert store.read(store.path(cache, graphs.graph("hub"), "torch")) == (None, [])
    assert store.clear(cache) == 1
    assert (store.clear(cache), list(store.known(cache))) == (0, [])


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 2}', "\x00"])
def test_a_broken_file_is_ignored_with_a_warning(content: str, cache: Path) -> None:
    graph = graphs.graph("power law")
    search.keep(tuned_by(Knobs(0.2, 0.1)), cache, graph)
    file = store.path(cache, graph, "torch")
    file.write_text(content)
    found, (warning,) = store.apply(graph, Knobs(0.2, 0.1), torch.nn.Linear(4, 4), cache)
    assert found is None
    assert f"{file} is ignored" in warning
    assert "gnnbench tune" in warning
    search.keep(tuned_by(Knobs(0.2, 0.1)), cache, graph)
    assert store.read(file)[1] == []


def test_a_foreign_file_is_ignored_with_a_warning(cache: Path) -> None:
    graph = graphs.graph("power law")
    found = search.keep(tuned_by(Knobs(0.2, 0.1)), cache, graph)
    file = store.path(cache, graph, "torch")
    for changes in ({"machine": {**found.machine, "gnnbench": "0.0.1"}}, {"fingerprint": "0" * 16}):
        save_json(found.model_copy(update=changes), file)
        ignored, (warning,) = store.read(file)
        assert ignored is None
        assert "another machine, version or graph" in warning
    assert doctor.examine(datasets.roots())["tuned"] == {"graphs": {}, "other_files": 1}


def test_another_number_of_threads_has_choices_of_its_own(cache: Path) -> None:
    graph = graphs.graph("power law")
    before = store.path(cache, graph, "torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert store.path(cache, graph, "torch") != before
    finally:
        torch.set_num_threads(threads)


WRITE = """
import sys
from pathlib import Path
from gnnbench.results import files
from gnnbench.tuning.store import Tuned
file = Path(sys.argv[1])
found = Tuned.model_validate_json(file.read_bytes())
print("ready", flush=True)
for number in range(300):
    files.save_json(found.model_copy(update={"graph": "x" * number * 50}), file)
"""


def test_two_processes_at_once_leave_a_whole_file(cache: Path) -> None:
    graph = graphs.graph("power law")
    found = search.keep(tuned_by(Knobs(0.2, 0.1)), cache, graph)
    file = store.path(cache, graph, "torch")
    writer = subprocess.Popen([sys.executable, "-c", WRITE, str(file)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout
    assert writer.stdout.readline() == "ready\n"
    kept = 0
    while writer.poll() is None:
        assert store.read(file)[1] == []
        search.keep(found, cache, graph)
        kept += 1
    writer.communicate()
    assert (writer.returncode, kept > 1) == (0, True)
    assert store.read(file)[0] is not None


def kept(graph: Graph, cache: Path, *records: tuple[str, int, Choice]) -> None:
    """Choices as if they had been found."""
    (like,) = tuned_by(Knobs(0.2, 0.1)).choices
    choices = [
        like.model_copy(update={"adjacency": adjacency, "width": width, "choice": choice})
        for adjacency, width, choice in records
    ]
    tuning = {"machine": store.machine(), "graph": "zoo", "fingerprint": store.fingerprint(graph), "tuning_s": 1.0}
    search.keep(Tuned(**tuning, kernels="isplib", choices=choices), cache, graph)


@needs_kernels
def test_choices_reach_the_graph_its_loops_and_their_transposes(cache: Path) -> None:
    kernels = isplib.IsplibKernels()
    graph = graphs.power_law(500, 20_000, kernels)
    row: Choice = {"algorithm": "row", "prefetch": 8, "threads": 1}
    blocked: Choice = {"algorithm": "blocked", "shift": 8}
    impossible: Choice = {"algorithm": "row", "prefetch": 8, "threads": 1000}
    kept(graph, cache, ("graph", 4, row), ("transpose", 4, blocked), ("graph", 8, impossible), ("graph", 64, row))
    looped, transpose = graph.with_self_loops, graph.transpose
    found, warnings = store.apply(graph, kernels, torch.nn.Linear(4, 8), cache)
    assert found
    assert [(record.adjacency, record.width) for record in found.choices] == [("graph", 4), ("transpose", 4)]
    (warning,) = warnings
    assert "spmm of width 8 cannot run as {'algorithm': 'row', 'prefetch': 8, 'threads': 1000}" in warning
    assert "gnnbench tune" in warning
    for on, expected in ((graph, row), (looped, row), (transpose, blocked)):
        assert kernels.chosen("spmm", on, 4, torch.float32) == expected
    assert "transpose" not in vars(looped)  # what was not made is not made for this
    assert ("blocks", "spmm", 8) in transpose.cache
    assert choice_key("spmm", 8, torch.float32) not in graph.cache


def test_an_untouched_cache_costs_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "fingerprint", pytest.fail)
    assert store.apply(graphs.graph("hub"), Knobs(0.2, 0.1), torch.nn.Linear(4, 4), cache) == (None, [])


@needs_kernels
@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gatv2", "transformer"])
def test_a_run_asks_for_the_widths_of_its_model(model: str, cache: Path) -> None:
    section = {"source": "synthetic", "preset": "cora", "scale": 0.05}
    raw = {"dataset": section, "model": {"name": model, "hidden": 8}, "backend": {"name": "isplib"}}
    if model == "sage":
        raw["model"]["aggr"] = "max"
    run_config = config.validate(raw, "test")
    found = search.requests_of(
        run_config, datasets.load(run_config.dataset, datasets.roots()), isplib.IsplibKernels
    )
    if model == "gcn":
        assert set(found) == {Request("graph", "spmm", 8), Request("graph", "spmm", 7)}
    elif model == "sage":
        assert {request.op for request in found} == {"spmm_max"}
    else:
        family = {"transformer": "dot"}.get(model, model)
        of_layers = [(8, run_config.model.heads), (7, 1)]
        ops = f"{family}_attention", f"{family}_attention_backward"
        assert set(found) == {Request("graph", op, width, heads=heads) for op in ops for width, heads in of_layers}


def trained(*options: str) -> Output:
    return run("train", *TINY, "--backend", "isplib", *options)


@needs_kernels
def test_training_uses_what_was_tuned_and_says_so(cache: Path, brief: None) -> None:
    command = ("tune", "synthetic:cora:0.05", "--widths", "7,8", "--ops", "spmm", "--plot", "curve.png")
    output = run(*command, "--json")
    assert output.code == 0, output.stderr
    found = json.loads(output.stdout)
    assert [record["width"] for record in found["choices"]] == [7, 8]
    assert Path("curve.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads(trained("--json").stdout)
    assert result["choices"] == found["choices"]
    assert result["tuning_s"] == found["tuning_s"]
    assert "Kernels: 2 tuned choices, measured earlier in" in " ".join(trained().stdout.split())
    assert json.loads(trained("--json", "--set", "backend.tuned=false").stdout)["choices"] == []
    assert "(2 choices)" in run("doctor").stdout
    assert "removed 1 file" in run("tune", "--clear").stdout
    assert json.loads(trained("--json").stdout)["choices"] == []
    assert "tuned graphs" in "".join(
        cells[0].text for cells in doctor.table(doctor.examine(datasets.roots())).rows
    )


@needs_kernels
def test_training_on_links_uses_what_was_tuned(cache: Path, brief: None) -> None:
    path = cache.parent / "links.yaml"
    sections = {
        "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.05, "task": "links"},
        "model": {"name": "gcn", "hidden": 8, "out_channels": 3},
        "batch": {"kind": "links"},
    }
    path.write_text(json.dumps(sections))
    found = json.loads(run("tune", path, "--json").stdout)["choices"]
    assert {record["width"] for record in found} == {3, 8}
    result = run("train", path, "--backend", "isplib", "--epochs", "2", "--set", "measure.warmup=1", "--json")
    assert json.loads(result.stdout)["choices"] == found


@needs_kernels
def test_attention_is_tuned_and_runs_as_was_found(cache: Path, brief: None) -> None:
    path = cache.parent / "gat.yaml"
    section = {"source": "synthetic", "preset": "cora", "scale": 0.05}
    model = {"name": "gat", "hidden": 8, "heads": 2}
    path.write_text(json.dumps({"dataset": section, "model": model | {"heads": 1}, "train": {"epochs": 2}}))
    output = run("tune", path, "--set", "model.heads=2", "--json")
    assert output.code == 0, output.stderr
    found = Tuned.model_validate_json(output.stdout)
    asked = [(record.op, record.width, record.heads) for record in found.choices]
    assert sorted(asked) == [
        (f"gat_attention{way}", width, heads) for way in ("", "_backward") for width, heads in [(7, 1), (8, 2)]
    ]
    known = store.read(next((cache / "tuned").rglob("*.json")))[0]
    assert known == found
    result = json.loads(run("train", path, "--set", "model.heads=2", "--backend", "isplib", "--json").stdout)
    assert result["choices"] == json.loads(output.stdout)["choices"]

    choice: Choice = {"chunk": 16, "threads": 1}
    save_json(
        found.model_copy(update={"choices": [one.model_copy(update={"choice": choice}) for one in found.choices]}),
        next((cache / "tuned").rglob("*.json")),
    )
    run_config = config.validate({"dataset": section, "model": model}, "test")
    dataset = datasets.load(run_config.dataset, datasets.roots())
    built = models.build(run_config.model, dataset.x.size(1), dataset.num_classes)
    backend = isplib.Backend(run_config.backend.model_copy(update={"name": "isplib"}))
    adjacency = setup.prepare(run_config, built, backend, dataset, cache).batching.batch.adj
    kernels = adjacency.layout
    for on in (adjacency, adjacency.with_self_loops):
        assert kernels.chosen("gat_attention", on, 8, torch.float32, 2) == choice
        assert kernels.chosen("gat_attention_backward", on, 7, torch.float32, 1) == choice


def test_the_best_width_is_marked_and_drawn() -> None:
    knobs = Knobs(0.4, 0.1)
    seconds = {4: 0.8, 8: 1.6, 16: 0.4}
    knobs.plain.spmm = lambda graph, x, value, reduce: _slept(knobs, seconds[x.size(1)], x)  # type: ignore[method-assign]
    wanted = [SPMM._replace(width=width) for width in seconds]
    graph = graphs.graph("power law")
    found = search.tune(graph, "zoo", wanted, now=knobs.now, kernels=knobs)
    names = [row[0].text for row in report.table(found).rows]
    assert names == ["spmm, 4", "spmm, 8 *", "spmm, 16"]
    (panel,) = report.panels(found)
    tuned_line, untuned_line = panel.lines
    assert tuned_line.marks == [(8, "")]
    assert dict(tuned_line.points) == pytest.approx({4: 8.0, 8: 16.0, 16: 4.0})
    assert dict(untuned_line.points) == pytest.approx({4: 2.0, 8: 4.0, 16: 1.0})


def _slept(knobs: Knobs, seconds: float, x: Tensor) -> Tensor:
    knobs.clock_s += seconds
    return x
