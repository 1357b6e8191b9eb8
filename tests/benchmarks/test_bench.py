"""Benchmarks of ops: right before fast, interleaved, every failure a row, the ceilings known."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench import benchmarks, datasets, stats
from gnnbench.backends import isplib
from gnnbench.backends.isplib import choices
from gnnbench.benchmarks import Grid, ops, peers
from gnnbench.benchmarks.ops import OPS, Case, Reference
from gnnbench.benchmarks.records import Bench, Ceilings
from gnnbench.config import validate
from gnnbench.errors import BackendUnavailable, ConfigError, OutOfMemory, UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.kinds import bench as report
from gnnbench.measure.rounds import Budget, interleaved
from gnnbench.ops.kernels import Kernels
from gnnbench.report import plots, tables
from gnnbench.results import files
from tests.support import commands, graphs
from tests.support.real_data import needs_data

pytestmark = pytest.mark.usefixtures("brief")
needs_kernels = pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
ON_GRAPHS = [name for name, op in OPS.items() if not op.sizes]
LAYERS = {
    **{"linear": "300x32x16", "batch_norm": "300x16", "dropout": "300x16", "embedding_sum": "300x3x8"},
    **{"gru": "300x16x48", "perceptron": "300x16"},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> datasets.NodeDataset:
    section = {"source": "synthetic", "preset": "cora", "scale": 0.05}
    config = validate({"dataset": section, "model": {"name": "gcn"}, "backend": {"name": "pyg"}}, "test")
    folder = tmp_path_factory.mktemp("data")
    return datasets.load(config.dataset, datasets.Roots(folder, folder))


def run(grid: Grid, dataset: datasets.NodeDataset | None, out: Path, **options: Any) -> Bench:
    options = {"cache": out / "cache", **options}
    return benchmarks.bench(grid, dataset, out=out, **options)


class Clock:
    """Contestants that take as long as they are told, one at a time."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.log: list[tuple[str, int, int]] = []

    def contestants(self) -> dict[str, Any]:
        return {name: lambda samples, calls, name=name: self.time(name, samples, calls) for name in self.seconds}

    def time(self, name: str, samples: int, calls: int) -> list[float]:
        self.log.append((name, samples, calls))
        return [self.seconds[name]] * samples


def test_rounds_are_interleaved_and_their_order_rotates() -> None:
    clock = Clock(a=0.2, b=0.3, c=0.4)
    found = interleaved(clock.contestants(), Budget(rounds=3, least_s=0.1), pytest.fail)
    assert found == {name: [[seconds]] * 3 for name, seconds in clock.seconds.items()}
    assert "".join(name for name, _, _ in clock.log) == "abc" + "abc" + "bca" + "cab"


def test_quick_calls_are_repeated_until_the_budget_is_spent() -> None:
    clock = Clock(quick=1e-5)
    found = interleaved(clock.contestants(), Budget(rounds=5, least_s=0.2), pytest.fail)
    spent = sum(samples * calls for _, samples, calls in clock.log[2:]) * 1e-5
    assert 0.2 <= spent < 0.22
    assert [len(round_) for round_ in found["quick"]] == [8] * 5


def test_slow_contestants_get_two_rounds() -> None:
    clock = Clock(slow=30.0, quick=1.0)
    found = interleaved(clock.contestants(), Budget(rounds=5, most_s=20.0), pytest.fail)
    assert {name: len(rounds) for name, rounds in found.items()} == {"slow": 2, "quick": 5}


def test_a_contestant_that_fails_leaves_the_others_alone() -> None:
    clock, failures = Clock(a=0.2, b=0.2), []
    contestants = clock.contestants()
    calls = iter(range(10))

    def failing(samples: int, repeats: int) -> list[float]:
        if next(calls) == 2:
            raise MemoryError
        return [0.2] * samples

    contestants["b"] = failing
    found = interleaved(
        contestants, Budget(rounds=3, least_s=0.0), lambda name, error: failures.append((name, error))
    )
    assert {name: len(rounds) for name, rounds in found.items()} == {"a": 3}
    assert [(name, type(error)) for name, error in failures] == [("b", MemoryError)]


@needs_kernels
@pytest.mark.parametrize("name", graphs.SQUARE)
@pytest.mark.parametrize("op", ON_GRAPHS)
def test_every_implementation_computes_the_op_or_declines(op: str, name: str) -> None:
    graph = graphs.graph(name)
    for heads, weighted in ((1, True), (3, False)):
        case = Case(op, graph, 3 if op == "edge_softmax" else 6, heads if OPS[op].has_heads else 1, weighted)
        truth = Reference(case)
        ran = []
        for implementation in ("isplib", "isplib-bf16", "reference", "torch-csr", "torch-scatter", "pyg"):
            try:
                one = peers.local(implementation, case)
            except UnsupportedOp:
                continue
            if not graph.num_edges and implementation not in ("isplib", "reference"):
                continue  # not every peer takes empty graphs
            ran.append(implementation)
            assert truth.error("forward", one.outputs("forward", truth.grad_out)) < 1e-4, implementation
            assert truth.error("backward", one.outputs("backward", truth.grad_out)) < 1e-4, implementation
        assert {"isplib", "reference"} <= set(ran)


@pytest.mark.parametrize("op", ON_GRAPHS)
def test_a_sample_of_rows_is_as_strict(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "REFERENCE_BYTES", 8 * 4 * 200)
    case = Case(op, graphs.graph("power law"), 4, 4 if op == "edge_softmax" else 1)
    truth = Reference(case)
    assert 1 < truth.rows < 60
    one = peers.local("reference", case)
    for direction in ("forward", "backward"):
        outputs = [tensor.clone() for tensor in one.outputs(direction, truth.grad_out)]
        assert truth.error(direction, outputs) < 1e-5
        for number, output in enumerate(outputs):
            changed = [tensor.clone() for tensor in outputs]
            dims = case.op.out if direction == "forward" else case.dims[case.op.grads[number]]
            row = truth._sampled.get(dims[0], [0])[0]
            changed[number][row] = output[row] + output.abs().max()
            assert truth.error(direction, changed) > ops.TOLERANCE
            changed[number][row] = torch.nan
            assert truth.error(direction, changed) == float("inf")


def test_compulsory_traffic_counts_every_tensor_once() -> None:
    graph = graphs.graph("power law")  # 60 nodes, 900 edges
    indices = 8 * 61 + 4 * 900
    assert Case("spmm", graph, 8).compulsory("forward") == (indices + 2 * 60 * 8 * 4, 900 * 8 * 4)
    assert Case("spmm", graph, 8, weighted=True).compulsory("forward")[0] == indices + 2 * 60 * 8 * 4 + 4 * 900
    assert Case("spmm_max", graph, 8).compulsory("forward")[0] == indices + 3 * 60 * 8 * 4
    assert Case("spmm_max", graph, 8).compulsory("backward") == (8 * 61 + 3 * 60 * 8 * 4, 0)
    assert Case("edge_softmax", graph, 4, 4).compulsory("backward") == (8 * 61 + 3 * 900 * 4 * 4, 0)
    nodes, scores = 60 * 8 * 4, 60 * 2 * 4
    gat = Case("gat_attention", graph, 8, 2)
    assert gat.compulsory("forward") == (indices + 2 * nodes + 2 * scores, 900 * 8 * 4)
    assert gat.compulsory("backward") == (indices + nodes + 2 * (nodes + 2 * scores), 2 * 900 * 8 * 4)


@needs_kernels
def test_a_benchmark_has_a_row_for_everybody(dataset: datasets.NodeDataset, tmp_path: Path) -> None:
    grid = Grid("spmm", (4, 8), against=("torch-csr", "pyg", "reference"), backward=True)
    heard: list[str] = []
    found = run(grid, dataset, tmp_path, on_event=lambda _, what: heard.append(what))
    assert (found.status, found.exit_code) == ("ok", 0)
    assert len(found.rows) == 2 * 2 * 4
    assert Bench.model_validate_json((tmp_path / "bench.json").read_bytes()) == found
    for row in found.rows:
        if row.implementation == "pyg":
            assert (row.status, row.time_s, row.ratio) == ("unsupported", None, dict.fromkeys(grid.against))
            continue
        assert row.status == "ok"
        assert row.error is not None
        assert row.error < 1e-4
        assert row.time_s
        assert row.time_s.low <= row.time_s.median <= row.time_s.high
        assert row.gather_bytes_per_s == pytest.approx(found.size.edges * row.width * 4 / row.time_s.median)
        assert row.roofline_fraction
        assert row.ratio["pyg"] is None
        peer = row.ratio["torch-csr"]
        assert peer
        if row.implementation == "torch-csr":
            assert (peer.ratio, peer.low, peer.high) == (1, 1, 1)
    ours, csr = found.rows[0], found.rows[1]
    assert ours.time_s
    assert csr.time_s
    expected = stats.ratio_interval(csr.time_s.samples, ours.time_s.samples)
    ratio = ours.ratio["torch-csr"]
    assert ratio
    assert (ratio.ratio, ratio.low, ratio.high) == expected
    assert "spmm backward, width 8: timing" in heard


@needs_kernels
@pytest.mark.parametrize(("op", "shape"), LAYERS.items())
def test_a_layer_is_checked_and_timed_beside_torch(
    op: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LAYERS.keys() == {*OPS} - {*ON_GRAPHS}
    found = run(Grid(op, shapes=[shape], backward=True), None, tmp_path)
    assert [(row.implementation, row.status) for row in found.rows] == [("isplib", "ok"), ("torch", "ok")] * 2
    for row in found.rows:
        assert "x".join(map(str, row.shape)) == shape
        assert row.error is None if (op, row.implementation) == ("dropout", "torch") else row.error < 1e-4
        assert bool(row.flop_per_s) == (op == "linear")
        assert row.roofline_fraction
        assert row.ratio["torch"]
    text = tables.markdown(report.table(found))
    assert f"| {shape}, backward |" in text
    assert ("GFLOP/s" in text) == (op == "linear")
    assert report.panels(found)[1].title == "backward"
    call = OPS[op].call
    wrong = dataclasses.replace(OPS[op], call=lambda kernels, *_, **inputs: call(kernels, None, **inputs) * 1.01)
    monkeypatch.setitem(OPS, op, wrong)
    monkeypatch.setattr(Reference, "_out", property(lambda truth: call(Kernels(), None, **truth._inputs)))
    assert run(Grid(op, shapes=[shape]), None, tmp_path / "wrong").rows[0].status == "wrong"


def test_layers_are_those_of_all_configurations() -> None:
    linear, norms, dropped = (ops.of_configurations(op) for op in ("linear", "batch_norm", "dropout"))
    assert {"816x300x300", "2708x1433x16", "169343x256x256", "262144x100x256"} <= {*linear}
    assert {"816x300", "169343x256"} <= {*norms}
    assert "2708x1433" in dropped
    assert Grid("linear").sizes()[0] == (2, 1, (32, 32, 2))


def test_a_row_is_judged_by_its_own_size_beside_a_hub() -> None:
    sources = torch.cat([torch.arange(1, 300).repeat(60), torch.tensor([5])])
    targets = torch.cat([torch.zeros(299 * 60, dtype=torch.int64), torch.tensor([7])])
    case = Case("spmm", benchmarks.Graph.from_edge_index(torch.stack([sources, targets]), 300), 8)
    truth = Reference(case)
    (out,) = peers.Implementation(case, peers.by_ops(Kernels(), case)).outputs("forward", truth.grad_out)
    assert truth.error("forward", [out]) < 1e-4
    out[7] *= 1.04
    assert truth.error("forward", [out]) == pytest.approx(0.04, rel=1.5)


@needs_kernels
@pytest.mark.parametrize(("right", "words"), [(0, "differs from float64"), (3, "after it was timed")])
def test_a_wrong_implementation_has_no_time(
    right: int, words: str, dataset: datasets.NodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its first call on, or after so many right ones, while it is timed."""
    calls = itertools.count(1)

    def wrong(case: Case) -> Any:
        call = peers.by_ops(Kernels(), case)
        return lambda: call() * (1.0 + 0.01 * (next(calls) > right))

    monkeypatch.setitem(peers.PEERS, "isplib", wrong)
    found = run(Grid("spmm", (4,), against=("reference",)), dataset, tmp_path)
    ours, reference = found.rows
    assert (ours.status, ours.time_s, ours.ratio, reference.status) == ("wrong", None, {"reference": None}, "ok")
    assert words in ours.reason
    assert found.exit_code == 3
    assert "wrong" in tables.markdown(report.table(found))


@needs_kernels
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MemoryError("cannot allocate"), "oom"),
        (OutOfMemory("the child's memory"), "oom"),
        (BackendUnavailable("no"), "unavailable"),
        (UnsupportedOp("gat", ["no"]), "unsupported"),
        (KeyError("x"), "failed"),
    ],
)
def test_failures_are_rows(
    error: Exception, status: str, dataset: datasets.NodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(case: Case) -> Any:
        def call() -> Any:
            raise error

        return call

    monkeypatch.setitem(peers.PEERS, "torch-csr", failing)
    found = run(Grid("spmm", (4,), against=("torch-csr",)), dataset, tmp_path)
    assert [row.status for row in found.rows] == ["ok", status]
    assert found.rows[1].reason
    assert found.exit_code == 0


@needs_kernels
def test_ctrl_c_keeps_what_was_measured(dataset: datasets.NodeDataset, tmp_path: Path) -> None:
    def stop(_: Bench, what: str) -> None:
        if what.startswith("spmm forward, width 8"):
            raise KeyboardInterrupt

    found = run(Grid("spmm", (4, 8), against=("reference",)), dataset, tmp_path, on_event=stop)
    stored = Bench.model_validate_json((tmp_path / "bench.json").read_bytes())
    assert stored == found
    assert found.status == "interrupted"
    assert [row.status for row in found.rows] == ["ok", "ok", "pending", "pending"]
    tables.markdown(report.table(found))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"op": "spm"}, "unknown op 'spm'; did you mean 'spmm'"),
        ({"op": "spmm", "against": ["dlg"]}, "did you mean 'dgl'"),
        ({"op": "gat_attention", "widths": [16], "heads": [3]}, "a width of 16 cannot be split among 3 heads"),
        ({"op": "spmm", "widths": [0]}, "0 is no width"),
        ({"op": "spmm", "widths": []}, "at least one width"),
        ({"op": "spmm", "shapes": ["8x8"]}, "runs on a graph and has no shapes"),
        ({"op": "linear", "shapes": ["8x8"]}, "'8x8' is no shape of linear; give rows x inputs x outputs"),
    ],
)
def test_a_bad_grid_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Grid(**arguments)


def test_ops_without_heads_or_widths_run_once_each() -> None:
    sizes = [Grid(op, (16, 32), (1, 4)).sizes() for op in ("spmm", "edge_softmax", "gat_attention")]
    assert sizes == [
        [(16, 1, ()), (32, 1, ())],
        [(1, 1, ()), (4, 4, ())],
        [(16, 1, ()), (32, 1, ()), (16, 4, ()), (32, 4, ())],
    ]


@needs_kernels
def test_ceilings_keep_the_highest_and_survive_a_broken_file(tmp_path: Path) -> None:
    first = ops.ceilings(tmp_path)
    assert first
    assert first.stream_bytes_per_s > 0
    (path,) = (tmp_path / "ceilings").iterdir()
    files.save_json(Ceilings(stream_bytes_per_s=1e15, gather_bytes_per_s=1.0), path)
    second = ops.ceilings(tmp_path)
    assert second
    assert second.stream_bytes_per_s == 1e15
    assert second.gather_bytes_per_s > 1.0
    path.write_text("{")
    third = ops.ceilings(tmp_path)
    assert third
    assert third.stream_bytes_per_s < 1e15
    assert Ceilings.model_validate_json(path.read_bytes()) == third


@needs_kernels
@pytest.mark.parametrize("isa", range(isplib.isa_level() + 1 if not isplib.MISSING else 0))
def test_gathered_lines_are_those_asked_for(isa: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnbench.backends.isplib import ceiling

    monkeypatch.setenv("GNNBENCH_ISA", isplib.ISA[isa])
    table, line = torch.randn(10, 16), torch.randint(10, (3, 20), dtype=torch.int32)
    assert torch.allclose(ceiling.gather(table, line), table[line.long()].sum(1), atol=1e-5)


FAKE_DGL = {
    "__init__.py": """
import torch
__version__ = "0.fake"
class Graph:
    def __init__(self, edges, num_nodes):
        self.src, self.dst, self.num_nodes = edges[0].long(), edges[1].long(), num_nodes
    def create_formats_(self):
        print("this is no answer")
def graph(edges, num_nodes):
    return Graph(edges, num_nodes)
""",
    "ops.py": """
import os
def copy_u_sum(g, x):
    if x.size(1) == 5:
        os.abort()
    if x.size(1) == 6:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
    return x.new_zeros(g.num_nodes, x.size(1)).index_add_(0, g.dst, x[g.src])
""",
    "nn/__init__.py": "",
    "nn/functional.py": "edge_softmax = None",
}


@needs_kernels
def test_dgl_answers_from_its_own_process(
    dataset: datasets.NodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in with one op; it runs out of memory at width 6 and dies at width 5, and all later ones with it."""
    for name, code in FAKE_DGL.items():
        path = tmp_path / "site" / "dgl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    grid = Grid("spmm", (4, 6, 8, 5, 7), against=("dgl",), backward=True)
    found = run(grid, dataset, tmp_path, dgl_python=sys.executable)
    theirs = {(row.width, row.direction): row for row in found.rows if row.implementation == "dgl"}
    assert {width: row.status for (width, _), row in theirs.items()} == {
        **dict.fromkeys((4, 8), "ok"),
        6: "oom",
        **dict.fromkeys((5, 7), "failed"),
    }
    assert "SIGABRT" in theirs[5, "forward"].reason
    assert found.versions == {"dgl": "0.fake"}
    assert all(row.status == "ok" for row in found.rows if row.implementation == "isplib")


class LikeDgl:
    """A maximum of no edges is minus infinity, and its gradient goes to the first node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def found(self) -> list[Tensor]:
        return [self.output]

    def ask(self, do: str, given: dict[str, Tensor], **request: Any) -> None:
        if do == "case":
            self.x = given["x"].detach()
        else:
            out, arg_out = Kernels().spmm_max(self.graph, self.x, None, "max")
            empty, grad_out = self.graph.degree == 0, given["grad_out"]
            out[empty] = -torch.inf
            grad_x = Kernels().spmm_max_backward(self.graph, arg_out, grad_out, None)
            grad_x[0] += grad_out[empty].sum(0)
            self.output = out if request["direction"] == "forward" else grad_x


@pytest.mark.parametrize("name", ["isolated nodes", "duplicates"])
def test_dgl_is_not_wrong_where_rows_have_no_edges(name: str) -> None:
    graph = graphs.graph(name)
    case = Case("spmm_max", graph, 4)
    truth, one = Reference(case), peers.DglCase(LikeDgl(graph), case)
    for direction in ("forward", "backward"):
        assert truth.error(direction, one.outputs(direction, truth.grad_out)) < 1e-6
    assert ("-inf in rows without edges" in one.note) == (name == "isolated nodes")


@needs_kernels
def test_sums_in_bfloat16_show_their_error_and_what_they_gain(
    dataset: datasets.NodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "L2_BYTES", 1e-9)
    monkeypatch.setattr(choices, "EDGES_PER_SOURCE", 0)
    found = run(Grid("spmm", (8, 32), against=("isplib-bf16",), backward=True), dataset, tmp_path)
    assert [row.status for row in found.rows] == ["ok"] * 8
    for row in found.rows:
        rounds = row.implementation == "isplib-bf16" and row.width == 32
        assert row.error is not None
        assert (1e-4 < row.error < 0.02) if rounds else (row.error < 1e-5)
        assert bool(row.reason) == (row.implementation == "isplib-bf16" and row.width == 8)
        assert row.ratio.keys() == {"isplib", "isplib-bf16"}
    table = report.table(found)
    assert list(table.heading)[4:] == ["isplib-bf16", "isplib-bf16\nvs isplib", "error"]
    assert any(note.startswith("isplib-bf16 (8; 8, backward): gathers in float32") for note in table.notes)
    maxima = run(Grid("spmm_max", (4,), against=("isplib-bf16",)), dataset, tmp_path)
    assert [row.status for row in maxima.rows] == ["ok", "unsupported"]


@needs_kernels
def test_bfloat16_has_a_tolerance_of_its_own(
    dataset: datasets.NodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for off, status in ((1.01, "ok"), (1.2, "wrong")):
        monkeypatch.setitem(
            peers.PEERS, "isplib-bf16", lambda case, off=off: lambda: peers.by_ops(Kernels(), case)() * off
        )
        found = run(Grid("spmm", (4,), against=("isplib-bf16",)), dataset, tmp_path)
        assert [row.status for row in found.rows] == ["ok", status]
        assert found.exit_code == (3 if status == "wrong" else 0)


@needs_kernels
@pytest.mark.parametrize(
    ("python", "words"),
    [("", "no DGL"), ("/no/such/python", "cannot be run"), (sys.executable, "No module named")],
)
def test_a_missing_dgl_is_a_row_with_its_remedy(
    python: str, words: str, dataset: datasets.NodeDataset, tmp_path: Path
) -> None:
    found = run(Grid("spmm", (4,), against=("dgl",)), dataset, tmp_path, dgl_python=python)
    assert [row.status for row in found.rows] == ["ok", "unavailable"]
    assert words in found.rows[1].reason
    assert "--dgl-python" in found.rows[1].reason


@pytest.mark.skipif("GNNBENCH_DGL_PYTHON" not in os.environ, reason="GNNBENCH_DGL_PYTHON is not set")
@pytest.mark.parametrize("op", ON_GRAPHS)
def test_dgl_computes_the_same(op: str) -> None:
    graph = graphs.graph("isolated nodes")
    other = peers.Dgl(os.environ["GNNBENCH_DGL_PYTHON"], graph)
    try:
        case = Case(op, graph, 3 if op == "edge_softmax" else 6, 3 if OPS[op].has_heads else 1)
        truth, one = Reference(case), peers.DglCase(other, case)
        assert bool(one.note) == (op == "spmm_max")
        for direction in ("forward", "backward"):
            assert truth.error(direction, one.outputs(direction, truth.grad_out)) < 1e-4
            assert len(one.time(direction, 2, 3)) == 2
    finally:
        other.close()


@needs_kernels
def test_the_plot_has_a_line_for_everybody(dataset: datasets.NodeDataset, tmp_path: Path) -> None:
    grid = Grid("gat_attention", (4, 8), (1, 2), against=("pyg", "dgl"), backward=True)
    found = run(grid, dataset, tmp_path, dgl_python="/no/such/python")
    panels = report.panels(found)
    assert [panel.title for panel in panels] == ["forward", "backward", "forward, 2 heads", "backward, 2 heads"]
    assert [(line.label, len(line.points)) for line in panels[0].lines] == [("isplib", 2), ("pyg", 2)]
    begins = {tmp_path / "a.png": b"\x89PNG", tmp_path / "a.svg": b"<?xml", tmp_path / "a.pdf": b"%PDF"}
    assert {path.suffix for path in begins} == {*plots.FORMATS}
    plots.save(panels, report.title(found), *begins)
    for path, begin in begins.items():
        assert path.read_bytes().startswith(begin)


def test_the_table_is_short_where_peers_have_nothing_to_say(tmp_path: Path, dataset: datasets.NodeDataset) -> None:
    found = run(Grid("gat_attention", (4,), (2,), against=("torch-csr", "reference")), dataset, tmp_path)
    table = report.table(found)
    assert list(table.heading) == [
        "width",
        "isplib",
        "gathers",
        "of\nceiling",
        "reference",
        "isplib vs\nreference",
    ]
    assert table.rows[0][0].text == "4, 2 heads"
    assert any("torch-csr: gat_attention is not supported" in note for note in table.notes)
    assert json.loads(found.model_dump_json())["rows"][0]["heads"] == 2


@needs_data
def test_a_graph_is_all_that_ops_need(tmp_path: Path) -> None:
    options = ("--graph", "wiki-vote", "--widths", "4", "--against", "reference", "--json", "--out", tmp_path)
    found = Bench.model_validate_json(commands.run("bench", "spmm", *options).stdout)
    assert (found.status, found.size.nodes) == ("ok", 7115)
