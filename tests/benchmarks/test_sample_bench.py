"""Benchmarks of sampling: batches are of the graph before any time, which is per edge."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch_geometric.typing

from gnnbench import datasets, kinds
from gnnbench.backends import isplib
from gnnbench.benchmarks import draws
from gnnbench.benchmarks.draws import SampleBench
from gnnbench.benchmarks.records import Time
from gnnbench.errors import ConfigError
from gnnbench.report import page
from gnnbench.results import files
from gnnbench.results.schema import Ratio
from tests.support import commands, graphs, real_data

pytestmark = [
    pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built"),
    pytest.mark.usefixtures("brief"),
]


def dataset() -> datasets.NodeDataset:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    mask = torch.ones(nodes, dtype=torch.bool)
    x, y = torch.randn(nodes, 3), torch.zeros(nodes, dtype=torch.long)
    return datasets.NodeDataset("zoo", edge_index, x, y, mask, mask, mask, 2)


def run(out: Path, **options: Any) -> SampleBench:
    options = {"sizes": (4, 9), "fanouts": (3, -1), **options}
    return draws.sample(dataset(), out=out, **options)


def test_batches_are_timed_by_part_and_edge(tmp_path: Path) -> None:
    result = run(tmp_path)
    ours = [row for row in result.rows if row.implementation == "isplib"]
    assert [(row.batch_size, row.part) for row in ours] == [
        (size, part) for size in (4, 9) for part in draws.STAGES
    ]
    for row in ours:
        assert (row.status, row.reason) == ("ok", "")
        assert bool(row.edges) == (row.part != "gather")
        assert row.time_s
    others = [row for row in result.rows if row.implementation != "isplib"]
    assert all(row.status in ("ok", "unavailable") for row in others)  # as the machine has them
    assert all(row.reason for row in others if row.status == "unavailable")
    assert (result.exit_code, result.status) == (0, "ok")
    assert files.load(SampleBench, tmp_path / "bench.json") == result


def test_it_is_read_back_and_shown_as_a_page(tmp_path: Path) -> None:
    """With the gains of every part apart."""
    result = run(tmp_path, sizes=(4,), against=("pyg-lib",))
    found = kinds.load(tmp_path)
    assert found.model_dump() == result.model_dump()
    for row in result.rows:
        row.status, row.time_s = "ok", Time(median=1.0, low=1.0, high=1.0, samples=[[1.0]])
        row.ratio = {"pyg-lib": Ratio(ratio=2.0, low=1.5, high=2.5)} if row.implementation == "isplib" else {}
    result.rows[1].status, result.rows[0].ratio = "failed", {}  # pyg-lib in sampling, as no ratio is then measured
    section = type(found).of(result, tmp_path).section()
    assert section.verdict == ["isplib is faster than pyg-lib in 2 of 2 cases."]
    assert "--fanouts 3,-1 --against pyg-lib" in section.command
    assert "Sampled neighbourhoods of zoo" in page.html([found])


def test_pyg_lib_is_called_as_by_pyg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play its op by our sampler where it is not installed; whole rows make batches of equal sizes."""

    def neighbor_sample(colptr: torch.Tensor, row: torch.Tensor, seed: torch.Tensor, *how: Any) -> Any:
        drawn = isplib.Neighbors(colptr, row).sample(seed, how[0], key=1)
        return drawn.row, drawn.col, drawn.node, drawn.edge, drawn.num_nodes, drawn.num_edges

    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    monkeypatch.setattr(torch.ops, "pyg", SimpleNamespace(neighbor_sample=neighbor_sample))
    result = run(tmp_path, sizes=(4,), fanouts=(-1, 2), against=("pyg-lib",))
    ours, theirs = ([row for row in result.rows if row.implementation == name] for name in ("isplib", "pyg-lib"))
    assert {row.status for row in theirs} == {"ok"}, theirs
    assert [row.edges for row in theirs] == [row.edges for row in ours]
    assert all(row.ratio.keys() == {"pyg-lib"} for row in ours)


def test_types_are_drawn_from_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds are of the classified type; pyg-lib is played by our sampler, with PyG's names of relations."""
    typed: Any = real_data.load("synthetic:mag:0.001", datasets.roots())
    drawn_by = draws.Ours(typed, [3, -1]).neighbors

    def neighbor_sample(types: Any, relations: Any, colptr: Any, row: Any, seed: Any, *how: Any) -> Any:
        fanouts = {relation: how[0]["__".join(relation)] for relation in relations}
        drawn = drawn_by.sample(seed, fanouts, key=1)
        by_name = [{"__".join(key): value for key, value in each.items()} for each in drawn[1:4]]
        edges = {"__".join(key): value for key, value in drawn.num_edges.items()}
        return by_name[0], by_name[1], drawn.node, by_name[2], drawn.num_nodes, edges

    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    monkeypatch.setattr(torch.ops, "pyg", SimpleNamespace(hetero_neighbor_sample=neighbor_sample))
    papers = typed.nodes["paper"]
    result = draws.sample(typed, out=tmp_path, sizes=(papers,), fanouts=(-1, -1))
    ours, theirs, dgl = (
        [row for row in result.rows if row.implementation == name] for name in ("isplib", "pyg-lib", "dgl")
    )
    assert {row.status for row in (*ours, *theirs)} == {"ok"}, theirs
    assert {row.status for row in dgl} <= {"ok", "unavailable"}
    assert [row.edges for row in theirs] == [row.edges for row in ours]
    assert ours[0].edges
    with pytest.raises(ConfigError, match=f"give 1 to {papers}"):
        draws.sample(typed, out=tmp_path, sizes=(papers + 1,))


@pytest.mark.parametrize("wrong", ["row", "edge"])
def test_a_wrong_batch_has_no_time(tmp_path: Path, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = isplib.TypedNeighbors.sample

    def other(self: isplib.TypedNeighbors, *args: Any, **options: Any) -> Any:
        drawn = right(self, *args, **options)
        made = {
            key: own.flip(0) if wrong == "row" else own.clamp(max=1) for key, own in getattr(drawn, wrong).items()
        }
        return drawn._replace(**{wrong: made})

    monkeypatch.setattr(isplib.TypedNeighbors, "sample", other)
    result = run(tmp_path, against=())
    assert {row.status for row in result.rows} == {"wrong"}
    assert result.exit_code == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"against": ("dg",)}, "unknown sampler 'dg'; did you mean 'dgl'"),
        ({"fanouts": (3, -2)}, "a fanout is -2; give numbers from 0 up, or -1 for all"),
        ({"sizes": (10**6,)}, "a batch of 1000000 seeds of zoo is none; give 1 to"),
        ({"sizes": ()}, "give at least one batch size"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(tmp_path, **options)


def test_the_command(tmp_path: Path) -> None:
    options = ("--graph", "synthetic:cora:0.1", "--batches", "16", "--fanouts", "3,2", "--against", "pyg-lib")
    output = commands.run("bench", "sample", *options, "--out", tmp_path, "--json")
    assert output.code == 0, output.stderr
    assert {row["batch_size"] for row in json.loads(output.stdout)["rows"]} == {16}
    refused = commands.run("bench", "sample", "--widths", "16")
    assert refused.code == 2
    assert "bench sample has no --widths" in refused.stderr
