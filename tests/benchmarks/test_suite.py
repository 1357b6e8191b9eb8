"""The GPU suite, in Triton's interpreter without a GPU: right before fast, resumed, every failure a row."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench import benchmarks, datasets
from gnnbench.backends import cuda
from gnnbench.backends.cuda import _base, _triton
from gnnbench.benchmarks import ops, peers, suites
from gnnbench.benchmarks.ops import OPS, Case, Reference
from gnnbench.benchmarks.records import Row, Suite
from gnnbench.errors import ConfigError, UnsupportedOp
from gnnbench.kinds import suite as report
from gnnbench.measure import code
from gnnbench.ops.kernels import Kernels
from gnnbench.report import tables
from gnnbench.training import loop
from tests.support import graphs
from tests.support.commands import Output, run
from tests.support.gpu import DEVICE, needs_triton
from tests.support.tape import Tape, capturable  # noqa: F401

pytestmark = [needs_triton, pytest.mark.usefixtures("brief")]


def suite(out: Path, *options: str) -> Output:
    return run("suite", "gpu", "--scale", "tiny", "--graphs", "batch", "--out", out, "--json", *options)


def executed(out: Path, cells: list[suites.Cell], **options: Any) -> Suite:
    """On plain torch in place of Triton's kernels, whose interpreter would take most of the time."""
    given = {"budget_s": 1e9, **options}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda.Backend, "kernels", Kernels)
        return suites.run(cells, scale="tiny", out=out, roots=datasets.Roots(out, out), **given)


def rows(found: Suite, name: str) -> list[Row]:
    return [row for row in found.rows if row.implementation == name]


@pytest.mark.slow
def test_the_command_checks_and_times_ops_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_base, "PROGRAMS", 4)  # of several rows each, for the interpreter's sake
    output = suite(tmp_path, "--ops", "spmm,train-gcn", "--csv", str(tmp_path / "rows.csv"))
    assert output.code == 0, output.stderr
    found = Suite.model_validate_json(output.stdout)
    assert found == Suite.model_validate_json((tmp_path / "suite.json").read_bytes())
    assert (found.status, found.scale) == ("ok", "tiny")
    assert {row.caveat for row in found.rows} == {suites.CAVEAT if _triton.INTERPRETED else ""}
    assert {row.dtype for row in found.rows} == {"float32", "bfloat16"}
    ours = rows(found, "cuda")
    assert {row.direction for row in ours} == {"forward", "backward", "epoch"}
    for row in ours:
        assert row.status == "ok", row.reason
        assert row.error is not None
        assert row.error < (ops.BF16_TOLERANCE if row.dtype == "bfloat16" else ops.TOLERANCE)
        assert row.time_s
        assert row.memory_increase_bytes is not None
        assert (row.roofline_fraction is None) == (row.direction == "epoch")
        assert all(row.ratio[name] for name in ("torch-scatter", "pyg") if name in row.ratio)
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == len(found.rows) + 1
    text = tables.markdown(report.table(found))
    assert "batch of random graphs, train-gcn" in text
    assert (suites.CAVEAT in text) == bool(_triton.INTERPRETED)


def test_a_spent_budget_leaves_rows_that_the_next_call_runs(tmp_path: Path) -> None:
    output = suite(tmp_path, "--ops", "edge_softmax", "--budget", "0")
    found = Suite.model_validate_json(output.stdout)
    assert (output.code, found.status) == (1, "out of budget")
    assert {(row.status, row.reason) for row in found.rows} == {("not run", "the budget of 0 s was spent")}
    cells = suites.cells(["batch"], ["edge_softmax"], "tiny")
    done = executed(tmp_path, cells)
    assert {row.status for row in done.rows} == {"ok"}
    assert executed(tmp_path, cells).rows == done.rows
    assert json.loads((tmp_path / "suite.json").read_text())["status"] == "ok"


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    def stop(found: Suite, what: str) -> None:
        if found.rows[0].status == "ok" and what.endswith("loading"):
            raise KeyboardInterrupt

    cells = suites.cells(["batch"], ["edge_softmax"], "tiny")
    found = executed(tmp_path, cells, on_event=stop)
    assert found.status == "interrupted"
    assert {row.status for row in found.rows} == {"ok", "pending"}
    assert Suite.model_validate_json((tmp_path / "suite.json").read_bytes()) == found
    assert len(report.table(found).rows) < len(rows(found, "cuda"))
    assert {row.status for row in executed(tmp_path, cells).rows} == {"ok"}


def test_a_suite_of_another_device_or_of_other_code_is_refused(tmp_path: Path) -> None:
    cells = suites.cells(["batch"], ["sddmm"], "tiny")
    found = executed(tmp_path, cells, budget_s=0.0)
    assert found.code == code.digest()
    for key, words in (
        ("device", "holds a suite of scale tiny on another"),
        ("code", "holds a suite of other code"),
    ):
        (tmp_path / "suite.json").write_text(found.model_copy(update={key: "another"}).model_dump_json())
        with pytest.raises(ConfigError, match=words):
            executed(tmp_path, cells)


@pytest.mark.parametrize("direction", ops.DIRECTIONS)
def test_wrong_kernels_have_no_time(direction: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(case: Case) -> Callable[[], Tensor]:
        right = peers.by_ops(Kernels(), case)
        x = case.inputs["x"]
        bad = {"forward": lambda: right() + 0.1, "backward": lambda: right() + 0.1 * (x - x.detach()).sum()}
        return bad[direction]

    monkeypatch.setitem(peers.PEERS, "cuda", wrong)
    found = executed(tmp_path, suites.cells(["batch"], ["spmm"], "tiny")[:1])
    assert found.exit_code == 3
    assert {row.direction for row in rows(found, "cuda") if row.status == "wrong"} >= {direction}
    assert all(row.time_s is None for row in rows(found, "cuda") if row.status == "wrong")
    assert {row.status for row in rows(found, "torch-scatter")} == {"ok"}


@pytest.mark.parametrize(("calls", "words"), [(0, "against pyg: "), (20, "after it was timed")])
def test_a_wrong_model_has_no_time(
    calls: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first call on, or while it is timed."""
    right, count = Kernels.spmm, itertools.count(1)
    monkeypatch.setattr(Kernels, "spmm", lambda *given: right(*given) * (1.0 + 0.01 * (next(count) > calls)))
    found = executed(tmp_path, suites.cells(["batch"], ["train-gcn"], "tiny"))
    (ours,) = rows(found, "cuda")
    assert (ours.status, ours.time_s, found.exit_code) == ("wrong", None, 3), ours.reason
    assert words in ours.reason
    assert {*ours.ratio.values()} == {None}


def test_memory_that_runs_out_is_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(case: Case) -> Callable[[], Tensor]:
        raise MemoryError("out of memory")

    monkeypatch.setitem(peers.PEERS, "torch-scatter", exhausted)
    found = executed(tmp_path, suites.cells(["batch"], ["edge_softmax"], "tiny")[:1])
    assert {row.status for row in rows(found, "torch-scatter")} == {"oom"}
    assert {row.status for row in rows(found, "cuda")} == {"ok"}
    assert "out of memory" in tables.markdown(report.table(found))


def test_without_pyg_an_epoch_says_that_it_was_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = suites.Training

    def only_ours(model: str, hidden: int, heads: int, backend: str, *given: Any) -> Any:
        if backend != "cuda":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return built(model, hidden, heads, backend, *given)

    monkeypatch.setattr(suites, "Training", only_ours)
    found = executed(tmp_path, suites.cells(["batch"], ["train-sage"], "tiny"))
    status = {row.implementation: row.status for row in found.rows}
    eager = {name: how for name, how in status.items() if ":" not in name}
    assert eager == {"cuda": "ok", "pyg": "oom", "pyg-sparse": "oom"}
    assert rows(found, "cuda")[0].reason == "not checked: PyG did not run"


@pytest.mark.usefixtures("capturable")
@pytest.mark.parametrize(("drift", "status"), [(1.0, "ok"), (1.1, "wrong")])
def test_recorded_epochs_are_checked_and_timed_beside_eager_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drift: float, status: str
) -> None:
    class Drifting(Tape):
        def record(self, work: Callable[[], Tensor]) -> Tensor:
            self.loss = super().record(work)
            return self.loss

        def replay(self) -> None:
            super().replay()
            self.loss.mul_(drift)

    monkeypatch.setattr(loop, "CudaGraph", Drifting)
    found = executed(tmp_path, suites.cells(["batch"], ["train-gcn"], "tiny"))
    ended = {row.implementation: row.status for row in found.rows}
    assert ended == {"cuda": "ok", "pyg": "ok", "pyg-sparse": "ok"} | {
        f"{name}:cuda_graph=true": status for name in ("cuda", "pyg", "pyg-sparse")
    }
    assert found.exit_code == {"ok": 0, "wrong": 3}[status]
    eager, recorded = report.table(found).rows
    assert "epoch, cuda_graph=true" in recorded[0].below
    assert ":" not in eager[3].below
    (row,) = rows(found, "cuda:cuda_graph=true")
    assert (row.ratio["pyg"] is None) == (status == "wrong")
    assert row.reason == ("" if status == "ok" else row.reason)
    assert ("the loss of epoch 5 is" in row.reason) == (status == "wrong")


def test_the_most_important_comes_first() -> None:
    cells = suites.cells()
    assert len(set(cells)) == len(cells)
    keys = [(cell.graph, cell.op, cell.width, cell.heads, cell.dtype) for cell in cells]
    assert len(set(keys)) == len(keys)  # each has rows of its own
    assert cells[0] == ("cora", "gatv2_attention", 128, 8, "float32", ("pyg",))
    assert {cell.graph for cell in cells[:30]} == set(suites.GRAPHS)
    assert {cell.op for cell in cells} == set(suites.NAMES)
    assert {cell.width for cell in cells if cell.op == "gatv2_attention"} == {32, 64, 128, 256, 512}
    assert all(cell.width % cell.heads == 0 for cell in cells)
    assert {name for cell in cells for name in cell.against} >= {"pyg", "torch-csr", "cusparse", "pyg-compile"}
    assert [cell.op for cell in suites.cells(["cora"], ["gat_attention"])] == ["gat_attention"] * 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("gpu", "--graphs", "redit"), "did you mean 'reddit'"),
        (("gpu", "--ops", "train-gcm"), "did you mean 'train-gcn'"),
        (("gpu", "--scale", "big"), "must be full or tiny"),
        (("cpu",), "unknown suite 'cpu'"),
        (("gpu", "--weighted"), "No such option"),
        ((), "Missing argument"),
    ],
)
def test_bad_options_are_named(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    output = run("suite", *options, "--out", tmp_path)
    assert output.code == 2
    assert words in output.stderr


@pytest.mark.skipif(not _triton.INTERPRETED, reason="kernels run on a GPU")
def test_full_size_needs_a_gpu(tmp_path: Path) -> None:
    output = run("suite", "gpu", "--scale", "full", "--out", tmp_path)
    assert (output.code, "--scale full needs a GPU" in output.stderr) == (2, True)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [name for name in graphs.SQUARE if graphs.graph(name).num_edges])
def test_cusparse_computes_sums(name: str, weighted: bool) -> None:
    edge_index, count, _ = graphs.zoo()[name]
    graph = benchmarks.Graph.from_edge_index(edge_index.to(DEVICE), count)
    case = Case("spmm", graph, 6, weighted=weighted)
    truth = Reference(case)
    one = peers.Implementation(case, peers.cusparse(case))
    for direction in ops.DIRECTIONS:
        assert truth.error(direction, one.outputs(direction, truth.grad_out)) < 1e-4
    with pytest.raises(UnsupportedOp, match="sum product only"):
        peers.cusparse(Case("gat_attention", graph, 6))


@pytest.mark.parametrize("op", [name for name, op in OPS.items() if not op.sizes])
def test_compiled_pyg_computes_the_op(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a compiler that is quick; the backward is repeated, as timing does."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    dataset = suites.load("batch", "tiny", datasets.Roots(Path(), Path()))
    graph = benchmarks.Graph.from_edge_index(dataset.edge_index, dataset.num_nodes)
    case = Case(op, graph, 2 if op == "edge_softmax" else 4, 2 if OPS[op].has_heads else 1)
    truth, one = Reference(case), peers.Implementation(case, peers.pyg_compile(case))
    for direction in ops.DIRECTIONS:
        assert truth.error(direction, one.outputs(direction, truth.grad_out)) < 1e-4
        assert len(one.time(direction, 1, 2)) == 1


def test_bfloat16_is_checked_by_what_it_can_hold() -> None:
    case = Case("spmm", graphs.graph("power law"), 4, dtype=torch.bfloat16)
    truth = Reference(case)
    exact = truth._out.detach()
    assert truth.error("forward", [exact.bfloat16()]) < 2**-8 < truth.tolerance()
    worst = exact.abs().argmax()
    for change in (0.2 * exact.abs().max(), torch.nan):
        changed = exact.clone()
        changed.view(-1)[worst] += change
        assert truth.error("forward", [changed]) > truth.tolerance()


def test_a_peer_that_is_only_imprecise_in_bfloat16_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def imprecise(case: Case) -> Callable[[], Tensor]:
        right = peers.torch_scatter(case)
        return lambda: right() * 1.5

    monkeypatch.setitem(peers.PEERS, "torch-scatter", imprecise)
    found = executed(tmp_path, suites.cells(["batch"], ["spmm"], "tiny"))
    status = {row.dtype: (row.status, row.reason) for row in rows(found, "torch-scatter")}
    assert status["float32"][0] == "wrong"
    assert status["bfloat16"][0] == "ok"
    assert "differs from float64" in status["bfloat16"][1]


def test_batches_are_of_separate_graphs_without_loops() -> None:
    dataset = suites.load("batch", "full", datasets.Roots(Path(), Path()))
    src, dst = dataset.edge_index
    count, least, most = suites.MEMBERS["full"]
    assert count * least <= dataset.num_nodes <= count * most
    assert bool((src != dst).all())
    assert int((src - dst).abs().max()) < most
    assert int(dataset.edge_index.max()) < dataset.num_nodes


def test_graphs_are_generated_before_anything_is_timed(tmp_path: Path) -> None:
    roots = datasets.Roots(tmp_path, tmp_path)
    suites.prepare(["cora", "batch"], roots)
    (folder,) = (tmp_path / "synthetic").iterdir()
    made = (folder / "edge_index.npy").stat().st_mtime_ns
    assert suites.load("cora", "full", roots).num_nodes == 2_708
    assert (folder / "edge_index.npy").stat().st_mtime_ns == made


BLOCKED = """
import sys
sys.modules["ogb"] = sys.modules["triton"] = None  # importing them is then an error
from gnnbench.benchmarks import suites
from gnnbench.backends import cuda, isplib
from gnnbench import cli, datasets
from pathlib import Path
cache = Path(sys.argv[1])
print(suites.load("cora", "tiny", datasets.Roots(cache, cache)).num_nodes)
print(cuda.Backend.unavailable()[0])
"""


def test_kernels_and_suite_import_without_ogb_and_triton(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED, str(tmp_path)], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    nodes, reason = done.stdout.splitlines()
    assert (nodes, "Triton is not installed" in reason) == (str(suites.TINY["nodes"]), True)
