"""Sources, roots and the checks they share: real counts, read-only roots, downloads, broken and stale files."""

from __future__ import annotations

import dataclasses
import gzip
import os
import shutil
import socket
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnbench import datasets, describe, registry
from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, Roots, _cache, _prepare, _raw
from gnnbench.errors import ConfigError, DatasetError

REAL = Path(os.environ.get("GNNBENCH_DATA", "/nonexistent"))
needs_data = pytest.mark.skipif(not REAL.is_dir(), reason="GNNBENCH_DATA is not set")


def config(spec: str, **keys: Any) -> DatasetConfig:
    section = datasets.parse(spec) | keys
    found: DatasetConfig = registry.find("datasets", section["source"]).Config(**section)
    return found


def load(spec: str, where: Roots, **keys: Any) -> NodeDataset:
    return datasets.load(config(spec, **keys), where)


def snapshot(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def where(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "data", tmp_path / "cache")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("network is unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


# What the README of the data says, and how many split sizes are published.
COUNTS = {
    "cora": (2_708, 10_556, 1_433, 7, [140, 500, 1_000]),
    "citeseer": (3_327, 9_104, 3_703, 6, [120, 500, 1_000]),
    "pubmed": (19_717, 88_648, 500, 3, [60, 500, 1_000]),
    "amazon-photo": (7_650, 238_162, 745, 8, None),
    "Amazon:Computers": (13_752, 491_722, 767, 10, None),
    "AttributedGraphDataset:BlogCatalog": (5_196, 343_486, 8_189, 6, None),
    "tolokers": (11_758, 1_038_000, 10, 2, [5_879, 2_939, 2_940]),
    "LINKXDataset:johnshopkins55": (5_180, 373_172, 2_406, 2, None),
}


@needs_data
@pytest.mark.parametrize("spec", COUNTS)
def test_real_graphs_have_their_published_counts(cache: Path, spec: str) -> None:
    before = snapshot(REAL)
    dataset = load(spec, Roots(REAL, cache))
    nodes, edges, features, classes, split = COUNTS[spec]
    info = describe.info(dataset)
    assert (info.nodes, info.edges, info.features, info.classes) == (nodes, edges, features, classes)
    assert info.symmetric
    assert sum(info.class_counts) + info.unlabelled == nodes
    if split is None:
        assert dataset.made_up == ["split"]
    else:
        assert [info.train, info.val, info.test] == split
        assert dataset.made_up == []
    assert snapshot(REAL) == before


@needs_data
def test_snap_graphs_need_features_and_labels(cache: Path) -> None:
    where = Roots(REAL, cache)
    with pytest.raises(DatasetError, match=r"no node features; .* --set dataset\.random_features=128"):
        load("wiki-vote", where)
    with pytest.raises(DatasetError, match=r"no labels; .* --set dataset\.random_labels=8"):
        load("wiki-vote", where, random_features=4)
    dataset = load("wiki-vote", where, random_features=4, random_labels=3)
    assert dataset.label == "SNAPDataset:wiki-vote (features, labels, split synthetic)"
    info = describe.info(dataset)
    assert (info.nodes, info.edges, info.degree_quantiles["1"], info.max_out_degree) == (7_115, 103_689, 457, 893)


@needs_data
def test_split_index_chooses_among_splits(cache: Path) -> None:
    first, second = (load("tolokers", Roots(REAL, cache), split_index=i) for i in (0, 1))
    assert not torch.equal(first.train_mask, second.train_mask)
    with pytest.raises(DatasetError, match="has 10 splits; split_index 10 is not below that"):
        load("tolokers", Roots(REAL, cache), split_index=10)


@needs_data
def test_arxiv_without_features_names_the_option_and_loads_with_it(cache: Path) -> None:
    where, original = Roots(REAL, cache), torch.load
    with pytest.raises(DatasetError, match=r"node-feat\.csv\.gz is missing.*--set dataset\.random_features=128"):
        load("ogbn-arxiv", where)
    dataset = load("ogbn-arxiv", where, random_features=16)
    assert dataset.label == "ogbn-arxiv (features synthetic)"
    assert (dataset.num_nodes, dataset.edge_index.size(1)) == (169_343, 1_166_243)
    masks = (dataset.train_mask, dataset.val_mask, dataset.test_mask)
    assert [int(mask.sum()) for mask in masks] == [90_941, 29_799, 48_603]
    right = torch.nn.functional.one_hot(dataset.y, 40).float()
    assert dataset.score(right, dataset.y) == 1.0
    assert dataset.score(right[:, torch.arange(40) - 1], dataset.y) == 0.0
    undirected = load("ogbn-arxiv", where, random_features=16, to_undirected=True)
    assert undirected.edge_index.size(1) == 2_315_598
    assert torch.load is original


def copy_real(folder: str, where: Roots) -> Path:
    shutil.copytree(REAL / folder, where.raw / folder)
    for path in where.raw.rglob("*"):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return where.raw / folder


@needs_data
@pytest.mark.usefixtures("offline")
def test_a_root_without_write_permission_is_read_and_never_written(where: Roots) -> None:
    copy_real("Planetoid/Cora", where)
    folders = [where.raw, *(path for path in where.raw.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        before = snapshot(where.raw)
        assert load("cora", where).num_nodes == 2_708
        with pytest.raises(DatasetError, match=f"put its files into {where.cache}"):
            load("citeseer", where)
        assert snapshot(where.raw) == before
    finally:
        for folder in folders:
            folder.chmod(0o755)


@needs_data
@pytest.mark.parametrize(
    ("spec", "file"),
    [
        ("cora", "Planetoid/Cora/raw/ind.cora.allx"),
        ("cora", "Planetoid/Cora/raw/ind.cora.graph"),
        ("amazon-photo", "Amazon/Photo/raw/amazon_electronics_photo.npz"),
        ("tolokers", "Heterophilous/tolokers/raw/tolokers.npz"),
        ("johnshopkins55", "LINKX/johnshopkins55/raw/data.mat"),
        ("wiki-vote", "SNAP/wiki-vote/raw/wiki-Vote.txt.gz"),
        ("blogcatalog", "AttributedGraph/blogcatalog/raw/attrs.npz"),
        ("ogbn-arxiv", "ogb/ogbn_arxiv/raw/node-label.csv.gz"),
        ("ogbn-arxiv", "ogb/ogbn_arxiv/split/time/valid.csv.gz"),
    ],
)
def test_a_truncated_file_is_named_and_replacing_it_helps(where: Roots, spec: str, file: str) -> None:
    copy_real(str(Path(file).parents[1 if "raw" in file else 2]), where)
    broken, options = where.raw / file, {"random_features": 2, "random_labels": 2}
    content = broken.read_bytes()
    broken.write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(DatasetError, match=f"{broken}: cannot be read") as caught:
        load(spec, where, **options)
    assert "\n" not in str(caught.value)
    broken.write_bytes(content)
    assert load(spec, where, **options).num_nodes > 2_000


@needs_data
def test_a_test_index_cut_short_is_noticed_by_its_count(where: Roots) -> None:
    raw = copy_real("Planetoid/Cora", where) / "raw"
    lines = (raw / "ind.cora.test.index").read_text().splitlines()
    (raw / "ind.cora.test.index").write_text("\n".join(lines[:700]))
    with pytest.raises(DatasetError, match=f"{raw}: Cora has 700 test nodes instead of the published 1,000"):
        load("cora", where)


def tolokers(path: Path, nodes: int = 8) -> None:
    """A tiny file in the layout of HeterophilousGraphDataset."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = np.arange(nodes)
    masks = {f"{part}_masks": np.tile(ids % 3 == i, (2, 1)) for i, part in enumerate(("train", "val", "test"))}
    np.savez(
        path,
        node_features=np.ones((nodes, 3), np.float32),
        node_labels=ids % 2,
        edges=np.stack([ids, np.roll(ids, 1)], 1),
        **masks,
    )


def test_changed_raw_files_are_not_served_stale(where: Roots) -> None:
    path = where.raw / "Heterophilous" / "tolokers" / "raw" / "tolokers.npz"
    tolokers(path)
    dataset = load("tolokers", where)
    assert dataset.num_nodes == 8
    assert "8 nodes and 16 edges instead of the published 11,758 nodes" in dataset.notes[0]
    tolokers(path, nodes=9)
    assert load("tolokers", where).num_nodes == 9


@pytest.mark.parametrize("folder", ["HeterophilousGraphDataset/tolokers", "tolokers"])
def test_a_root_laid_out_by_pyg_itself_is_found_too(where: Roots, folder: str) -> None:
    tolokers(where.raw / folder / "raw" / "tolokers.npz")
    assert load("tolokers", where).num_nodes == 8


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("spec", "missing", "stand_in"),
    [
        ("cora", "ind.cora.x", "synthetic:cora"),
        ("reddit", "reddit_graph.npz", "synthetic:reddit"),
        ("ogbn-products", "raw/edge.csv.gz", "synthetic:ogbn-products"),
        ("tolokers", "tolokers.npz", "synthetic:cora"),
        ("soc-epinions1", "raw", "synthetic:cora"),
    ],
)
def test_what_cannot_be_downloaded_is_explained_in_one_sentence(
    where: Roots, spec: str, missing: str, stand_in: str
) -> None:
    for _ in range(2):  # the first failure leaves nothing that changes the second
        with pytest.raises(DatasetError) as caught:
            load(spec, where)
        message = str(caught.value)
        assert missing in message
        assert str(where.raw) in message
        assert f"put its files into {where.raw}" in message
        assert message.endswith(f"or use --dataset {stand_in}")
        assert "\n" not in message
    assert [path for path in where.raw.rglob("*") if path.is_file() or path.name.startswith(".")] == []


def test_a_download_is_kept_whole_or_not_at_all(where: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_geometric.datasets import HeterophilousGraphDataset

    def half(self: Any) -> None:
        (Path(self.raw_dir) / "tolokers.npz").write_bytes(b"half")
        raise ConnectionResetError("connection reset by peer")

    monkeypatch.setattr(HeterophilousGraphDataset, "download", half)
    with pytest.raises(DatasetError, match=r"downloading it failed .connection reset by peer"):
        load("tolokers", where)
    assert not list(where.raw.rglob("*.npz"))
    monkeypatch.setattr(HeterophilousGraphDataset, "download", lambda self: tolokers(Path(self.raw_paths[0])))
    assert load("tolokers", where).num_nodes == 8
    monkeypatch.setattr(HeterophilousGraphDataset, "download", half)
    assert load("tolokers", where).num_nodes == 8  # from disk
    assert [offer.on_disk for offer in describe.offers(where) if offer.spec == "tolokers"] == [True]


PROTEIN_EDGES = np.array([[0, 1], [1, 2], [2, 3], [0, 3], [4, 5]])


def write_csv(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in values)
    path.write_bytes(gzip.compress(text.encode()))


def proteins(folder: Path) -> np.ndarray:
    """A tiny archive in the layout of ogbn-proteins; returns its edge features."""
    features = np.round(np.random.default_rng(0).random((5, 8)), 3)
    write_csv(folder / "raw" / "edge.csv.gz", PROTEIN_EDGES)
    write_csv(folder / "raw" / "edge-feat.csv.gz", features)
    write_csv(folder / "raw" / "num-node-list.csv.gz", np.array([6]))
    write_csv(folder / "raw" / "num-edge-list.csv.gz", np.array([5]))
    write_csv(folder / "raw" / "node_species.csv.gz", np.full(6, 9606))
    write_csv(folder / "raw" / "node-label.csv.gz", np.arange(6 * 112).reshape(6, 112) % 5 % 2)
    for part, ids in (("train", [0, 1, 2]), ("valid", [3]), ("test", [4, 5])):
        write_csv(folder / "split" / "species" / f"{part}.csv.gz", np.array(ids))
    (folder / "RELEASE_v1.txt").write_text("")
    return features


def check_proteins(dataset: NodeDataset, features: np.ndarray) -> None:
    expected = np.zeros((6, 8))
    for (u, v), values in zip(PROTEIN_EDGES, features, strict=True):
        expected[u] += values
        expected[v] += values
    np.testing.assert_allclose(dataset.x.numpy(), expected, rtol=1e-6)
    assert dataset.edge_index.size(1) == 10
    assert (dataset.y.dtype, dataset.y.shape, dataset.num_classes) == (torch.float32, (6, 112), 112)
    assert dataset.made_up == []
    assert dataset.metric == "rocauc"
    assert dataset.score(dataset.y * 2 - 1, dataset.y) == 1.0
    assert dataset.score(1 - dataset.y * 2, dataset.y) == 0.0
    assert np.isnan(dataset.score(dataset.y[:1], dataset.y[:1]))


def test_proteins_get_node_features_from_their_edges(where: Roots, capfd: pytest.CaptureFixture[str]) -> None:
    features = proteins(where.raw / "ogb" / "ogbn_proteins")
    check_proteins(load("ogbn-proteins", where), features)
    assert capfd.readouterr() == ("", "")


def test_an_ogb_folder_without_its_release_mark_asks_nothing(
    where: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = proteins(where.raw / "ogbn_proteins")
    (where.raw / "ogbn_proteins" / "RELEASE_v1.txt").unlink()
    monkeypatch.setattr("sys.stdin", None)
    check_proteins(load("ogbn-proteins", where), features)


def test_ogb_archives_are_downloaded_and_unpacked(where: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    from ogb.nodeproppred import dataset_pyg

    features = proteins(where.cache / "proteins")

    def download_url(url: str, folder: str) -> str:
        path = Path(folder) / Path(url).name
        with zipfile.ZipFile(path, "w") as archive:
            for file in (where.cache / "proteins").rglob("*"):
                archive.write(file, file.relative_to(where.cache))
        return str(path)

    monkeypatch.setattr(dataset_pyg, "download_url", download_url)
    check_proteins(load("ogbn-proteins", where), features)
    assert (where.raw / "ogb" / "ogbn_proteins" / "raw" / "edge.csv.gz").is_file()
    assert [path.name for path in (where.raw / "ogb").iterdir()] == ["ogbn_proteins"]


def test_only_files_of_the_dataset_are_unpickled(where: Roots, tmp_path: Path) -> None:
    from gnnbench.datasets import ogb

    inside, outside = where.cache / "in.pt", tmp_path / "out.pt"
    where.cache.mkdir()
    for path in (inside, outside):
        torch.save(Path("an object"), path)
    with ogb._trusting(where.cache):
        assert torch.load(inside) == Path("an object")
        with pytest.raises(Exception, match="Weights only load failed"):
            torch.load(outside)
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(inside)


def test_graphs_of_several_types_are_refused(where: Roots) -> None:
    with pytest.raises(DatasetError, match="ogbn-mag has several node and edge types"):
        load("ogbn-mag", where)


def test_generated_pyg_graphs_are_called_synthetic_and_seeded(where: Roots) -> None:
    first, again, other = (load("FakeDataset", where, seed=seed) for seed in (0, 0, 1))
    assert first.label == "synthetic FakeDataset"
    assert torch.equal(first.edge_index, again.edge_index)
    assert not torch.equal(first.x[:50], other.x[:50])
    assert load("KarateClub", where).label == "KarateClub"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"dataset_class": "Amazn"}, "PyG has no dataset 'Amazn'; did you mean 'Amazon'?"),
        ({"dataset_class": "Amazon", "args": {"name": "Books"}}, "refuses the arguments .name='Books'."),
        ({"dataset_class": "Amazon", "args": {"nme": "Photo"}}, "refuses the arguments"),
        ({"dataset_class": "FakeDataset", "args": {"num_graphs": 2}}, "holds 2 graphs; gnnbench trains on one"),
        ({"dataset_class": "FakeHeteroDataset"}, "a graph of several node or edge types"),
        ({"dataset_class": "FakeDataset", "args": {"task": "graph"}}, "has 1 labels, but"),
    ],
)
def test_pyg_classes_that_do_not_fit_are_refused(where: Roots, keys: dict, message: str) -> None:
    from gnnbench.datasets import pyg

    with pytest.raises(DatasetError, match=message) as caught:
        datasets.load(pyg.Config(**keys), where)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "source", "keys"),
    [
        ("Cora", "planetoid", {"name": "cora"}),
        ("reddit2", "reddit", {"name": "reddit2"}),
        ("OGBN_arxiv", "ogb", {"name": "ogbn-arxiv"}),
        ("Tolokers", "pyg", {"dataset_class": "HeterophilousGraphDataset", "args": {"name": "Tolokers"}}),
        ("Coauthor:CS", "pyg", {"dataset_class": "Coauthor", "args": {"name": "CS"}}),
        ("Flickr", "pyg", {"dataset_class": "Flickr", "args": {}}),
        ("KarateClub", "pyg", {"dataset_class": "KarateClub", "args": {}}),
        ("synthetic:reddit:0.05", "synthetic", {"preset": "reddit", "scale": "0.05"}),
    ],
)
def test_short_names(spec: str, source: str, keys: dict) -> None:
    assert datasets.parse(spec) == {"source": source, **keys}
    config(spec)


@pytest.mark.parametrize(
    ("spec", "hint"), [("corra", "'cora'"), ("ogbn-arxive", "'ogbn-arxiv'"), ("synthetic:redit", None)]
)
def test_unknown_names_are_answered_with_a_near_one(spec: str, hint: str | None) -> None:
    if hint is None:
        with pytest.raises(ValueError, match=r"unknown preset 'redit'; did you mean 'reddit'\?"):
            config(spec)
        return
    with pytest.raises(ConfigError, match=f"unknown dataset '{spec}'; did you mean {hint}?"):
        datasets.parse(spec)


def test_every_offer_can_be_asked_for(where: Roots) -> None:
    offers = describe.offers(where)
    assert len({offer.spec for offer in offers}) == len(offers) > 25
    for offer in offers:
        assert datasets.parse(offer.spec)["source"] == offer.source
        config(offer.spec)
        assert not offer.on_disk


def test_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("GNNBENCH_DATA", raising=False)
    assert datasets.roots() == Roots(tmp_path / "data", tmp_path)
    monkeypatch.setenv("GNNBENCH_DATA", "~/graphs")
    assert datasets.roots().raw == Path.home() / "graphs"
    assert datasets.roots(tmp_path / "mine").raw == tmp_path / "mine"


def ring(nodes: int = 6, **fields: Any) -> NodeDataset:
    """A small complete dataset; `fields` replace its own."""
    ids = torch.arange(nodes)
    whole = NodeDataset(
        "ring",
        torch.stack([ids, ids.roll(1)]),
        torch.ones(nodes, 2),
        ids % 2,
        ids < 2,
        ids == 2,
        ids > 2,
        2,
        **_prepare.plain_metric(False),
    )
    return dataclasses.replace(whole, **fields)


BROKEN = {
    "no edges": ({"edge_index": torch.zeros(2, 0, dtype=torch.long)}, "ring has no edges"),
    "edge out of range": ({"edge_index": torch.tensor([[0, 6], [1, 0]])}, "edge index 6 is out of range.*0 to 5"),
    "negative edge": ({"edge_index": torch.tensor([[0, -3], [1, 0]])}, "edge index -3 is out of range"),
    "wrong shape": ({"edge_index": torch.zeros(3, 4, dtype=torch.long)}, r"shape \[3, 4\]"),
    "one node": ({"x": torch.ones(1, 2)}, "ring has 1 node; "),
    "NaN": ({"x": torch.tensor([[1.0], [2], [float("nan")], [0], [0], [0]])}, "features of node 2 hold NaN"),
    "infinity": ({"x": torch.tensor([[1.0], [2], [0], [0], [0], [-torch.inf]])}, "features of node 5 hold NaN"),
    "labels above": (
        {"y": torch.tensor([0, 1, 2, 0, 0, 0])},
        "label 2 is outside the range of its 2 classes, 0 to 1",
    ),
    "labels below": ({"y": torch.tensor([0, 1, -5, 0, 0, 0])}, "label -5 is outside"),
    "no features": ({"x": torch.ones(6, 0)}, r"--set dataset\.random_features=128"),
    "no labels": ({"y": torch.full((6,), -1)}, r"--set dataset\.random_labels=8"),
    "empty training split": ({"train_mask": torch.zeros(6, dtype=torch.bool)}, "the training split is empty"),
    "unlabelled training split": ({"y": torch.tensor([-1, -1, 0, 1, 0, 1])}, "the training split is empty"),
    "leaking split": ({"test_mask": torch.ones(6, dtype=torch.bool)}, "make them disjoint"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_datasets_unfit_for_training_are_refused(case: str) -> None:
    fields, message = BROKEN[case]
    with pytest.raises(DatasetError, match=message) as caught:
        _prepare.finish(ring(**fields), DatasetConfig(source="test"))
    assert "\n" not in str(caught.value)


def test_too_many_random_features_are_refused_before_the_memory_is_gone() -> None:
    with pytest.raises(DatasetError, match=r"GiB are free; lower dataset\.random_features"):
        _prepare.finish(ring(x=torch.ones(6, 0)), DatasetConfig(source="test", random_features=10**12))


def test_seeded_split_takes_the_shares_of_labelled_nodes() -> None:
    none = torch.zeros(100, dtype=torch.bool)
    y = (torch.arange(100) % 2).masked_fill_(torch.arange(100) < 10, -1)
    masks = dict.fromkeys(_prepare.PARTS, none)
    split = {"train_share": 0.5, "val_share": 0.1}
    first, again, other = (
        _prepare.finish(ring(100, y=y, **masks), DatasetConfig(source="test", seed=seed, **split))
        for seed in (0, 0, 1)
    )
    sizes = [int(getattr(first, part).sum()) for part in _prepare.PARTS]
    assert sizes == [45, 9, 36]
    assert not bool((first.train_mask & first.val_mask | first.train_mask & first.test_mask).any())
    assert not bool((first.train_mask | first.val_mask | first.test_mask)[:10].any())
    assert torch.equal(first.train_mask, again.train_mask)
    assert not torch.equal(first.train_mask, other.train_mask)
    assert first.label == "ring (split synthetic)"


def test_options_never_write_to_the_tensors_they_are_given() -> None:
    dataset = ring(x=torch.tensor([[1.0, 3], [0, 0], [2, 2], [4, 0], [1, 1], [0, 5]]))
    kept = {name: value.clone() for name, value in vars(dataset).items() if isinstance(value, Tensor)}
    given = {name: getattr(dataset, name) for name in kept}
    done = _prepare.finish(dataset, DatasetConfig(source="test", normalize_features=True, to_undirected=True))
    assert all(torch.equal(given[name], value) for name, value in kept.items())
    assert done.x.tolist() == [[0.25, 0.75], [0, 0], [0.5, 0.5], [1, 0], [0.5, 0.5], [0, 1]]
    assert done.edge_index.size(1) == 12
    assert describe.info(done).symmetric


def test_metrics_against_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    generator = torch.Generator().manual_seed(0)
    logits, y = torch.randn(50, 4, generator=generator), (torch.rand(50, 4, generator=generator) < 0.3).float()
    assert _prepare.micro_f1(logits, y) == pytest.approx(f1_score(y, logits > 0, average="micro"))
    assert _prepare.accuracy(torch.eye(3), torch.tensor([0, 1, 1])) == pytest.approx(2 / 3)
    assert np.isnan(_prepare.accuracy(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)))
    assert np.isnan(_prepare.micro_f1(-torch.ones(2, 2), torch.zeros(2, 2)))


def test_info_counts_a_graph_drawn_by_hand() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 3, 0, 0, 0], [1, 0, 2, 1, 3, 4, 4, 2]])  # a loop at 3, 0-4 twice, 5 alone
    y = torch.tensor([0, 1, 1, -1, 0, 1])
    info = describe.info(ring(edge_index=edges, y=y, x=torch.eye(6)))
    assert (info.nodes, info.edges, info.features, info.classes) == (6, 8, 6, 2)
    assert (info.self_loops, info.duplicate_edges, info.isolated_nodes) == (1, 1, 1)
    assert not info.symmetric
    assert info.degree_quantiles == {"0": 0, "0.25": 1, "0.5": 1, "0.75": 2, "0.9": 2, "0.99": 2, "1": 2}
    assert [(b.low, b.high, b.nodes) for b in info.degree_histogram] == [(0, 0, 1), (1, 1, 2), (2, 3, 3)]
    assert info.max_out_degree == 4
    assert (info.class_counts, info.unlabelled) == ([2, 3], 1)
    assert info.feature_density == pytest.approx(1 / 6)
    assert (info.edge_index_bytes, info.feature_bytes) == (2 * 8 * 8, 6 * 6 * 4)


def test_cache_is_built_once_whole_and_says_when_it_cannot_be_written(tmp_path: Path) -> None:
    calls: list[Path] = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "part").write_text("half")
        if len(calls) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _cache.built(tmp_path / "a" / "folder", build)
    assert list((tmp_path / "a").iterdir()) == []
    for _ in range(2):
        assert (_cache.built(tmp_path / "a" / "folder", build) / "part").read_text() == "half"
    assert len(calls) == 2
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"cannot be written: .*; set GNNBENCH_CACHE to another folder"):
        _cache.built(tmp_path / "file" / "folder", build)


def test_loaders_are_silent_and_missing_packages_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    with _raw.quiet():
        print("noise")
    assert capfd.readouterr() == ("", "")
    with (
        pytest.raises(DatasetError, match="thing needs a package that is not installed: No module named 'rdkit'"),
        _raw.reading("thing", [Path("file")]),
    ):
        raise ModuleNotFoundError("No module named 'rdkit'")


@pytest.fixture(autouse=True)
def _unchanged_seed() -> Iterator[None]:
    """Loading must not move torch's global generator, or a run's seed would not decide it."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
