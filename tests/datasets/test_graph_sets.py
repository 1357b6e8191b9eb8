"""Sets of many graphs: each is as PyG or ogb hand it out, graph by graph, with the splits of the literature."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from gnnbench import datasets
from gnnbench.datasets import GraphsDataset, Roots, _prepare_graphs, tudataset
from gnnbench.datasets import _describe as describe
from gnnbench.datasets._kinds import SPLITS
from gnnbench.errors import DatasetError
from tests.support.real_data import REAL, load, needs_data, snapshot
from tests.support.tables import write_csv


def graph(dataset: GraphsDataset, number: int) -> Data:
    """One graph, cut out of its set."""
    nodes = slice(*dataset.graph_ptr[number : number + 2].tolist())
    edges = slice(*dataset.edge_ptr[number : number + 2].tolist())
    return Data(
        x=dataset.x[nodes],
        edge_index=dataset.edge_index[:, edges],
        edge_attr=None if dataset.edge_attr is None else dataset.edge_attr[edges],
        y=dataset.y[nodes] if dataset.per_node else dataset.y[number : number + 1],
    )


def check_same(ours: Data, theirs: Data, x: Tensor | None = None) -> None:
    assert ours.edge_index.dtype == torch.int32
    assert ours.edge_index.tolist() == theirs.edge_index.tolist()
    assert torch.equal(ours.x, theirs.x if x is None else x)
    assert ours.y.flatten().tolist() == theirs.y.flatten().tolist()
    assert (ours.edge_attr is None) == (theirs.edge_attr is None)
    if ours.edge_attr is not None:
        assert ours.edge_attr.flatten().tolist() == theirs.edge_attr.flatten().tolist()


@needs_data
@pytest.mark.parametrize("spec", ["mutag", "enzymes", "imdb-binary"])
def test_real_sets_have_their_published_counts(cache: Path, spec: str) -> None:
    before = snapshot(REAL / "TUDataset")
    dataset = load(spec, Roots(REAL, cache))
    known, info = tudataset.KNOWN[spec], describe.info(dataset)
    assert (info.graphs, info.nodes, info.edges) == (known.graphs, known.nodes, known.edges)
    assert dataset.synthetic_parts == []
    if spec == "imdb-binary":
        degree = dataset.x.argmax(1).bincount(minlength=64)
        assert (int(dataset.x.sum()), int(degree[0])) == (info.nodes, 0)
        assert info.degree_quantiles["1"] == 135
        assert "one-hot in 64 columns" in info.notes[0]
    assert snapshot(REAL / "TUDataset") == before


@needs_data
def test_real_graphs_are_those_of_pyg(cache: Path, tmp_path: Path) -> None:
    from torch_geometric.datasets import TUDataset

    (tmp_path / "MUTAG").mkdir()
    (tmp_path / "MUTAG" / "raw").symlink_to(REAL / "TUDataset" / "MUTAG" / "raw")
    ours, theirs = load("mutag", Roots(REAL, cache)), TUDataset(str(tmp_path), "MUTAG")
    assert ours.num_graphs == len(theirs)
    for number, data in enumerate(theirs):
        check_same(graph(ours, number), data)


@needs_data
def test_ten_folds_test_every_graph_once_with_equal_shares_of_each_class(cache: Path) -> None:
    sets = [load("mutag", Roots(REAL, cache), fold=fold) for fold in range(10)]
    y = sets[0].y
    assert sorted(torch.cat([each.splits["test"] for each in sets]).tolist()) == list(range(188))
    for each, following in zip(sets, [*sets[1:], sets[0]], strict=True):
        assert sorted(torch.cat(list(each.splits.values())).tolist()) == list(range(188))
        assert torch.equal(each.splits["val"], following.splits["test"])
        assert each.label.startswith("MUTAG fold ")
    counts = torch.stack([y[each.splits["test"]].bincount(minlength=2) for each in sets])
    assert bool((counts.amax(0) - counts.amin(0) <= 1).all())
    other = load("mutag", Roots(REAL, cache), seed=1)
    assert not torch.equal(other.splits["test"], sets[0].splits["test"])
    with pytest.raises(ValidationError, match="less than 10"):
        load("mutag", Roots(REAL, cache), fold=10)


@needs_data
@pytest.mark.slow
def test_real_molhiv_has_its_counts_split_and_evaluator(cache: Path) -> None:
    dataset = load("ogbg-molhiv", Roots(REAL, cache))
    info = describe.info(dataset)
    assert (info.graphs, info.nodes, info.edges) == (41_127, 1_049_163, 2_259_376)
    assert (info.train, info.val, info.test, info.class_counts) == (32_901, 4_113, 4_113, [1_443])
    assert (info.features, info.edge_features, info.categories) == (9, 3, True)
    assert dataset.score(dataset.y * 2 - 1, dataset.y) == 1.0


def molecules(folder: Path) -> None:
    """Three molecules of two labels in the layout of OGB, one of whose labels is missing."""
    write_csv(folder / "raw" / "edge.csv.gz", np.array([[0, 1], [1, 2], [0, 1]]))
    write_csv(folder / "raw" / "num-node-list.csv.gz", np.array([3, 1, 2]))
    write_csv(folder / "raw" / "num-edge-list.csv.gz", np.array([2, 0, 1]))
    write_csv(folder / "raw" / "node-feat.csv.gz", np.arange(54).reshape(6, 9) % 2)
    write_csv(folder / "raw" / "edge-feat.csv.gz", np.array([[0, 0, 1], [1, 0, 0], [2, 1, 1]]))
    write_csv(folder / "raw" / "graph-label.csv.gz", np.array([[1.0, 0], [0, np.nan], [1, 1]]))
    for part, graph in (("train", 2), ("valid", 0), ("test", 1)):
        write_csv(folder / "split" / "scaffold" / f"{part}.csv.gz", np.array([graph]))
    (folder / "RELEASE_v1.txt").write_text("")


def test_molecules_of_ogb(where: Roots, capfd: pytest.CaptureFixture[str]) -> None:
    molecules(where.raw / "ogb" / "ogbg_molclintox")
    dataset = load("OGBG_molclintox", where)
    assert dataset.graph_ptr.tolist() == [0, 3, 4, 6]
    assert dataset.edge_ptr.tolist() == [0, 4, 4, 6]
    assert dataset.edge_index.tolist() == [[0, 1, 1, 2, 0, 1], [1, 0, 2, 1, 1, 0]]
    assert dataset.edge_attr.tolist()[:3] == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert (dataset.x.dtype, dataset.edge_attr.dtype, dataset.encoder) == (torch.int64, torch.int64, "ogb")
    assert (dataset.target, dataset.num_outputs, dataset.metric) == ("labels", 2, "rocauc")
    assert [ids.tolist() for ids in dataset.splits.values()] == [[2], [0], [1]]
    assert dataset.y.isnan().tolist() == [[False, False], [False, True], [False, False]]
    assert dataset.score(dataset.y.nan_to_num(), dataset.y) == 1.0
    assert np.isnan(dataset.score(dataset.y[:1], dataset.y[:1]))
    assert dataset.notes == ["1 of the 3 graphs have no edges"]
    assert describe.info(dataset).missing_targets == 1
    assert capfd.readouterr() == ("", "")


def drawn(nodes: int, features: int, *, per_node: bool, **others: Any) -> dict[str, Any]:
    """A random graph as benchmark archives hold it."""
    edges = 2 * nodes
    return {
        "x": torch.rand(nodes, features),
        "edge_index": torch.randint(nodes, (2, edges)),
        "y": torch.randint(2, (nodes,)) if per_node else torch.randint(2, (1,)),
        **{key: torch.rand(nodes if key == "pos" else edges, 2) for key in others},
    }


@pytest.mark.parametrize("name", ["PATTERN", "MNIST"])
def test_benchmark_sets_are_their_three_splits(where: Roots, name: str) -> None:
    keys: dict[str, Any] = {} if name == "PATTERN" else {"pos": True, "edge_attr": True}
    splits = [
        [drawn(n, 3, per_node=name == "PATTERN", **keys) for n in sizes] for sizes in ([4, 2, 3], [5], [2, 6])
    ]
    path = where.raw / "GNNBenchmarkDataset" / name / "raw" / f"{name}_v2.pt"
    path.parent.mkdir(parents=True)
    torch.save(splits, path)
    dataset = load(name.lower(), where)
    assert [ids.tolist() for ids in dataset.splits.values()] == [[0, 1, 2], [3], [4, 5]]
    for number, raw in enumerate(raw for part in splits for raw in part):
        data = Data(**raw)
        positions = torch.cat([data.x, data.pos], 1) if name == "MNIST" else None
        check_same(graph(dataset, number), data, positions)
    assert (dataset.per_node, dataset.metric, dataset.synthetic_parts) == (name == "PATTERN", "accuracy", [])
    assert [offer.on_disk for offer in datasets.listing(where) if offer.spec == name.lower()] == [True]


def test_superpixels_to_segment(where: Roots) -> None:
    folder = where.raw / "LRGBDataset" / "pascalvoc-sp" / "raw"
    folder.mkdir(parents=True)
    for split in SPLITS:
        raw = drawn(5, 14, per_node=True, edge_attr=True)
        graphs = [(raw["x"], raw["edge_attr"], raw["edge_index"], raw["y"].tolist())]
        (folder / f"{split}.pickle").write_bytes(pickle.dumps(graphs * 2))
    dataset = load("PascalVOC-SP", where)
    check_same(graph(dataset, 5), Data(**raw))
    assert (dataset.num_outputs, dataset.per_node, dataset.metric) == (21, True, "macro F1")


@pytest.mark.parametrize(("spec", "target", "outputs"), [("func", "labels", 10), ("struct", "value", 11)])
def test_peptides_are_downloaded_and_have_ogbs_categories(
    where: Roots, monkeypatch: pytest.MonkeyPatch, spec: str, target: str, outputs: int
) -> None:
    from torch_geometric.datasets import lrgb

    y = torch.eye(outputs)[:1] if spec == "func" else torch.rand(1, outputs)
    graphs = [(torch.ones(3, 9).long(), torch.zeros(2, 3).long(), torch.tensor([[0, 1], [1, 2]]), y)]

    def download_url(url: str, folder: str) -> str:
        with zipfile.ZipFile(Path(folder) / "archive.zip", "w") as archive:
            for split in SPLITS:
                torch.save(graphs * 2, where.cache / "part.pt")
                archive.write(where.cache / "part.pt", f"peptides{spec}/{split}.pt")
        return str(Path(folder) / "archive.zip")

    where.cache.mkdir()
    monkeypatch.setattr(lrgb, "download_url", download_url)
    dataset = load(f"peptides-{spec}", where)
    assert (dataset.target, dataset.num_outputs, dataset.encoder) == (target, outputs, "ogb")
    assert (dataset.num_graphs, dataset.x.dtype, dataset.y.shape) == (6, torch.int64, (6, outputs))
    assert dataset.metric == ("ap" if spec == "func" else "negative MAE")
    assert (where.raw / "LRGBDataset" / f"peptides-{spec}" / "raw" / "val.pt").is_file()


class Listed(InMemoryDataset):
    """Graphs of a list, kept as PyG keeps them."""

    def __init__(self, graphs: list[Data]) -> None:
        super().__init__(None)
        self.data, self.slices = self.collate(graphs)


def test_unions_of_graphs_without_features_targets_or_company() -> None:
    ring = torch.tensor([[0, 1], [1, 0]])
    two = Listed([Data(edge_index=ring, num_nodes=2), Data(edge_index=ring, num_nodes=4)])
    union = _prepare_graphs.from_pyg("two", two)
    assert union.graph_ptr.tolist() == [0, 2, 6]
    assert (union.x.shape, union.y.tolist()) == ((6, 0), [-1, -1])
    one = Listed([Data(x=torch.ones(3, 2), edge_index=ring)])
    single = _prepare_graphs.from_pyg("one", one)
    assert (single.graph_ptr.tolist(), single.edge_ptr.tolist()) == ([0, 3], [0, 2])
    with pytest.raises(DatasetError, match="both: graph 2 has 2 features of nodes and 0 of edges"):
        _prepare_graphs.from_pyg("both", {"train": two, "val": one})


def test_words_to_predict_are_refused(where: Roots) -> None:
    with pytest.raises(DatasetError, match="ogbg-code2 asks for sequences of words"):
        load("ogbg-code2", where)


def test_commands_of_one_graph_refuse_many() -> None:
    two = torch.tensor([0, 2, 4])
    edges = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 0]], dtype=torch.int32)
    y = torch.tensor([0, 1])
    many = GraphsDataset("pairs", two, two, edges, torch.ones(4, 1), y, {}, "class", 2)
    with pytest.raises(DatasetError, match="pairs holds 2 graphs, but this command works on one; give it a"):
        datasets.single(many)
