"""Benchmarks of collation: the same batches as PyG's before any time, which is per graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench import datasets
from gnnbench.benchmarks import collate
from gnnbench.benchmarks.collate import CollateBench
from gnnbench.datasets import GraphsDataset
from gnnbench.errors import ConfigError
from gnnbench.graph.layout import CSRBuilder, Picked
from gnnbench.results import files
from tests.support import commands

pytestmark = pytest.mark.usefixtures("brief")


def some_graphs(count: int = 23, per_node: bool = False) -> GraphsDataset:
    """Random graphs, directed and symmetric ones, with labels of which some are missing, and categories."""
    draw = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 9, (count,), generator=draw)
    edges = []
    for graph, size in enumerate(sizes.tolist()):
        edge_index = torch.randint(size, (2, 3 * graph), generator=draw)
        edges.append(edge_index if graph % 3 else torch.cat([edge_index, edge_index.flip(0)], dim=1))
    y = torch.randint(2, (int(sizes.sum()) if per_node else count, 2), generator=draw).float()
    y[::4, 0] = torch.nan
    counts = torch.tensor([edge_index.size(1) for edge_index in edges])
    return GraphsDataset(
        name="some graphs",
        graph_ptr=torch.cat([torch.zeros(1).long(), sizes.cumsum(0)]),
        edge_ptr=torch.cat([torch.zeros(1).long(), counts.cumsum(0)]),
        edge_index=torch.cat(edges, dim=1).int(),
        x=torch.randint(5, (int(sizes.sum()), 4), generator=draw),
        y=y,
        splits={"train": torch.arange(count), "val": torch.arange(0), "test": torch.arange(0)},
        target="labels",
        num_outputs=2,
        per_node=per_node,
    )


def run(dataset: GraphsDataset, out: Path, **options: Any) -> CollateBench:
    options = {"backend": "reference", "sizes": (4, 23), **options}
    return collate.bench(dataset, out=out, **options)


@pytest.mark.parametrize("per_node", [False, True])
def test_batches_are_checked_and_timed_beside_pygs(per_node: bool, tmp_path: Path) -> None:
    result = run(some_graphs(per_node=per_node), tmp_path, against=("pyg", "pyg-list"), sizes=(4, 23, 24))
    *right, ours, _, _ = result.rows
    assert [(row.batch_size, row.implementation) for row in right] == [
        (size, name) for size in (4, 23) for name in ("reference", "pyg", "pyg-list")
    ]
    for row in right:
        assert (row.status, row.reason) == ("ok", "")
        assert row.time_s
        assert row.time_s.median > 0
        assert row.ratio.keys() == {"pyg", "pyg-list"}
    assert right[0].ratio["pyg"]
    assert right[0].ratio["pyg"].ratio == pytest.approx(right[1].time_s.median / right[0].time_s.median)
    assert (ours.status, ours.reason) == ("unsupported", "the dataset has 23 graphs only")
    assert (result.exit_code, result.status) == (0, "ok")
    assert files.load(CollateBench, tmp_path / "bench.json") == result


def test_a_wrong_batch_has_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = CSRBuilder.edge_index

    def swapped(self: CSRBuilder, edge_ptr: Tensor, picked: Picked, *rest: Any) -> Tensor:
        return right(self, edge_ptr, picked, *rest).flip(0)

    monkeypatch.setattr(CSRBuilder, "edge_index", swapped)
    result = run(some_graphs(), tmp_path, sizes=(4,))
    ours, of_pyg = result.rows
    assert (ours.status, ours.reason) == ("wrong", "edge_index of a batch differ from PyG's")
    assert (ours.time_s, ours.ratio) == (None, {"pyg": None})
    assert (of_pyg.status, result.exit_code) == ("ok", 3)


def test_what_cannot_be_timed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown loader 'pgy'; did you mean 'pyg'\?") as caught:
        run(some_graphs(), tmp_path, against=("pgy",), sizes=(0,))
    assert "a batch of 0 graphs is none" in str(caught.value)
    with pytest.raises(ConfigError, match=r"backend 'pyg' has no kernels; allowed: .*reference"):
        run(some_graphs(), tmp_path, backend="pyg")


def test_the_verb_prints_a_table_or_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load", lambda *_: some_graphs())
    common = ("bench", "collate", "--backend", "reference", "--batches", "4", "--out", tmp_path)
    done = commands.run(*common, "--csv", tmp_path / "rows.csv")
    assert done.code == 0
    assert "Batches of some graphs" in done.stdout
    assert "batch_size" in (tmp_path / "rows.csv").read_text()
    done = commands.run(*common, "--against", "pyg-list", "--json")
    assert [row["implementation"] for row in json.loads(done.stdout)["rows"]] == ["reference", "pyg-list"]


def test_options_of_others_are_refused(tmp_path: Path) -> None:
    for arguments, problem in (
        (("collate", "--widths", "8", "--heads", "2"), "bench collate has no --widths, --heads"),
        (("spmm", "--batches", "8"), "bench spmm has no --batches"),
        (("collate", "--graph", "synthetic:cora:0.05"), "synthetic cora x0.05 is a single graph"),
    ):
        done = commands.run("bench", *arguments)
        assert (done.code, done.stderr.startswith(f"gnnbench: {problem}")) == (2, True)
