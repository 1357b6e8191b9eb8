"""The command line: verbs, stable JSON names, exit codes, what goes to which stream."""

from __future__ import annotations

import csv
import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gnnbench
from gnnbench import papers
from gnnbench.comparison import process
from gnnbench.errors import GnnbenchError
from gnnbench.training import run as running
from tests.support.commands import ROOT, TINY, Output, run
from tests.support.compare_runner import Runner, cell

VERBS = (
    ["train"],
    ["compare"],
    ["bench"],
    ["tune"],
    ["profile"],
    ["sweep"],
    ["history"],
    ["report"],
    ["datasets"],
    ["datasets", "info"],
    ["demo"],
    ["doctor"],
)
GAT = ("--set", "model.name=gat", "--set", "model.hidden=8", "--set", "model.heads=2")
pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Output]:
    out = tmp_path_factory.mktemp("trained")
    exports = ("--csv", out / "epochs.csv", "--markdown", out / "run.md")
    return out, run("train", *TINY, "--set", "train.repeats=2", "--out", out, "--json", *exports)


def at(content: Any, path: str) -> Any:
    for name in path.split("."):
        content = content[name]
    return content


@pytest.mark.parametrize("arguments", [["--help"], ["reproduce", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    program = (
        f"import sys; from gnnbench.cli import main; sys.argv = ['gnnbench', *{arguments}]\n"
        "try: main()\n"
        "except SystemExit: print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = output.stdout.splitlines()[-1]
    of_typer = ["pydantic"] * (len(arguments) > 1)  # which it imports to read the options of a verb
    for heavy in {"torch", "pydantic", "yaml", "numpy", "rich", "torch_geometric", "matplotlib"} - {*of_typer}:
        assert f"'{heavy}'" not in loaded


def test_papers_are_listed_by_the_help_and_where_none_is_given() -> None:
    for output in (run("reproduce", "--help"), run("reproduce")):
        assert ", ".join(papers.names()) in output.stdout + output.stderr


@pytest.mark.parametrize("verb", [[], *VERBS], ids=" ".join)
def test_help_documents_the_exit_codes(verb: list[str]) -> None:
    output = run(*verb, "--help")
    words = " ".join(output.stdout.split())
    assert output.code == 0
    assert "Exit codes: 0 success, 1 a run failed, 2 bad input, 3 parity red" in words
    assert "..." not in words.replace("[ARGS]...", "").replace("[RUNS]...", "")  # nothing is cut off


def test_the_version() -> None:
    assert run("--version").stdout.strip() == gnnbench.__version__
    assert f"\nversion: {gnnbench.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("trian", "train"),
        ("train --epoch 3", "--epochs"),
        ("train --epochs many", "--epochs"),
        ("train a b", "unexpected extra argument"),
        ("compare --rounds 0", "--rounds"),
        ("datasets inf", "info"),
        ("datasets info", "Missing argument"),
        ("bench spmv", "unknown op 'spmv'; did you mean 'spmm'"),
        ("bench spmm --widths 16,x", "'16,x' is not a list of numbers"),
        ("bench spmm --graph coral", "did you mean 'cora'"),
        ("bench spmm --plot speed.gif", "speed.gif: a plot is written as .png"),
        ("tune", "give a graph"),
        ("tune coral", "did you mean 'cora'"),
        ("tune missing.yaml", "cannot be read"),
        ("tune synthetic:cora:0.05 --plot curve.gif", "curve.gif: a plot is written as"),
        ("tune synthetic:cora:0.05 --ops spmn", "did you mean 'spmm'"),
        ("reproduce nothing", "nothing"),
    ],
)
def test_mistakes_are_named(command: str, words: str) -> None:
    output = run(*command.split())
    assert output.code == 2
    assert words in output.stderr


def test_train_json_has_stable_names(trained: tuple[Path, Output]) -> None:
    found = json.loads(trained[1].stdout)
    names = ["status", "backend", "dataset", "peak_memory_bytes", "memory_increase_bytes", "prepare_s"]
    names += [f"{phase}_s.median" for phase in ("epoch", "forward", "backward")]
    names += [f"metrics.{name}" for name in ("train", "val", "test", "test_std")]
    assert None not in [at(found, name) for name in names]


def test_train_writes_what_it_prints(trained: tuple[Path, Output]) -> None:
    out, output = trained
    assert output.code == 0
    assert output.stderr == ""
    found = json.loads(output.stdout)
    assert found == json.loads((out / "results.json").read_text())
    epochs = list(csv.DictReader((out / "epochs.csv").read_text().splitlines()))
    assert [float(epoch["loss"]) for epoch in epochs] == [sample["loss"] for sample in found["samples"]]
    assert "synthetic" in (out / "run.md").read_text()


def test_resuming_a_finished_run_returns_it(trained: tuple[Path, Output]) -> None:
    out, output = trained
    again = run("train", "--resume", out, "--json")
    assert again.code == 0
    assert json.loads(again.stdout)["samples"] == json.loads(output.stdout)["samples"]


STOPS = pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
    ids=lambda value: str(value),
)


@STOPS
def test_resume_goes_on_with_a_stopped_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, name: str
) -> None:
    whole = json.loads(run("train", *TINY, "--out", "whole", "--json").stdout)
    stop = functools.partial(stop_after, epoch=2, real=running.run, number=number)
    with monkeypatch.context() as patch:
        patch.setattr(running, "run", stop)
        output = run("train", *TINY, "--out", "stopped")
    assert output.code == 128 + number
    assert f"stopped by {name} after epoch 2 of repeat 0; continue with: gnnbench train --resume" in output.stderr
    resumed = json.loads(run("train", "--resume", "stopped", "--json").stdout)
    assert [sample["loss"] for sample in resumed["samples"]] == [sample["loss"] for sample in whole["samples"]]


def stop_after(
    config: Any, *, epoch: int, real: Any, on_event: Any, number: signal.Signals, **options: Any
) -> Any:
    def press(event: Any) -> None:
        if event.sample and event.sample.epoch == epoch:
            for _ in range(1 if number == signal.SIGINT else 3):  # as schedulers and shells repeat theirs
                signal.raise_signal(number)

    return real(config, on_event=press, **options)


def test_results_are_not_written_over(trained: tuple[Path, Output], tmp_path: Path) -> None:
    run_folder, before = trained[0], (trained[0] / "results.json").read_bytes()
    compared, swept, timed = (tmp_path / name for name in ("compared", "swept", "timed"))
    for folder, name in ((compared, "comparison.json"), (swept, "sweep.json"), (timed, "bench.json")):
        folder.mkdir()
        (folder / name).write_text("{}")
    (tmp_path / "run.yaml").write_text(
        "dataset: {source: synthetic, preset: cora, scale: 0.05}\nmodel: {name: gcn}\n"
    )
    (tmp_path / "grid.yaml").write_text("run: run.yaml\ngrid: {train.lr: [0.1, 0.2]}\n")
    for verb, folder, words in (
        (["train"], run_folder, "holds a run; choose another --out, replace it with --force, or go on with it by"),
        (["compare"], run_folder, "holds a run; choose another --out"),
        (["sweep", tmp_path / "grid.yaml"], run_folder, "holds a run; choose another --out"),
        (["train", "--force"], compared, "holds a comparison; choose another --out"),
        (["train"], swept, "holds a sweep; choose another --out"),
        (["infer"], swept, "holds a sweep; choose another --out"),
        (["profile"], run_folder, "holds a run; choose another --out"),
        (["bench", "spmm"], run_folder, "holds a run; choose another --out"),
        (["suite", "gpu"], run_folder, "holds a run; choose another --out"),
        (["reproduce", "isplib"], timed, "holds a benchmark; choose another --out"),
        (["train", "--resume", compared], None, "holds a comparison; give the folder of a run to resume"),
    ):
        refused = run(*verb, *(("--out", folder) if folder else ()))
        assert (refused.code, refused.stdout) == (2, "")
        assert words in refused.stderr
    assert (run_folder / "results.json").read_bytes() == before
    again = tmp_path / "again"
    small = ("--dataset", "synthetic:cora:0.05", "--epochs", "2", "--quiet", "--out", again)
    assert run("train", *small).code == 0
    assert run("train", *small, "--force").code == 0


def test_resume_takes_no_other_configuration(trained: tuple[Path, Output]) -> None:
    output = run("train", "--resume", trained[0], "--epochs", "9")
    assert output.code == 2
    assert "--resume takes the run's own configuration" in output.stderr


def test_a_folder_is_made_for_every_run(folder: Path) -> None:
    for _ in range(2):
        assert run("train", *TINY, "--backend", "reference", "--quiet") == Output(0, "", "")
    assert (folder / "runs/demo-reference-1/results.json").exists()
    assert (folder / "runs/demo-reference-2/results.json").exists()


def test_the_table_goes_to_stdout_plainly(folder: Path) -> None:
    output = run("train", *TINY, "--out", "here")
    assert output.code == 0
    assert output.stderr == ""
    assert "\x1b" not in output.stdout
    assert "gcn (2 layers, 8 hidden) on synthetic cora x0.05, pyg" in output.stdout
    assert "Synthetic, not real data: graph, features, labels, split" in output.stdout
    assert "Results: here/results.json" in output.stdout


@pytest.mark.usefixtures("no_gpu")
def test_a_run_that_cannot_run_fails_with_one_sentence(folder: Path) -> None:
    output = run("train", *TINY, "--backend", "cuda", "--out", "here")
    assert (output.code, output.stdout) == (1, "")
    assert output.stderr.count("\n") == 1
    assert output.stderr.startswith("gnnbench: backend 'cuda' is unavailable")
    assert json.loads((folder / "here/results.json").read_text())["status"] == "unavailable"


def test_a_memory_limit_is_a_failed_run_and_not_a_crash() -> None:
    output = run("train", *TINY, "--memory-limit", "2MiB", "--out", "here")
    assert output.code in (1, 2)
    assert output.stderr.count("\n") == 1
    assert "memory" in output.stderr


def test_compare_json_has_stable_names(processes: Runner, folder: Path) -> None:
    output = run(
        "compare", *TINY, *GAT, "--backends", "pyg, isplib", "--out", "out", "--json", "--csv", "rows.csv"
    )
    assert output.code == 0
    found = json.loads(output.stdout)
    assert found == json.loads((folder / "out/comparison.json").read_text())
    assert found["parity"]["ok"] is True
    names = "status", "reason", "epoch_s.median", "peak_memory_bytes", "memory_increase_bytes", "prepare_s"
    for row in found["rows"]:
        assert None not in [at(row, name) for name in ("backend", *names)]
        for baseline in ("pyg", "fastest_pyg"):
            speedup = row["speedup"][baseline]
            assert 0 < speedup["low"] <= speedup["ratio"] <= speedup["high"]
    records = list(csv.DictReader(Path("rows.csv").read_text().splitlines()))
    assert [float(record["epoch_s.median"]) for record in records] == [0.8, 0.1]


def test_compare_prints_a_table_and_goes_on_with_more_rounds(processes: Runner) -> None:
    exports = ("--markdown", "table.md", "--latex", "table.tex", "--report", "page.html")
    first = run("compare", *TINY, *GAT, "--out", "out", "--rounds", "1", *exports)
    assert first.code == 0
    assert "8.00x" in first.stdout
    assert "| isplib | 25.0 ms |" in Path("table.md").read_text()
    assert "isplib & 25.0 ms &" in Path("table.tex").read_text()
    assert "isplib trains 8.00x as fast as pyg" in Path("page.html").read_text()
    jobs = len(processes.jobs)
    assert run("compare", *TINY, *GAT, "--out", "out", "--rounds", "2", "--quiet") == Output(0, "", "")
    assert len(processes.jobs) - jobs == 4  # one for what trained models are compared with
    other = run("compare", *TINY, *GAT, "--epochs", "3", "--out", "out")
    assert other.code == 2
    assert "--force" in other.stderr
    assert run("compare", *TINY, *GAT, "--epochs", "3", "--out", "out", "--force", "-q").code == 0


def test_a_red_gate_exits_with_3(processes: Runner) -> None:
    processes.wrong = "isplib"
    output = run("compare", *TINY, *GAT, "--backends", "pyg,isplib", "--out", "out")
    assert output.code == 3
    assert "Parity: red" in output.stdout


def test_a_comparison_in_which_nothing_ran_fails(processes: Runner) -> None:
    processes.cells = {name: cell("oom") for name in ("pyg", "isplib")}
    output = run("compare", *TINY, *GAT, "--backends", "pyg,isplib", "--out", "out")
    assert output.code == 1
    assert "out of memory" in output.stdout


def test_one_cell_that_fails_does_not_fail_the_others(processes: Runner) -> None:
    processes.cells = {"isplib": cell("oom")}
    output = run("compare", *TINY, *GAT, "--backends", "pyg,isplib", "--out", "out")
    assert output.code == 0
    assert "isplib: is oom" in output.stdout


@STOPS
def test_a_stop_in_a_comparison(processes: Runner, number: signal.Signals, name: str) -> None:
    def stop(job: process.Job) -> Any:
        signal.raise_signal(number)

    processes.cells = {"isplib": stop}
    output = run("compare", *TINY, *GAT, "--backends", "pyg,isplib", "--out", "out")
    assert output.code == 128 + number
    assert output.stderr == f"gnnbench: stopped by {name}; the same command with --out out continues\n"


@STOPS
def test_a_stop_anywhere_else_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, name: str
) -> None:
    monkeypatch.setattr(running, "run", lambda *_, **__: signal.raise_signal(number))
    assert run("train", *TINY, "--out", "out") == Output(128 + number, "", f"gnnbench: stopped by {name}\n")


def test_datasets_are_listed(folder: Path) -> None:
    (folder / "graphs").mkdir()
    (folder / "graphs" / "own.csv").write_text("0,1\n1,2\n")
    output = run("datasets", "--data-root", "graphs")
    assert output.code == 0
    for words in ("cora", "ogbn-arxiv", "114,615,892", "own.csv", "Data root: graphs"):
        assert words in output.stdout
    assert "…" not in output.stdout
    found = json.loads(run("datasets", "--json").stdout)
    assert {"spec", "source", "nodes", "edges", "on_disk"} <= found[0].keys()
    assert not any(offer["on_disk"] for offer in found if offer["spec"] == "cora")


def test_a_dataset_is_described() -> None:
    output = run("datasets", "info", "synthetic:cora:0.1")
    assert output.code == 0
    for words in ("nodes", "isolated", "symmetric", "quantiles", "Synthetic, not real data: graph"):
        assert words in output.stdout
    found = json.loads(run("datasets", "info", "synthetic:cora:0.1", "--json").stdout)
    assert (found["graphs"], found["graph_nodes"]["0.5"]) == (1, found["nodes"])


def test_many_graphs_are_described_and_refused_where_one_is_needed() -> None:
    output = run("datasets", "info", "synthetic:mnist:0.001")
    assert output.code == 0
    for words in ("graphs", "in a graph", "one for every graph", "Synthetic, not real data: graphs"):
        assert words in output.stdout
    found = json.loads(run("datasets", "info", "synthetic:mnist:0.001", "--json").stdout)
    assert found["train"] + found["val"] + found["test"] == found["graphs"] == 70
    assert sum(found["class_counts"]) == 70
    refused = "holds 70 graphs, but this command works on one; give it a dataset of one graph"
    for command in (["bench", "spmm", "--graph"], ["tune"]):
        output = run(*command, "synthetic:mnist:0.001")
        assert output.code == 2
        assert refused in output.stderr


def test_doctor() -> None:
    output = run("doctor", "--data-root", "nowhere")
    assert output.code == 0
    assert "nowhere, which does not exist" in output.stdout
    assert json.loads(run("doctor", "--json").stdout)["backends"]["pyg"]["available"] is True


@pytest.mark.skipif(sys.platform == "win32", reason="a closed pipe is reported differently")
def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gnnbench", "datasets"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() in (0, 1)


@pytest.mark.parametrize(
    ("ending", "environment", "expected"),
    [
        (">&-", {}, ""),
        ("<&- >&- 2>&-", {}, ""),
        ("| head -2", {}, "dataset"),
        ("", {"PYTHONIOENCODING": "ascii"}, "259-657 nodes each"),
        ("--json | grep spec", {"PYTHONIOENCODING": "ascii"}, '"spec": "cora"'),
    ],
    ids=["closed", "all closed", "a pipe that closed", "ascii", "JSON in ascii"],
)
def test_what_reads_the_output_fails_no_command(
    ending: str, environment: dict[str, str], expected: str, folder: Path
) -> None:
    verb = (
        "datasets" if "ascii" not in environment.values() or "json" in ending else "datasets info synthetic:cora"
    )
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m gnnbench {verb} {ending}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert expected in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_sentence(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "gnnbench", "datasets", "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    said = "gnnbench: the disk written to is full; free some of it, or write elsewhere\n"
    assert (done.returncode, done.stderr) == (1, said)


@pytest.mark.usefixtures("brief")
def test_bench_prints_its_rows(folder: Path) -> None:
    command = ("bench", "spmm", "--graph", "synthetic:cora:0.05", "--widths", "4,8", "--against", "reference")
    output = run(*command, "--json", "--plot", "speed.svg", "--csv", "rows.csv", "--out", "out")
    assert output.code == 0
    rows = json.loads(output.stdout)["rows"]
    assert [(row["width"], row["implementation"]) for row in rows] == [
        (width, name) for width in (4, 8) for name in ("isplib", "reference")
    ]
    assert all(at(row, "time_s.median") > 0 and at(row, "ratio.reference.ratio") > 0 for row in rows)
    assert json.loads((folder / "out" / "bench.json").read_text()) == json.loads(output.stdout)
    assert (folder / "speed.svg").read_text().startswith("<?xml")
    with (folder / "rows.csv").open() as file:
        assert [row["width"] for row in csv.DictReader(file)] == ["4", "4", "8", "8"]


def test_a_checkpoint_that_cannot_be_written_is_told_even_when_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gnnbench.training import checkpoint

    def full(*_: object) -> None:
        raise GnnbenchError("checkpoint.pt: cannot be written: No space left on device")

    monkeypatch.setattr(checkpoint, "save", full)
    small = ("--dataset", "synthetic:cora:0.05", "--epochs", "2", "--set", "train.checkpoint_every=1")
    output = run("train", *small, "--quiet", "--out", tmp_path / "out")
    assert output.code == 0
    assert "gnnbench: no checkpoint after epoch 1: checkpoint.pt: cannot be written" in output.stderr
