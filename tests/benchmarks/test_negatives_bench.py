"""Benchmarks of negatives: pairs are no edges before any time, which is per pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnbench import datasets, kinds, ops
from gnnbench.backends import isplib
from gnnbench.benchmarks import draws
from gnnbench.benchmarks.draws import NegativesBench
from gnnbench.errors import ConfigError
from gnnbench.report import page
from tests.support import commands, graphs

pytestmark = [
    pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built"),
    pytest.mark.usefixtures("brief"),
]


def run(out: Path, **options: Any) -> NegativesBench:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    mask, x = torch.ones(nodes, dtype=torch.bool), torch.randn(nodes, 3)
    labels = torch.zeros(nodes, dtype=torch.long)
    dataset = datasets.NodeDataset("zoo", edge_index, x, labels, mask, mask, mask, 2)
    options = {"sizes": (4, 9), "against": ("pyg",), **options}
    return draws.pairs(dataset, out=out, **options)


def test_every_implementation_is_checked_timed_and_shown(tmp_path: Path) -> None:
    result = run(tmp_path, against=("pyg", "pyg-dense", "dgl"))
    assert {row.status for row in result.rows if row.implementation != "dgl"} == {"ok"}
    assert all(row.reason for row in result.rows if row.status == "unavailable")  # where there is no DGL
    assert all(row.ratio["pyg"] for row in result.rows if row.implementation == "isplib")
    edge_index, nodes, _ = graphs.zoo()["hub"]
    loops = torch.arange(nodes).repeat(2, 1)
    assert result.excluded == torch.cat([edge_index, loops], 1).unique(dim=1).size(1)
    found = kinds.load(tmp_path)
    assert found.model_dump() == result.model_dump()
    section = type(found).of(result, tmp_path).section()
    assert "--against pyg,pyg-dense,dgl" in section.command
    assert "Negatives of zoo" in page.html([found])


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (torch.tensor([[3] * 4, [3] * 4]), "a self-loop was drawn"),
        (graphs.zoo()["hub"][0][:, :1].expand(2, 4), "an edge was drawn"),
        (torch.empty(2, 0, dtype=torch.int64), "only 0 pairs were drawn"),
    ],
)
def test_wrong_pairs_have_no_time(
    tmp_path: Path, pairs: torch.Tensor, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops.negatives, "uniform", lambda *_: pairs)
    result = run(tmp_path, sizes=(4,))
    assert [(row.status, row.reason) for row in result.rows if row.time_s is None] == [("wrong", reason)] * 2
    assert result.exit_code == 3


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown peer 'pyg-dens'; did you mean 'pyg-dense'"):
        run(tmp_path, against=("pyg-dens",))
    with pytest.raises(ConfigError, match="a batch of 0 pairs is none; give 1 or more"):
        run(tmp_path, sizes=(0,))


def test_the_command(tmp_path: Path) -> None:
    options = ("--graph", "synthetic:cora:0.1", "--batches", "16", "--against", "pyg", "--out", tmp_path)
    output = commands.run("bench", "negatives", *options, "--json")
    assert output.code == 0, output.stderr
    assert {row["batch_size"] for row in json.loads(output.stdout)["rows"]} == {16}
    assert "bench negatives has no --fanouts" in commands.run("bench", "negatives", "--fanouts", "3").stderr
