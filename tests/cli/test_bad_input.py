"""Mistakes of users: each is answered by one sentence, without a traceback, with the right exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnbench.training import run as running
from tests.support.commands import ROOT, TINY, Output, run

CONFIG = """
dataset: {source: synthetic, preset: cora, scale: 0.05}
model: {name: gcn, hidden: 8}
train: {epochs: 2}
"""
GRAPH: dict[str, Any] = {
    "edge_index": np.array([[0, 1, 2, 3, 4, 5], [1, 0, 3, 2, 5, 4]]),
    "x": np.ones((6, 3), dtype=np.float32),
    "y": np.array([0, 1, 0, 1, 0, 1]),
    "train_mask": np.array([1, 1, 0, 0, 0, 0], dtype=bool),
    "val_mask": np.array([0, 0, 1, 1, 0, 0], dtype=bool),
    "test_mask": np.array([0, 0, 0, 0, 1, 1], dtype=bool),
}


@pytest.fixture(autouse=True)
def folder(folder: Path) -> Path:
    (folder / "run.yaml").write_text(CONFIG)
    return folder


def refused(output: Output, code: int, *words: str) -> None:
    """One line on standard error, and nothing else."""
    assert output.code == code, output.stderr
    assert output.stdout == ""
    assert output.stderr.startswith("gnnbench: ")
    assert output.stderr.count("\n") == 1
    assert "Traceback" not in output.stderr
    for word in words:
        assert word in output.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.yaml"], ["missing.yaml", "No such file"]),
        (["."], ["cannot be read"]),
        (["run.yaml", "--set", "train.epochs=many"], ["train.epochs", "'many'"]),
        (["run.yaml", "--set", "train.epochs=2.5"], ["train.epochs", "2.5"]),
        (["run.yaml", "--set", "train.lr=[1]"], ["train.lr"]),
        (["run.yaml", "--set", "train.epoch=5"], ["train.epoch", "did you mean 'epochs'?"]),
        (["run.yaml", "--set", "epochs=5"], ["--set epochs=5", "section.key=value"]),
        (["run.yaml", "--set", "dataset.preset=cra"], ["dataset.preset", "cora"]),
        (["run.yaml", "--dataset", "coar"], ["unknown dataset 'coar'", "did you mean 'cora'?"]),
        (["run.yaml", "--set", "model.name=transfomer"], ["model.name", "did you mean 'transformer'?"]),
        (["run.yaml", "--backend", "islib"], ["'islib'", "did you mean 'isplib'?"]),
        (["run.yaml", "--set", "model.layers=0"], ["model.layers", "greater than 0", "found 0"]),
        (["run.yaml", "--epochs", "-3"], ["--epochs:", "greater than 0", "found -3"]),
        (["run.yaml", "--epochs", "0"], ["--epochs:", "greater than 0", "found 0"]),
        (["run.yaml", "--memory-limit", "much"], ["--memory-limit:", "'much' is not a size"]),
        (["run.yaml", "--memory-limit", "200%"], ["--memory-limit:", "'200%'", "at most 100%"]),
        (["run.yaml", "--set", "train.seed=18446744073709551616"], ["--set train.seed:", "must be less than"]),
        (["run.yaml", "--set", "train.lr=.inf"], ["--set train.lr:", "must be a finite number", "found inf"]),
        (["run.yaml", "--set", "train.weight_decay=.nan"], ["--set train.weight_decay:", "found nan"]),
        (["run.yaml", "--set", "measure.threads=100000"], ["threads: 100000 are too many", "give at most"]),
        (["run.yaml", "--dataset", "synthetic:cora:-1"], ["--dataset: dataset.scale", "greater than 0"]),
        (["run.yaml", "--dataset", ""], ["--dataset: is empty; give a value, or leave it out"]),
        (["run.yaml", "--memory-limit="], ["--memory-limit: is empty"]),
        (["run.yaml", "--set", "backend.fold_norm=false"], ["backend.fold_norm", "pyg"]),
        (["run.yaml", "--backend", "pyg:fold_norm=false"], ["backend.fold_norm", "pyg"]),
        (["run.yaml", "--backend", "isplib:fold_norn=false"], ["fold_norn", "did you mean 'fold_norm'?"]),
        (["run.yaml", "--backend", "isplib:fold_norm=perhaps"], ["backend.fold_norm", "'perhaps'"]),
        (["run.yaml", "--backend", "isplib:fold_norm"], ["'isplib:fold_norm'", "NAME:key=value"]),
        (["run.yaml", "--backend", "isplib:fold_norm={"], ["'isplib:fold_norm={'", "not valid YAML"]),
        (["--resume", "nowhere"], ["nowhere holds no run; give the folder of a run to resume"]),
        (["--out", "run.yaml"], ["run.yaml is a file, and results are written to a folder; choose another --out"]),
        (["--dataset", "missing.mtx"], ["missing.mtx"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_arguments(arguments: list[str], words: list[str]) -> None:
    refused(run("train", *arguments), 2, *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("dataset: {source: synthetic", ["line 1", "not valid YAML"]),
        ("model:\n\tname: gcn", ["line 2", "not valid YAML"]),
        ("just words", ["holds no sections"]),
        ("", ["holds no sections"]),
        ("model: {name: gcn}", ["dataset", "required"]),
        (CONFIG + "model: {name: gat}", ["the key 'model' stands in line 3 and again in line 5; keep one"]),
        (CONFIG.replace("epochs: 2", "epochs: 2, lr: 1, epochs: 3"), ["the key 'epochs' stands in line 4"]),
        (CONFIG + "measures: {}", ["measures", "did you mean 'measure'?"]),
        (CONFIG.replace("train: {epochs: 2}", "train: 3"), ["train"]),
        (CONFIG.replace("name: gcn, hidden: 8", "name: gat, hidden: 8, heads: 3"), ["hidden 8", "heads 3"]),
    ],
)
def test_configurations(folder: Path, content: str, words: list[str]) -> None:
    (folder / "run.yaml").write_text(content)
    refused(run("train", "run.yaml"), 2, "run.yaml", *words)


def test_all_problems_of_a_file_are_listed_at_once(folder: Path) -> None:
    (folder / "run.yaml").write_text(CONFIG.replace("hidden: 8", "hidden: -8, layer: 2"))
    output = run("train", "run.yaml", "--epochs", "0")
    assert output.code == 2
    lines = output.stderr.splitlines()
    assert len(lines) == 3
    for where in ("run.yaml: model.hidden", "run.yaml: model.layer", "--epochs"):
        assert sum(f"{where}: " in line for line in lines) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", "--baseline", ""], ["--baseline: is empty; give a value, or leave it out"]),
        (["compare", "--backends", "pyg,isplib,pyg"], ["pyg is given twice"]),
        (["bench", "spmm", "--memory-limit", "101%"], ["--memory-limit: '101%'", "at most 100%"]),
        (["bench", "spmm", "--threads", "100000"], ["threads: 100000 are too many"]),
        (["compare", "--csv", "no/such/t.csv"], ["--csv no/such/t.csv: there is no folder no/such; create it"]),
        (["bench", "spmm", "--plot", "no/p.svg"], ["--plot no/p.svg: there is no folder no"]),
        (["sweep", "grid.yaml", "--report", "."], ["--report .: is a folder; name a file in it"]),
        (["bench", "nope"], ["collate", "gat_attention", "sample"]),
        (["sweep", "grid.yaml"], ["grid.yaml: the key 'model.hidden' stands in line 3 and again in line 4"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_arguments_of_other_verbs(folder: Path, arguments: list[str], words: list[str]) -> None:
    (folder / "grid.yaml").write_text("run: run.yaml\ngrid:\n  model.hidden: [1]\n  model.hidden: [2]\n")
    refused(run(*arguments), 2, *words)


def test_a_default_configuration_is_not_named_as_a_file() -> None:
    output = run("train", "--set", "model.name=gat", "--set", "model.hidden=9")
    refused(output, 2, "the default configuration: model")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"edge_index": np.array([[0, 9], [1, 0]])}, ["9", "0 to 5"]),
        ({"x": np.full((6, 3), np.nan, dtype=np.float32)}, ["NaN"]),
    ],
    ids=["edge beyond the nodes", "NaN features"],
)
@pytest.mark.parametrize("backend", ["pyg", "isplib"])
def test_graphs(folder: Path, change: dict[str, Any], words: list[str], backend: str) -> None:
    np.savez(folder / "graph.npz", **GRAPH | change)
    refused(run("train", "run.yaml", "--dataset", "graph.npz", "--backend", backend), 2, "graph", *words)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"\x00\xff" * 50])
@pytest.mark.parametrize("name", ["graph.npz", "graph.mtx", "graph.mtx.gz", "graph.csv"])
def test_broken_files_are_named(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    refused(run("train", "run.yaml", "--dataset", name), 2, name)


def test_the_good_graph_is_good(folder: Path) -> None:
    np.savez(folder / "graph.npz", **GRAPH)
    assert run("train", "run.yaml", "--dataset", "graph.npz", "--quiet") == Output(0, "", "")


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_an_output_folder_that_cannot_be(folder: Path, verb: str) -> None:
    (folder / "file").write_text("")
    refused(run(verb, *TINY, "--out", "file/out"), 1, "file/out", "choose another --out")


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_working_folder_that_cannot_be_written(folder: Path) -> None:
    folder.chmod(0o500)
    refused(run("train", "run.yaml"), 1, "runs", "--out")


@pytest.mark.parametrize("arguments", [["train"], ["bench", "spmm", "--graph", "synthetic:cora:0.1"]])
def test_a_cache_that_cannot_be(folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("GNNBENCH_CACHE", "file/cache")
    refused(run(*arguments), 2, "file/cache/synthetic: cannot be written", "set GNNBENCH_CACHE to another folder")


def test_a_disk_that_is_full(folder: Path, fill_disk: Callable[[], None]) -> None:
    fill_disk()
    refused(run("train", *TINY, "--out", "out"), 1, "No space left on device", "--out")
    assert list((folder / "out").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="limits file sizes by a shell built-in")
def test_results_that_do_not_fit_on_the_disk(folder: Path) -> None:
    options = *TINY, "--out", "out", "--set", "train.checkpoint_every=0"
    # Coverage has files of its own to write.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", sys.executable, "-m", "gnnbench", "train", *options],
        env={**environment, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "cannot be written: File too large" in done.stderr


def test_a_loss_that_is_not_a_number() -> None:
    output = run("train", *TINY, "--set", "train.lr=1.0e+38", "--set", "train.optimizer=sgd", "--out", "out", "-q")
    refused(output, 1, "the loss became", "train.lr")


def test_a_programming_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(running, "run", broken)
    with pytest.raises(ZeroDivisionError):
        run("train", *TINY, "--out", "out")
