"""The functions do what the verbs do, with the same sentences; results show themselves in notebooks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gnnbench
from gnnbench.api import _options as configs
from gnnbench.errors import BackendUnavailable, ConfigError, GnnbenchError
from gnnbench.report import live, tables
from gnnbench.report.tables import Cell, Table
from gnnbench.training import run as running
from tests.support.commands import ROOT, TINY, run
from tests.support.compare_runner import Runner

SMALL: dict[str, Any] = {"dataset": "synthetic:cora:0.05", "epochs": 4, "set": {"model.hidden": 8}}
SECTIONS = {"dataset": {"source": "synthetic", "preset": "cora"}, "model": {"name": "gcn"}}
pytestmark = pytest.mark.usefixtures("folder")


def test_importing_is_light_and_names_complete() -> None:
    program = (
        "import sys, gnnbench\n"
        "assert {'train', 'sweep', 'tune', 'suite', 'reproduce', 'load_result', 'patch_pyg'} <= {*dir(gnnbench)}\n"
        "gnnbench.train, gnnbench.sweep\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    for heavy in ("torch", "pydantic", "yaml", "numpy", "rich", "pandas", "matplotlib"):
        assert f"'{heavy}'" not in output.stdout


def test_training_is_what_the_verb_does(folder: Path) -> None:
    result = gnnbench.train(**SMALL, backend="pyg", out="ours")
    output = run("train", *TINY, "--backend", "pyg", "--out", "verbs", "--json")
    theirs = json.loads(output.stdout)
    assert result.config == theirs["config"]
    assert [sample.loss for sample in result.samples] == [sample["loss"] for sample in theirs["samples"]]
    assert result.model_dump_json(indent=1) == (folder / "ours" / "results.json").read_text().rstrip()
    assert repr(result) == "Run('ours/results.json')"
    assert gnnbench.load_result("ours") == result
    frame = result.to_frame()
    assert [*frame["epoch"]] == [1, 2, 3, 4]
    assert {"loss", "epoch_s", "test"} <= {*frame.columns}
    assert "gcn (2 layers, 8 hidden) on synthetic cora x0.05, pyg" in result._repr_html_()


@pytest.mark.parametrize(
    ("options", "verb"),
    [
        ({"config": "gcn_coar"}, ["gcn_coar"]),
        ({"config": "missing.yaml"}, ["missing.yaml"]),
        ({"set": {"epochs": 5}}, ["--set", "epochs=5"]),
        ({"set": {"train.epoch": 5}}, ["--set", "train.epoch=5"]),
        ({"backend": "islib"}, ["--backend", "islib"]),
        ({"dataset": "coar"}, ["--dataset", "coar"]),
        ({"epochs": 0}, ["--epochs", "0"]),
        ({"resume": "nowhere"}, ["--resume", "nowhere"]),
        ({"resume": "nowhere", "epochs": 3}, ["--resume", "nowhere", "--epochs", "3"]),
    ],
    ids=str,
)
def test_mistakes_are_the_sentences_of_the_command_line(options: dict[str, Any], verb: list[str]) -> None:
    with pytest.raises(GnnbenchError) as error:
        gnnbench.train(**options)
    output = run("train", *verb)
    assert output.stderr == f"gnnbench: {error.value}\n"
    assert output.code == error.value.exit_code


def test_configurations_by_path_name_and_sections(folder: Path) -> None:
    assert configs.SHIPPED.parent == Path(gnnbench.__file__).parent  # and so in the wheel, by the next line
    assert '"configs/*.yaml"' in (ROOT / "pyproject.toml").read_text()
    named = configs.load("gcn_cora")
    assert named == configs.load(ROOT / "configs" / "gcn_cora.yaml")
    (folder / "configs").mkdir()
    text = (ROOT / "configs" / "gcn_cora.yaml").read_text()
    (folder / "configs" / "gcn_cora.yaml").write_text(text.replace("epochs: 200", "epochs: 7"))
    assert configs.load("gcn_cora").train.epochs == 7  # the folder at hand comes first
    given = {**SECTIONS, "train.lr": 1e-5, "model.hidden": np.int64(32)}
    loaded = configs.load(given, {"batch.kind": "full", "train.weight_decay": np.float64(0.5)}, epochs=3)
    assert (loaded.train.lr, loaded.model.hidden, loaded.train.epochs) == (1e-5, 32, 3)
    assert loaded.train.weight_decay == 0.5
    assert given == {**SECTIONS, "train.lr": 1e-5, "model.hidden": 32}
    assert configs.load(named.model_dump(serialize_as_any=True)) == named
    with pytest.raises(ConfigError, match=r"^config: dataset: is required"):
        configs.load({"model": {"name": "gcn"}})
    with pytest.raises(ConfigError, match=r"^--set model.hidden: must be a valid integer"):
        configs.load(SECTIONS, {"model.hidden": object()})
    assert (configs.stem(None), configs.stem("a/gcn.yaml"), configs.stem(SECTIONS)) == ("demo", "gcn", "run")


def test_a_run_that_fails_raises_or_says_so(monkeypatch: pytest.MonkeyPatch, no_gpu: None) -> None:
    result = gnnbench.train(**SMALL, backend="cuda", check=False)
    assert result.status == "unavailable"
    with pytest.raises(BackendUnavailable) as error:
        gnnbench.train(**SMALL, backend="cuda")
    assert str(error.value) == result.reason

    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(running._Run, "execute", stopped)
    with pytest.raises(KeyboardInterrupt, match="continue with: gnnbench train --resume"):
        gnnbench.train(**SMALL)
    assert gnnbench.train(**SMALL, check=False).status == "interrupted"


def test_threads_are_those_of_before() -> None:
    threads = torch.get_num_threads()
    result = gnnbench.train(dataset="synthetic:cora:0.05", epochs=1, set={"measure.threads": threads + 1})
    assert result.environment["threads"]["torch"] == threads + 1
    assert torch.get_num_threads() == threads


def test_comparisons(processes: Runner, folder: Path) -> None:
    compared = gnnbench.compare(**SMALL, backends=["pyg", "isplib"], rounds=2)
    assert compared.path == Path("runs/demo-compare-1/comparison.json")
    assert [*compared.to_frame()["backend"]] == ["pyg", "isplib"]
    assert compared.to_frame()["speedup.pyg.ratio"][1] == 8.0
    assert "Parity: green" in compared._repr_html_()
    assert len(gnnbench.compare(**SMALL, backends="pyg, isplib", rounds=3, out=compared.path.parent).rows) == 2
    processes.wrong = "isplib"
    red = gnnbench.compare(**SMALL, backends=["pyg", "isplib"], rounds=1)
    assert red.parity.ok is False
    assert red.exit_code == 3
    assert gnnbench.load_result(red.path).to_frame().equals(red.to_frame())


def test_benchmarks(brief: None) -> None:
    timed = gnnbench.bench("spmm", SMALL["dataset"], widths=[4], against=["torch-csr"], backend="reference")
    assert [*timed.to_frame()["implementation"]] == ["reference", "torch-csr"]
    assert "spmm on" in timed._repr_html_()
    with pytest.raises(ConfigError, match="unknown op 'smpp'"):
        gnnbench.bench("smpp")


@pytest.mark.parametrize("kind", ["bench", "collate", "sample", "reproduction"])
def test_stored_results_of_other_kinds_show_themselves(kind: str) -> None:
    folder = {"bench": "ops", "reproduction": "reproductions"}.get(kind, kind)
    result = gnnbench.load_result(next((ROOT / "results" / folder).glob("*.json")))
    assert type(result).__name__.lower().startswith(kind)
    assert len(result.to_frame())
    assert "<table>" in result._repr_html_()


def test_tables_are_escaped() -> None:
    text = tables.html(Table(("a\nb", "c"), [[Cell("<x>"), Cell("1", "&")]], title="<t>", notes=["<n>"]))
    assert "<caption>&lt;t&gt;</caption>" in text
    assert '<th style="text-align: left">a<br>b</th>' in text
    assert '<td style="text-align: left">&lt;x&gt;</td>' in text
    assert '<td style="text-align: right">1<br><small>&amp;</small></td>' in text
    assert "<li>&lt;n&gt;</li>" in text


def test_progress_in_a_notebook_replaces_itself_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    displays = pytest.importorskip("IPython.display", reason="IPython is not installed: pip install -e '.[test]'")
    from rich.console import Console

    shown: list[str] = []

    class Handle:
        def update(self, html: Any) -> None:
            shown.append(html.data)

    def display(html: Any, display_id: bool) -> Handle:
        assert not shown
        shown.append(html.data)
        return Handle()

    monkeypatch.setattr(displays, "display", display)
    with live.View(Console(force_jupyter=True)) as view:
        view.say("loading <it>")
        view.draw("epoch 1", Table(("epoch",), [[Cell("1")]], notes=["not shown"]))
    assert shown[0] == "loading &lt;it&gt;"
    assert "<caption>epoch 1</caption>" in shown[1]
    assert "not shown" not in shown[1]
    assert shown[2:] == [""]
