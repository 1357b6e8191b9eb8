"""README and docs keep their word: commands run, examples work, tables are what was measured."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch
import yaml
from torch_geometric.nn import TAGConv

import gnnbench.backends
from gnnbench import Graph, cells, comparison, convs, datasets, history, papers, patch, sweeps
from gnnbench.backends import cuda
from gnnbench.backends import isplib as isplib_backend
from gnnbench.cells import Outcome, Work
from gnnbench.config import BackendConfig
from gnnbench.convs import _cost
from gnnbench.measure import environment
from gnnbench.ops.kernels import Kernels
from gnnbench.papers import io_aware, isplib
from gnnbench.papers._records import Verdict
from gnnbench.results import files
from gnnbench.results.files import save_json
from tests.support import readme
from tests.support.commands import ROOT, run
from tests.support.compare_runner import Runner, compared

TEXT = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in readme.PAGES}
ALL = "\n".join(TEXT.values())
COMMANDS = list(  # in their order, each once
    dict.fromkeys(
        tuple(shlex.split(line.removeprefix("$ "), comments=True))
        for block in re.findall(r"```console\n(.*?)```", ALL, re.DOTALL)
        for line in block.splitlines()
    )
)
OP = (
    "## An op with kernels" + TEXT["docs/extending.md"].partition("## An op with kernels")[2].partition("\n## ")[0]
)
BLOCKS = re.findall(r"```(?:python|yaml|toml)\n(.*?)```", ALL.replace(OP, ""), re.DOTALL)
FILE = re.compile(r"# ([\w/.]+\.(?:py|yaml|toml))\n(.*)", re.DOTALL)  # whose path the first line names
EXAMPLES = {match[1]: match[2] for block in BLOCKS if (match := FILE.match(block))}
PROGRAMS = [block for block in BLOCKS if not FILE.match(block)]
EXTENDED = (
    "datasets",
    "models",
    "training.batching",
    "backends",
    "convs",
    "ops",
    "papers",
    "benchmarks",
    "kinds",
    "api",
)
SHORT = ("--epochs", "2", "--set", "train.repeats=1")
SMALL = "synthetic:cora:0.05"
MANY = "synthetic:pattern:0.001"
ONE_AT_A_TIME = threading.Lock()  # of trials side by side, which have a process each otherwise


SCALE_ROWS = """
import json
import gnnbench
from gnnbench.backends.cuda import CudaKernels
from gnnbench.backends.isplib import IsplibKernels
assert "scale_rows" in CudaKernels.accelerated & IsplibKernels.accelerated
peers = ["isplib", "reference", "torch"]
found = gnnbench.bench("scale_rows", shapes=["7x5"], backend="cuda", against=peers, backward=True, quiet=True)
print(json.dumps([(row.implementation, row.status, row.reason) for row in found.rows]))
"""


@pytest.fixture
def working_folder(folder: Path) -> Path:
    """An empty folder with `configs`, which nothing is written next to."""
    (folder / "configs").mkdir()
    for config in (ROOT / "configs").iterdir():
        (folder / "configs" / config.name).symlink_to(config)
    return folder


@pytest.fixture
def extended(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package with the example files of the docs in it, and their package installed."""
    known = {*sys.modules}
    for path, code in EXAMPLES.items():
        (working_folder / path).parent.mkdir(parents=True, exist_ok=True)
        (working_folder / path).write_text(code)
    for name in EXTENDED:
        package = importlib.import_module(f"gnnbench.{name}")
        package.__path__.append(str(working_folder.joinpath("gnnbench", *name.split("."))))
    project = EXAMPLES["pyproject.toml"]
    info = working_folder / "gnnbench_dense-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gnnbench-dense\nVersion: 0.1\n")
    points = project.partition("[project.entry-points.")[2].replace('"', "")
    (info / "entry_points.txt").write_text(f"[{points}")
    monkeypatch.syspath_prepend(working_folder)
    importlib.invalidate_caches()
    for cached in (convs.table, patch._always):
        cached.cache_clear()
    yield
    for cached in (convs.table, patch._always):
        cached.cache_clear()
    for name in EXTENDED:
        importlib.import_module(f"gnnbench.{name}").__path__.pop()
    for name in {*sys.modules} - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(working_folder)):
            del sys.modules[name]


def test_there_are_commands_and_examples_of_every_kind() -> None:
    verbs = {command[1] for command in COMMANDS if command[0] == "gnnbench"} - {"sorting"}  # an example
    assert verbs == {
        "train",
        "compare",
        "infer",
        "bench",
        "suite",
        "profile",
        "tune",
        "reproduce",
        "sweep",
        "partition",
        "history",
        "report",
        "datasets",
        "demo",
        "doctor",
    }
    in_readme = re.findall(r"^\$ gnnbench (\w+)", TEXT["README.md"], re.MULTILINE)
    assert verbs <= {*in_readme}
    assert {path.split("/")[-2] for path in EXAMPLES if "/" in path} == {
        *(name.rpartition(".")[2] for name in EXTENDED),
        "configs",
        "workflows",
    }


def test_the_commands_of_the_workflow_are_those_that_run() -> None:
    (job,) = yaml.safe_load(EXAMPLES[".github/workflows/speed.yaml"])["jobs"].values()
    steps = [shlex.split(step["run"].partition(" --markdown")[0]) for step in job["steps"] if "run" in step]
    commands = [("gnnbench", *words[1:]) for words in steps if words[0].endswith("gnnbench")]
    assert len(commands) == 2
    assert {*commands} <= {*COMMANDS}


def test_the_readme_is_short_and_pages_link_to_what_exists() -> None:
    assert len(TEXT["README.md"].splitlines()) < 200
    for page, text in TEXT.items():
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", prose):
            target = (ROOT / page).parent / link if link else ROOT / page
            assert target.exists(), f"{page}: {link}"
            headings = re.findall(r"^#+ (.*)$", target.read_text() if anchor else "", re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert not anchor or anchor in slugs, f"{page}: {link}#{anchor}"


def trained(work: Work, tell: Callable[[str], None], **_: object) -> Outcome:
    """Stands in for the processes of cells: trials, comparisons, and products on a small graph."""
    if isinstance(work.cell, papers.Ops) and work.cell.op == "spmm":
        small = {"dataset": datasets.parse(SMALL), "widths": [4]}
        work = work.model_copy(update={"cell": work.cell.model_copy(update=small)})
    elif not isinstance(work.cell, (papers.Training, sweeps.Trial)):
        return Outcome(status="failed", reason="left out")
    with ONE_AT_A_TIME:
        cells.perform(work, tell)
    return files.load(Outcome, work.path)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("target", "recipe"),
    [("demo", "gnnbench demo"), ("test", "-m pytest"), ("lint", "ruff check")],
)
def test_make_targets_install_and_run(target: str, recipe: str, tmp_path: Path) -> None:
    """Their recipes are read, not run: the tests run inside `make test` themselves."""
    command = ["make", "--dry-run", target, f"VENV={tmp_path / 'venv'}"]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "pip install" in lines
    assert "-c constraints.txt -e" in lines
    assert lines.index("pip install") < lines.index(recipe)


@pytest.fixture
def without_processes(monkeypatch: pytest.MonkeyPatch, brief: None) -> None:
    """Processes of comparisons are replaced, as are interpreted kernels; grids have one graph in one order."""
    runner = Runner()
    runner.environment = environment.describe()
    monkeypatch.setattr(comparison, "compare", functools.partial(comparison.compare, execute=runner))
    monkeypatch.setattr(cells, "execute", trained)
    monkeypatch.setitem(isplib.GRAPHS, "small", ["cora"])
    for name, value in (("WIDTHS", [16]), ("PADDED", [4]), ("QUICK_EPOCHS", 6)):
        monkeypatch.setattr(isplib, name, value)
    monkeypatch.setitem(io_aware.GRAPHS, "demo", [SMALL])
    monkeypatch.setattr(io_aware, "DEMO", (["none"], *io_aware.DEMO[1:]))
    monkeypatch.setattr(cuda.Backend, "kernels", Kernels)


@pytest.mark.slow
def test_every_command_runs(extended: None, without_processes: None) -> None:
    """In their order and with few epochs, on a small graph after their own one was looked up by its name."""
    for command in COMMANDS:
        match command:
            case ["make", "demo" | "test" | "lint" | "readme" | "sanitize"] | ["python3", "-m", "venv", ".venv"]:
                continue
            case [".venv/bin/pip", "install", "-c", constraints, "-e", ".[test]"]:
                assert (ROOT / constraints).exists()
                continue
            case [".venv/bin/python", "-m", "pytest", path]:
                assert (ROOT / path).exists()
                continue
            case ["gnnbench", "demo"]:
                command, extra = ("gnnbench", "compare"), (*SHORT, "--dataset", SMALL)
            case ["gnnbench", "train", "--resume", _]:
                extra: tuple[str, ...] = ()
            case ["gnnbench", "train" | "compare" | "profile", *options]:
                spec = options[options.index("--dataset") + 1] if "--dataset" in options else ""
                assert not spec or datasets.parse(spec)
                ring = spec.startswith("ring") or "configs/tag_ring.yaml" in options
                configs = " ".join(Path(option).read_text() for option in options if option.endswith(".yaml"))
                fits: tuple[str, ...] = ("--set", "batch.size=2") if "kind: neighbors" in configs else ()
                graphs = MANY if "kind: graphs" in configs else SMALL
                if "--workers" in options and "batch.folder=halves" not in options:  # two start for that one
                    fits = (*fits, "--workers", "1")
                extra = (*SHORT, *fits, *(() if ring else ("--dataset", graphs)))
            case ["gnnbench", "infer", *_]:
                extra = ("--rounds", "0") if "--out" in command else ("--rounds", "1")
            case ["gnnbench", "suite", "gpu", *_]:
                extra = ("--scale", "tiny", "--graphs", "batch", "--ops", "edge_softmax")
            case ["gnnbench", "bench", "collate", *options]:
                assert datasets.parse(options[options.index("--graph") + 1])
                extra = ("--graph", MANY, "--batches", "3")
            case ["gnnbench", "bench", "sample" | "negatives", *options]:
                assert datasets.parse(options[options.index("--graph") + 1])
                extra = ("--graph", SMALL, "--batches", "3")
            case ["gnnbench", "bench", "linear", *options]:
                extra = ("--shapes", "8x8x8")
            case ["gnnbench", "bench", *options]:
                assert datasets.parse(options[options.index("--graph") + 1])
                extra = ("--graph", SMALL, "--widths", "4")
            case ["gnnbench", "tune", "--clear"]:
                extra = ()
            case ["gnnbench", "tune", target, *options]:
                is_run = target.endswith(".yaml")
                assert Path(target).exists() if is_run else datasets.parse(target)
                command = ("gnnbench", "tune", "configs/demo.yaml" if is_run else SMALL, *options)
                extra = () if "--widths" in options or is_run else ("--widths", "4")
            case ["gnnbench", "reproduce", paper, *_]:
                assert paper in papers.names()
                extra = ()
            case ["gnnbench", "sweep", *_]:
                extra = ("--set", "train.epochs=2")
            case ["gnnbench", "datasets", "info", spec]:
                assert datasets.parse(spec)
                command = command if ":" in spec else ("gnnbench", "datasets", "info", SMALL)
                extra = ()
            case ["gnnbench", *_]:
                extra = ()
            case _:
                pytest.fail(f"nobody knows how to test {shlex.join(command)}")
        output = run(*command[1:], *extra)
        assert output.code == 0, f"{shlex.join(command)}: {output.stderr}"
        assert output.stdout


@pytest.mark.usefixtures("extended", "without_processes")
def test_every_program_runs(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        for program in PROGRAMS:
            exec(program, {"__name__": "program"})
    finally:
        gnnbench.unpatch_pyg()
    shown = capsys.readouterr().out
    assert re.search(r"accelerated: GCNConv, \d+ calls", shown)
    assert "isplib ok" in shown


def test_the_example_conv_backend_and_op_are_right(extended: None) -> None:
    """The conv beside PyG's on its own kernels and on ours, the op beside its formula."""
    from gnnbench.ops.ppr import ppr

    torch.manual_seed(0)
    edge_index, x = torch.randint(40, (2, 200)), torch.randn(40, 6, dtype=torch.float64, requires_grad=True)
    graph = Graph.from_edge_index(edge_index, 40)
    dense = importlib.import_module("gnnbench_dense").DenseKernels()
    conv = TAGConv(6, 3, K=2, normalize=False).double()
    expected = conv(x, edge_index)
    for kernels in (dense, Kernels()):
        found = convs.table()["TAGConv"].forward(conv, kernels, frozenset(), x, graph)
        torch.testing.assert_close(found, expected)
    assert "normalize=True" in convs.unsupported(TAGConv(6, 3))[0]
    with gnnbench.patched("dense", names=["TAGConv"], strict=True):
        torch.testing.assert_close(conv(x, edge_index), expected)
    stand_in = patch.forward.forward_of(TAGConv)
    assert stand_in.price(conv, x, 10**5) == _cost.SUM.training.price(10**5, 6)
    assert stand_in.price(conv, x.detach(), 10**5) == _cost.SUM.inference.price(10**5, 6)
    ones = torch.ones(200, dtype=torch.float64)
    share = torch.sparse_coo_tensor(edge_index.flip(0), ones, (40, 40)).to_dense()
    share /= share.sum(1, keepdim=True).clamp(min=1)
    once = 0.8 * share @ x + 0.2 * x
    torch.testing.assert_close(ppr(dense, graph, x, steps=2, alpha=0.2), 0.8 * share @ once + 0.2 * x)
    assert torch.autograd.gradcheck(lambda x: ppr(dense, graph, x, steps=2), (x,))


@pytest.mark.skipif(bool(isplib_backend.MISSING) or not shutil.which("gcc"), reason="the kernels are not built")
@pytest.mark.slow
def test_an_op_with_kernels_is_six_places(tmp_path: Path) -> None:
    """In a copy of the package, where the new source alone is compiled; Triton's interpreter stands for a GPU."""
    pytest.importorskip("Cython")
    blocks = re.findall(r"```(?:python|c|cython)\n(?:# |/\* )([\w/.]+)([^\n]*)\n(.*?)```", OP, re.DOTALL)
    assert len(blocks) == 6
    for name in ("gnnbench", "cython_kernels"):  # without the sources of what is compiled already
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyx"))
    shutil.copy2(ROOT / "setup.py", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    for path, place, code in blocks:
        file = tmp_path / path
        if place.startswith(", in"):
            kernels = file.read_text()
            file.write_text(kernels.replace("\n\n\ndef check_categories", f"\n\n{code}\n\ndef check_categories"))
        else:
            assert not file.exists()
            file.write_text(code)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path), "GNNBENCH_CACHE": "cache"}
    for words in (("setup.py", "build_ext", "--inplace"), ("-c", SCALE_ROWS)):
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    statuses = json.loads(done.stdout)
    assert statuses == [[name, "ok", ""] for name in ("cuda", "isplib", "reference", "torch")] * 2


def test_a_model_that_only_pyg_can_run_is_unsupported() -> None:
    conv = ("--set", "model.name=conv", "--set", "model.conv=SAGEConv", "--set", "model.options={aggr: lstm}")
    output = run("train", *SHORT, "--dataset", SMALL, *conv, "--backend", "isplib")
    assert output.code == 1
    assert "LSTMAggregation may look at other destinations" in output.stderr


def test_the_json_names_are_those_of_the_schema() -> None:
    from gnnbench.benchmarks.collate import CollateBench
    from gnnbench.benchmarks.draws import NegativesBench, SampleBench
    from gnnbench.benchmarks.layers import LayerBench
    from gnnbench.benchmarks.records import Bench, Suite
    from gnnbench.comparison.record import Comparison
    from gnnbench.inference import Inference
    from gnnbench.profiling import Profile
    from gnnbench.results.schema import Result

    named = TEXT["docs/cli.md"].partition("## Names in the JSON")[2]
    kinds = (Result, Comparison, Bench, Profile, CollateBench, SampleBench, NegativesBench, LayerBench, Suite)
    others = (papers.Reproduction, sweeps.Sweep, Inference)
    known = "".join(str(kind.model_json_schema()) for kind in (*kinds, *others))
    known += str([*history.Entry._fields])
    for name in re.findall(r"`([a-z][\w.|]+)`", named.replace(".BASELINE.", ".pyg.").replace(".PEER.", ".")):
        for part in re.split(r"[.|]", name):
            assert f"'{part}'" in known, name


def test_verdicts_are_those_of_the_schema() -> None:
    explained = re.findall(r"^\| (`.*?`) \|", TEXT["docs/reproductions.md"], re.MULTILINE)
    assert {name for names in explained for name in re.findall("`(.*?)`", names)} == {*get_args(Verdict)}


def test_the_exit_codes_are_those_of_the_help() -> None:
    words = " ".join(run("--help").stdout.split())
    codes = re.findall(r"^\| (\d+) \|", TEXT["docs/cli.md"].partition("## Exit codes")[2], re.MULTILINE)
    assert len(codes) == 6
    for code in codes:
        assert f" {code} " in words


def test_every_backend_and_option_has_its_row() -> None:
    for name in [*gnnbench.backends.names(), *(BackendConfig.model_fields.keys() - {"name"})]:
        assert f"| `{name}` |" in TEXT["docs/cli.md"]


def test_files_that_are_named_exist() -> None:
    for name in re.findall(r"`([\w./]+\.(?:txt|yaml|py|md)|[\w/]+/)`", ALL):
        exists = any((ROOT / place / name).exists() for place in (".", "gnnbench", "results"))
        assert exists or name in ("edges.txt", "runs/", *EXAMPLES), name


@pytest.mark.parametrize("page", TEXT)
def test_the_tables_are_what_was_measured(page: str) -> None:
    assert readme.written(TEXT[page], readme.RESULTS) == TEXT[page]


def test_every_table_is_shown() -> None:
    for name in readme.TABLES:
        assert ALL.count(readme.marks(name)[0]) == 1, name


def test_a_table_is_made_of_the_results(tmp_path: Path) -> None:
    found = compared(tmp_path / "gat", Runner())
    for name in ("dropin/gat", "allocator/gat_system", "allocator/gat_warm"):
        save_json(found, tmp_path / f"{name}.json")
    begin, end = readme.marks("dropin")
    numbers = TEXT["docs/numbers.md"]
    text = readme.written(numbers, tmp_path)
    table = text[text.index(begin) : text.index(end)]
    assert "| gat (2 layers, 8 hidden) on zoo | 800 ms | 400 ms | 100 ms | 8.00x | 4.00x" in table
    assert "Size: 3 rounds of 4 epochs" in table
    assert (
        "| gat (2 layers, 8 hidden) on zoo | 800 ms | 800 ms | 400 ms | 400 ms | 100 ms | 100 ms | 4.00x" in text
    )
    assert text.split(begin)[0].count("|") < numbers.split(begin)[0].count("|")  # the others are empty now
