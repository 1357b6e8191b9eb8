"""Graphs as mapped arrays: what was written is read in place, and what is broken is told in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnbench import datasets
from gnnbench.datasets import MappedDataset, NodeDataset, Roots, mapped
from gnnbench.datasets._kinds import FACTS, MASKS
from gnnbench.errors import ConfigError, DatasetError
from gnnbench.graph import Graph
from tests.support import graphs
from tests.support.commands import run

CPU = torch.device("cpu")


def small(**changes: Any) -> NodeDataset:
    """A directed graph with loops, duplicates and isolated nodes."""
    edge_index, nodes, _ = graphs.zoo()["power law"]
    part = torch.arange(nodes) % 4
    fields: dict[str, Any] = {
        "name": "small",
        "edge_index": edge_index,
        "x": torch.randn(nodes, 3),
        "y": torch.arange(nodes) % 5,
        "num_classes": 5,
        **{name: part == place for place, name in enumerate(MASKS)},
    }
    return NodeDataset(**{**fields, **changes})


def read(folder: Path, where: Roots, **keys: Any) -> MappedDataset:
    dataset = datasets.load(mapped.Config(path=folder, **keys), where)
    assert isinstance(dataset, MappedDataset)
    return dataset


@pytest.mark.parametrize("multilabel", [False, True])
def test_what_is_read_is_what_was_written(where: Roots, tmp_path: Path, multilabel: bool) -> None:
    nodes = small().num_nodes
    labels = {"y": torch.randint(2, (nodes, 5)).float()} if multilabel else {}
    dataset = small(synthetic_parts=["labels"], notes=["a note"], **labels)
    mapped.write(dataset, tmp_path / "maps")
    again = read(tmp_path / "maps", where)
    for name in ("x", "y", *MASKS):
        assert torch.equal(getattr(again, name), getattr(dataset, name)), name
    for name in (*FACTS, "score", "num_edges", "num_nodes", "label"):
        assert getattr(again, name) == getattr(dataset, name), name
    graph, rows = dataset.graph(CPU), again.graph(CPU)
    assert torch.equal(rows.rowptr, graph.rowptr)
    assert torch.equal(rows.col, graph.col)
    assert "edge_index" not in vars(again)
    assert torch.equal(Graph.from_edge_index(again.edge_index, nodes).col, graph.col)
    changed = again.changed(x=again.x + 1)
    assert type(changed) is NodeDataset
    assert torch.equal(changed.edge_index, again.edge_index)


def test_the_metric_of_ogb_is_read_back(where: Roots, tmp_path: Path) -> None:
    nodes = small().num_nodes
    y = (torch.arange(nodes * 2).view(nodes, 2) % 3 == 0).float()
    mapped.write(small(y=y, num_classes=2, metric="rocauc"), tmp_path / "maps")
    again = read(tmp_path / "maps", where)
    assert (again.metric, again.score(y, y)) == ("rocauc", 1.0)
    with pytest.raises(DatasetError, match="the metric 'other' is not one of accuracy"):
        assert small(metric="other").score


def test_arrays_are_the_files_and_checked_once(
    where: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mapped.write(small(), tmp_path / "maps")
    checks: list[Path] = []
    check = mapped.check_rows
    monkeypatch.setattr(mapped, "check_rows", lambda folder, *rows: (checks.append(folder), check(folder, *rows)))
    dataset = read(tmp_path / "maps", where)
    read(tmp_path / "maps", where)
    assert len(checks) == 1
    for name in ("x", "col"):
        array = np.load(tmp_path / "maps" / f"{name}.npy", mmap_mode="r+")
        array[0] = 7
        array.flush()
        assert bool((getattr(dataset, name)[0] == 7).all())
    with pytest.raises(DatasetError, match=r"col\.npy: falls after edge|comes from node 7"):
        read(tmp_path / "maps", where)


def altered(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        array = np.load(folder / f"{name}.npy")
        made = change(array)
        np.save(folder / f"{name}.npy", array if made is None else made)

    return alter


def headed(**values: Any) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        path = folder / mapped.HEADER
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return alter


def truncated(folder: Path) -> None:
    path = folder / "col.npy"
    path.write_bytes(path.read_bytes()[:-4])


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "negative": (altered("col", lambda col: col.__setitem__(2, -1)), "col.npy: edge 2 comes from node -1"),
    "beyond": (altered("col", lambda col: col.__setitem__(2, 10**6)), "edge 2 comes from node 1000000, but there"),
    "falling": (altered("rowptr", lambda rowptr: rowptr.__setitem__(1, 10**6)), "rowptr.npy: falls at node 1"),
    "late": (altered("rowptr", lambda rowptr: rowptr.__setitem__(0, 1)), "rowptr.npy: runs from 1 to"),
    "truncated": (truncated, "col.npy: cannot be mapped: truncated or no array"),
    "shorter": (altered("y", lambda y: y[:-1]), "y.npy: holds int64 of shape"),
    "wider": (altered("col", lambda col: col.astype("int64")), "col.npy: holds int64 of shape"),
    "missing": (lambda folder: (folder / "x.npy").unlink(), "x.npy: cannot be mapped: No such file"),
    "no header": (lambda folder: (folder / mapped.HEADER).write_text("{"), "gnnbench.json: invalid json"),
    "another schema": (headed(schema_version=2), "gnnbench.json: schema_version: input should be 1"),
    "no arrays": (headed(arrays={}), "gnnbench.json: rowptr is not named"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_one_sentence(where: Roots, tmp_path: Path, name: str) -> None:
    alter, words = BROKEN[name]
    mapped.write(small(), tmp_path / "maps")
    alter(tmp_path / "maps")
    with pytest.raises(DatasetError) as error:
        read(tmp_path / "maps", where)
    assert words in str(error.value)
    assert str(error.value).endswith(mapped.AGAIN)
    assert "\n" not in str(error.value)


def test_shapes_go_together(where: Roots, tmp_path: Path) -> None:
    dataset = small()
    mapped.write(small(y=dataset.y[:-1]), tmp_path / "maps")
    with pytest.raises(DatasetError, match=r"y\.npy: has shape \[59\], but must have 60 rows"):
        read(tmp_path / "maps", where)


def test_every_edge_is_checked_whatever_the_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rowptr, col = torch.tensor([0, 0, 3, 4, 4, 8, 9]), torch.tensor([1, 3, 4, 0, 0, 2, 2, 5, 1], dtype=torch.int32)
    for chunk in (1, 2, 3, 4, 20):
        monkeypatch.setattr(mapped, "CHUNK", chunk)
        mapped.check_rows(tmp_path, rowptr, col)
        for edge in range(9):
            for wrong in (-1, 6):
                broken = col.clone()
                broken[edge] = wrong
                with pytest.raises(DatasetError, match=f"edge {edge} comes from node {wrong}"):
                    mapped.check_rows(tmp_path, rowptr, broken)
        for edge in (0, 1, 4, 6):  # which have another one behind them in their row that is not the same
            broken = col.clone()
            broken[[edge, edge + 1]] = col[[edge + 1, edge]]
            with pytest.raises(DatasetError, match=f"falls after edge {edge}, within a row"):
                mapped.check_rows(tmp_path, rowptr, broken)
        for node in range(1, 6):
            broken = rowptr.clone()
            broken[node] = 9 if rowptr[node] < 8 else 0
            with pytest.raises(DatasetError, match="falls at node"):
                mapped.check_rows(tmp_path, broken, col)


def test_what_would_copy_the_arrays_is_for_the_conversion(where: Roots, tmp_path: Path) -> None:
    mapped.write(small(), tmp_path / "maps")
    for key, value in {"to_undirected": True, "reorder": "degree", "normalize_features": True}.items():
        with pytest.raises(ConfigError, match=f"dataset.{key}: .* give the option to `gnnbench datasets convert`"):
            read(tmp_path / "maps", where, **{key: value})
    read(tmp_path / "maps", where, random_features=3)  # which is for graphs without any
    with pytest.raises(DatasetError, match="nowhere: there is no such folder"):
        read(Path("nowhere"), where)


def test_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "maps"
    convert = ("datasets", "convert", "synthetic:cora:0.05", "--out")
    output = run(*convert, folder, "--set", "dataset.to_undirected=true")
    assert output.code == 0, output.stderr
    assert "is a dataset now" in " ".join(output.stdout.split())
    assert [*folder.parent.iterdir()] == [folder]
    for spec in (str(folder), f"{folder}/"):
        assert datasets.parse(spec) == {"source": "mapped", "path": spec}
        facts = run("datasets", "info", spec, "--json")
        assert json.loads(facts.stdout)["nodes"] == 135
    (tmp_path / "new" / "other").mkdir()
    (tmp_path / "new" / "other" / mapped.HEADER).write_text("{}")
    offers = json.loads(run("datasets", "--data-root", tmp_path / "new", "--json").stdout)
    assert [(offer["nodes"], offer["where"]) for offer in offers if offer["source"] == "mapped"] == [
        (135, str(folder))
    ]
    refused = run(*convert, folder)
    assert (refused.code, refused.stdout) == (2, "")
    assert "exists and is not an empty folder; give another --out" in refused.stderr
    links = run(*convert, tmp_path / "links", "--set", "dataset.task=links")
    assert "has links to predict, which such arrays do not hold" in links.stderr
    (tmp_path / "file").write_text("")
    assert "cannot be written: Not a directory" in run(*convert, tmp_path / "file" / "maps").stderr
    truncated(folder)
    broken = run("datasets", "info", str(folder))
    assert (broken.code, broken.stdout) == (2, "")
    assert "truncated" in broken.stderr
