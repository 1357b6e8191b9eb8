"""Benchmarks of layers: nothing is timed that is not PyG's result, and memory and ways are told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torch import Tensor

import gnnbench
from gnnbench.benchmarks.layers import LayerBench
from gnnbench.ops.kernels import Kernels
from gnnbench.results import files
from tests.support import commands

COMMON = ("bench", "conv", "--graph", "synthetic:cora:0.05", "--widths", "4", "--backend", "reference")


def test_layers_are_checked_weighed_and_timed_beside_pygs(tmp_path: Path) -> None:
    asked = "EdgeConv,SGConv,GATConv,HGTConv,RGATConv,SplineConv,LabelPropagation"
    done = commands.run(*COMMON, "--conv", asked, "--out", tmp_path, "--csv", tmp_path / "rows.csv")
    assert done.code == 0, done.stderr
    assert "Layers on synthetic cora x0.05, width 4" in done.stdout
    assert "memory_increase_bytes" in (tmp_path / "rows.csv").read_text()
    record = files.load(LayerBench, tmp_path / "bench.json")
    ours = {(row.conv, row.direction): row for row in record.rows if row.implementation == "reference"}
    ways = {conv: row.way for (conv, direction), row in ours.items() if direction == "forward"}
    assert ways == {"EdgeConv": "streamed", "SGConv": "spmm", "GATConv": "kernels", "HGTConv": "kernels"} | {
        "RGATConv": "kernels",
        "SplineConv": "",
        "LabelPropagation": "spmm",
    }
    for conv in ("EdgeConv", "SGConv", "GATConv", "HGTConv", "RGATConv"):
        row = ours[conv, "step"]
        assert (row.status, row.reason) == ("ok", "")
        assert row.error is not None
        assert row.error < 1e-5
        assert row.ratio["pyg"]
        assert row.memory_increase_bytes is not None
    assert (ours["SplineConv", "step"].status, ours["SplineConv", "step"].time_s) == ("unavailable", None)
    assert ours["LabelPropagation", "step"].reason == "it has nothing to train"
    shown = gnnbench.load_result(tmp_path)
    assert len(shown.to_frame()) == len(record.rows)
    page = commands.run("report", tmp_path, "--out", tmp_path / "page.html")
    assert page.code == 0, page.stderr
    assert "bench conv --conv EdgeConv,SGConv" in (tmp_path / "page.html").read_text()


def test_a_wrong_layer_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Kernels.segment

    def wrong(self: Kernels, rowptr: Tensor, x: Tensor, reduce: str) -> Tensor:
        return 1.01 * right(self, rowptr, x, reduce)

    monkeypatch.setattr(Kernels, "segment", wrong)
    done = commands.run(*COMMON, "--conv", "ResGatedGraphConv", "--json")
    assert done.code == 3
    rows = {row["implementation"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["reference"]["status"] == "wrong"
    assert rows["reference"]["reason"].startswith("differs from PyG by 0.0")
    assert (rows["reference"]["time_s"], rows["reference"]["ratio"]["pyg"]) == (None, None)
    assert rows["pyg"]["status"] == "ok"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--conv", "PNACon"), "unknown layer 'PNACon'; did you mean 'PNAConv'?"),
        ((), "give layers with --conv, such as PNAConv,EdgeConv or all"),
        (("--conv", "PNAConv", "--heads", "2"), "bench conv has no --heads"),
    ],
)
def test_what_cannot_be_measured_is_named(arguments: tuple[str, ...], problem: str) -> None:
    done = commands.run(*COMMON, *arguments)
    assert done.code == 2
    assert problem in done.stderr
