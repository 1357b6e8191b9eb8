"""Results are read back whatever kind they are of; what cannot be read says why in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnbench import __version__, kinds
from gnnbench.errors import ConfigError
from gnnbench.kinds.comparison import Comparison
from gnnbench.kinds.run import Run
from tests.support.commands import ROOT, run
from tests.support.compare_runner import Runner, compared

SCRIPTS = ("accuracy", "commands", "dgl", "machines", "partition", "programs", "regret")  # that no verb opens
RESULTS = sorted(path for path in (ROOT / "results").rglob("*.json") if path.parent.name not in SCRIPTS)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_everything_that_was_measured_opens(path: Path) -> None:
    classes = {"ops": "Bench", "attention": "Bench", "linear": "Bench", "reproductions": "Reproduction"}
    classes |= {
        "layers": "LayerBench",
        "collate": "CollateBench",
        "sample": "SampleBench",
        "inference": "Inference",
    }
    classes |= {
        "gpu": "Suite",
        "decoder": "Profile",
        "pair": "Bench",
        "products": "Bench",
    }  # these three in links,
    classes |= {"negatives": "NegativesBench"}  # and this
    name = path.stem.partition("_")[0] if path.parent.name == "links" else path.parent.name
    assert type(kinds.load(path)).__name__ == classes.get(name, "Comparison")


def test_a_folder_is_as_good_as_its_file(tmp_path: Path) -> None:
    record = compared(tmp_path, Runner(), "pyg", "isplib")
    found = kinds.load(tmp_path)
    assert (type(found), found.path) == (Comparison, tmp_path / "comparison.json")
    assert found.model_dump() == record.model_dump()
    assert {name: len(rounds) for name, rounds in found.results().items()} == {"pyg": 3, "isplib": 3}
    assert type(kinds.load(tmp_path / "rounds" / "1" / "pyg")) is Run


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema_version": 2}, "has schema 2, and gnnbench"),
        ({"schema_version": "x"}, "open it with gnnbench 9.9, or measure again"),
        ({"later": 1}, "later: extra inputs are not permitted; open it with gnnbench 9.9"),
        (
            {"later": 1, "environment": {"packages": {"gnnbench": __version__}}},
            "later: extra inputs are not permitted; it was changed since it was written: restore it",
        ),
        ({"rows": 3}, "rows: input should be a valid list"),
        ({"environment": []}, "open it with gnnbench of the version that wrote it"),
    ],
)
def test_another_schema_is_refused_in_a_sentence(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    record = {"parity": {}, "config": {}, "rounds": 1, "epochs": 1, "rows": []}
    environment = {"packages": {"gnnbench": "9.9"}}
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps({**record, "environment": environment, **change}))
    with pytest.raises(ConfigError) as error:
        kinds.load(tmp_path)
    assert str(error.value).startswith(f"{path}: ")
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a result"),
        ('"parity"', "is not a result"),
        ("[" * 10**5, "is not JSON"),
    ],
)
def test_another_file_is_refused(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(content)
    output = run("report", tmp_path / "x.json", "--out", tmp_path / "report.html")
    assert (output.code, output.stdout) == (2, "")
    assert words in output.stderr
    assert not (tmp_path / "report.html").exists()


def test_nothing_and_nowhere_are_refused(tmp_path: Path) -> None:
    assert "holds none of bench.json, comparison.json" in run("report", tmp_path).stderr
    assert "cannot be read" in run("report", tmp_path / "nowhere").stderr
    assert run("report").code == 2
