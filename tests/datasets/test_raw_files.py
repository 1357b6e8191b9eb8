"""Raw files: read-only roots, truncated and changed files, downloads, and the archives of OGB."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnbench import datasets
from gnnbench.datasets import NodeDataset, Roots, _disk
from gnnbench.errors import DatasetError
from tests.support.real_data import REAL, load, needs_data, snapshot
from tests.support.tables import write_csv

PLANETOID = ("tx", "allx", "y", "ty", "ally", "graph", "test.index")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("network is unreachable")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


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
    (raw / "ind.cora.test.index").write_text("\n".join([*lines[:700], ""]))
    with pytest.raises(DatasetError, match=f"{raw}: Cora has 700 test nodes instead of the published 1,000"):
        load("cora", where)


def tolokers(path: Path, nodes: int = 8, **others: Any) -> None:
    """A tiny file in the layout of HeterophilousGraphDataset, with other arrays in place of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = np.arange(nodes)
    masks = {f"{part}_masks": np.tile(ids % 3 == i, (2, 1)) for i, part in enumerate(("train", "val", "test"))}
    arrays = {
        "node_features": np.ones((nodes, 3), np.float32),
        "node_labels": ids % 2,
        "edges": np.stack([ids, np.roll(ids, 1)], 1),
        **masks,
    }
    np.savez(path, **(arrays | others))


@pytest.mark.parametrize(
    ("array", "shape", "message"),
    [
        ("node_labels", (0,), "raw: cannot be read as part of .*Tolokers"),
        ("node_labels", (8, 2, 2), r"Tolokers: labels have shape \[8, 2, 2\], but must be"),
        ("node_features", (8,), r"Tolokers: features have shape \[8\], but must be"),
        ("val_masks", (2, 3), r"Tolokers: val_mask has shape \[3\], but must be \[8\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(where: Roots, array: str, shape: tuple[int], message: str) -> None:
    """They can be read, so that PyG's class takes them."""
    tolokers(where.raw / "Heterophilous/tolokers/raw/tolokers.npz", **{array: np.zeros(shape)})
    with pytest.raises(DatasetError, match=message) as caught:
        load("tolokers", where)
    assert "\n" not in str(caught.value)


def test_changed_raw_files_are_not_served_stale(where: Roots) -> None:
    path = where.raw / "Heterophilous" / "tolokers" / "raw" / "tolokers.npz"
    tolokers(path)
    dataset = load("tolokers", where)
    assert dataset.num_nodes == 8
    assert "8 nodes, 16 edges instead of the published 11,758 nodes" in dataset.notes[0]
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
        ("mutag", "MUTAG_A.txt", "synthetic:mnist:0.02"),
        ("pattern", "PATTERN_v2.pt", "synthetic:pattern:0.1"),
        ("coco-sp", "train.pickle", "synthetic:coco-sp:0.01"),
        ("ogbg-molhiv", "raw/graph-label.csv.gz", "synthetic:mnist:0.02"),
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
    assert [offer.on_disk for offer in datasets.listing(where) if offer.spec == "tolokers"] == [True]


PROTEIN_EDGES = np.array([[0, 1], [1, 2], [2, 3], [0, 3], [4, 5]])


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
    assert dataset.synthetic_parts == []
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


class Payload:
    """An object whose pickle creates a file when it is read."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.made}",)


@pytest.mark.parametrize(
    ("spec", "folder", "files"),
    [
        ("cora", "Planetoid/Cora/raw", [f"ind.cora.{part}" for part in ("x", *PLANETOID)]),
        ("reddit", "Reddit/raw", ["reddit_data.npz", "reddit_graph.npz"]),
        ("Twitch:DE", "Twitch/DE/raw", ["DE.npz"]),
        ("tolokers", "Heterophilous/tolokers/raw", ["tolokers.npz"]),
        ("pattern", "GNNBenchmarkDataset/PATTERN/raw", ["PATTERN_v2.pt"]),
        ("pascalvoc-sp", "LRGBDataset/pascalvoc-sp/raw", [f"{part}.pickle" for part in ("val", "test", "train")]),
        ("peptides-func", "LRGBDataset/peptides-func/raw", [f"{part}.pt" for part in ("val", "test", "train")]),
        ("ogbn-proteins", "ogb/ogbn_proteins/split/species", ["split_dict.pt"]),
    ],
)
def test_code_in_a_data_file_is_never_run(
    where: Roots, tmp_path: Path, spec: str, folder: str, files: Any
) -> None:
    made = tmp_path / "made"
    if spec.startswith("ogb"):
        proteins(where.raw / "ogb" / "ogbn_proteins")
    (where.raw / folder).mkdir(parents=True, exist_ok=True)
    for file in files:
        path = where.raw / folder / file
        if path.suffix == ".npz":
            every = ("target", "features", "feature", "edges", "label", "node_features", "node_labels")
            np.savez(path, **{key: np.array([Payload(made)], dtype=object) for key in every})
        elif path.suffix == ".pt":
            torch.save(Payload(made), path)
        else:
            path.write_bytes(pickle.dumps(Payload(made)))
    with pytest.raises(DatasetError) as caught:
        load(spec, where)
    assert not made.exists()
    assert str(where.raw / folder) in str(caught.value)
    if spec not in ("reddit", "tolokers"):  # whose loaders have NumPy refuse every object
        assert "names the Python object posix.system" in str(caught.value)
        assert "fetch it again" in str(caught.value)
    assert pickle.loads(pickle.dumps(Path("an object"))) == Path("an object")


def test_arrays_in_files_are_read(where: Roots) -> None:
    folder = where.raw / "ogb" / "ogbn_proteins"
    proteins(folder)
    split = {part: np.array([number]) for number, part in enumerate(("train", "valid", "test"))}
    torch.save(split, folder / "split" / "species" / "split_dict.pt")
    assert load("ogbn-proteins", where).train_mask.tolist() == [True, *[False] * 5]


def test_loaders_are_silent_and_missing_packages_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    with _disk.quiet():
        print("noise")
    assert capfd.readouterr() == ("", "")
    with (
        pytest.raises(DatasetError, match="thing needs a package that is not installed: No module named 'rdkit'"),
        _disk.reading("thing", [Path("file")]),
    ):
        raise ModuleNotFoundError("No module named 'rdkit'")
