"""The README keeps its word: its commands run, its examples work, its table is what was measured."""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import gnnbench.backends
import gnnbench.datasets
import gnnbench.models
from gnnbench import bench as benchmark
from gnnbench import compare, datasets, reproduce
from gnnbench.measure.rounds import Budget
from gnnbench.reproduce import _process
from gnnbench.reproduce._records import Outcome
from gnnbench.results import files
from gnnbench.results.files import save_json
from gnnbench.tune import search
from tests.support import readme
from tests.support.commands import ROOT, run
from tests.support.compare_runner import Runner, compared

TEXT = readme.README.read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line.removeprefix("$ "), comments=True)
    for block in re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]
EXAMPLES = re.findall(r"```python\n# gnnbench/(\w+)/(\w+\.py)\n(.*?)```", TEXT, re.DOTALL)
SHORT = ("--epochs", "2", "--set", "train.repeats=1")


@pytest.fixture
def extended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package with the README's example files in it, and a working folder with `configs`."""
    for package, name, code in EXAMPLES:
        (tmp_path / package).mkdir(exist_ok=True)
        (tmp_path / package / name).write_text(code)
    for package in (gnnbench.datasets, gnnbench.models, gnnbench.backends):
        extra = str(tmp_path / package.__name__.split(".")[1])
        monkeypatch.setattr(package, "__path__", [*package.__path__, extra])
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GNNBENCH_DATA", raising=False)


def test_there_are_commands_and_examples_of_every_kind() -> None:
    assert {command[1] for command in COMMANDS if command[0] == "gnnbench"} == {
        "train",
        "compare",
        "bench",
        "tune",
        "reproduce",
        "datasets",
        "doctor",
    }
    assert [package for package, _, _ in EXAMPLES] == ["datasets", "models", "backends"]


def trained(work: _process.Work, tell: Callable[[str], None]) -> Outcome:
    """Stands in for the processes of a reproduction's cells: comparisons, and products on a small graph."""
    if isinstance(work.cell, reproduce.Ops) and work.cell.op == "spmm":
        small = {"dataset": datasets.parse("synthetic:cora:0.05"), "widths": [4]}
        work = work.model_copy(update={"cell": work.cell.model_copy(update=small)})
    elif not isinstance(work.cell, reproduce.Training):
        return Outcome(status="failed", reason="left out")
    _process.perform(work, tell)
    return files.load(Outcome, work.path)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("target", "recipe"),
    [("demo", "gnnbench compare --backends pyg,pyg-sparse,isplib"), ("test", "-m pytest"), ("lint", "ruff check")],
)
def test_make_targets_install_and_run(target: str, recipe: str, tmp_path: Path) -> None:
    """Their recipes are read, not run: the tests run inside `make test` themselves."""
    command = ["make", "--dry-run", target, f"VENV={tmp_path / 'venv'}"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "pip install" in lines
    assert "-c constraints.txt -e" in lines
    assert lines.index("pip install") < lines.index(recipe)


@pytest.mark.slow
def test_every_command_runs(extended: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order and with few epochs; processes of comparisons are replaced, and so are graphs that may
    not be at hand, after their names were looked up."""
    monkeypatch.setattr(compare, "compare", functools.partial(compare.compare, execute=Runner()))
    monkeypatch.setattr(_process, "execute", trained)
    brief = Budget(rounds=2, least_s=0.0)
    for budget in ("SURVEY", "DUEL"):
        monkeypatch.setattr(search, budget, brief)
    monkeypatch.setitem(benchmark.bench.__kwdefaults__, "budget", brief)
    for command in COMMANDS:
        match command:
            case ["make", "demo" | "test"] | ["python3", "-m", "venv", ".venv"]:
                continue
            case [".venv/bin/pip", "install", "-c", constraints, "-e", ".[test]"]:
                assert (ROOT / constraints).exists()
                continue
            case ["gnnbench", "train", "--resume", _]:
                extra: tuple[str, ...] = ()
            case ["gnnbench", "train" | "compare", *options]:
                spec = options[options.index("--dataset") + 1] if "--dataset" in options else ""
                assert not spec or datasets.parse(spec)
                extra = (*SHORT, *(() if spec.startswith("ring") else ("--dataset", "synthetic:cora:0.05")))
            case ["gnnbench", "suite", "gpu", *_]:
                extra = ("--scale", "tiny", "--graphs", "batch", "--ops", "edge_softmax")
            case ["gnnbench", "bench", *options]:
                assert datasets.parse(options[options.index("--graph") + 1])
                extra = ("--graph", "synthetic:cora:0.05", "--widths", "4")
            case ["gnnbench", "tune", "--clear"]:
                extra = ()
            case ["gnnbench", "tune", target, *options]:
                is_run = target.endswith(".yaml")
                assert Path(target).exists() if is_run else datasets.parse(target)
                small = "configs/demo.yaml" if is_run else "synthetic:cora:0.05"
                command, extra = ["gnnbench", "tune", small, *options], ()
            case ["gnnbench", "reproduce", paper, *_]:
                assert paper in reproduce.names()
                extra = ()
            case ["gnnbench", *_]:
                extra = ()
            case _:
                pytest.fail(f"nobody knows how to test {shlex.join(command)}")
        output = run(*command[1:], *extra)
        assert output.code == 0, f"{shlex.join(command)}: {output.stderr}"
        assert output.stdout


def test_a_model_without_ops_of_ours_is_unsupported(extended: None) -> None:
    output = run("train", *SHORT, "--dataset", "ring:50", "--set", "model.name=tag", "--backend", "isplib")
    assert output.code == 1
    assert "TAGConv" in output.stderr


def test_the_json_names_are_those_of_the_schema() -> None:
    from gnnbench.bench.records import Bench
    from gnnbench.compare.record import Comparison
    from gnnbench.results.schema import Result

    named = TEXT[TEXT.index("### Names in the JSON") : TEXT.index("## Single ops")]
    named += TEXT[TEXT.index("`bench --json`") : TEXT.index("## Tuning")]
    named += TEXT[TEXT.index("`reproduce --json`") : TEXT.index(readme.marks("reproductions")[0])]
    kinds = (Result, Comparison, Bench, reproduce.Reproduction)
    known = "".join(str(kind.model_json_schema()) for kind in kinds)
    for name in re.findall(r"`([a-z][\w.|]+)`", named.replace(".BASELINE.", ".pyg.").replace(".PEER.", ".")):
        for part in re.split(r"[.|]", name):
            assert f"'{part}'" in known, name


def test_the_exit_codes_are_those_of_the_help() -> None:
    words = " ".join(run("--help").stdout.split())
    for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE):
        assert f" {code} " in words


def test_every_backend_has_its_row() -> None:
    for name in gnnbench.backends.names():
        assert f"| `{name}` |" in TEXT


def test_files_that_are_named_exist() -> None:
    for name in re.findall(r"`([\w./]+\.(?:txt|yaml|py)|[\w/]+/)`", TEXT):
        assert (ROOT / name).exists() or (ROOT / "gnnbench" / name).exists(), name


def test_the_tables_are_what_was_measured() -> None:
    assert readme.written(TEXT, readme.RESULTS) == TEXT


def test_a_table_is_made_of_the_results(tmp_path: Path) -> None:
    (tmp_path / "dropin").mkdir()
    save_json(compared(tmp_path / "gat", Runner()), tmp_path / "dropin" / "gat.json")
    begin, end = readme.marks("dropin")
    text = readme.written(TEXT, tmp_path)
    table = text[text.index(begin) : text.index(end)]
    assert "| gat (2 layers, 8 hidden) on zoo | 800 ms | 400 ms | 100 ms | 8.00x<br>8.00–8.00x | 4.00x" in table
    assert "Size: 3 rounds of 4 epochs" in table
    assert text.split(begin)[0].count("|") < TEXT.split(begin)[0].count("|")  # the others are empty now
    assert text.endswith(TEXT.split(end)[1][-100:])
