"""Synthetic graphs: counts of the presets, degrees, labels that can be learned, one graph per seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from gnnbench import datasets
from gnnbench.datasets import Roots, _disk, synthetic
from gnnbench.datasets import _describe as describe
from gnnbench.errors import DatasetError


def load(where: Roots, **keys: object) -> datasets.NodeDataset:
    return datasets.load(synthetic.Config(**keys), where)


@pytest.mark.parametrize(
    ("preset", "scale"),
    [("cora", 1), ("reddit", 0.005), ("ogbn-arxiv", 0.05), ("ogbn-products", 0.002), ("ogbn-proteins", 0.01)],
)
def test_counts_are_the_presets_and_edges_are_those_of_a_simple_undirected_graph(
    where: Roots, preset: str, scale: float
) -> None:
    dataset = load(where, preset=preset, scale=scale)
    shape, info = synthetic.PRESETS[preset], describe.info(dataset)
    assert info.nodes == round(shape.nodes * scale)
    possible = info.nodes * (info.nodes - 1) / 2
    assert info.edges == pytest.approx(min(shape.edges * scale, possible), rel=0.01)
    assert (info.features, info.outputs) == (shape.features, shape.classes)
    assert info.symmetric
    assert (info.self_loops, info.duplicate_edges) == (0, 0)
    assert [info.train, info.val, info.test] == [
        int(n * info.nodes / shape.nodes) for n in (shape.train, shape.val, shape.test)
    ]
    order = dataset.edge_index[0] * info.nodes + dataset.edge_index[1]
    assert bool((order.diff() > 0).all())
    assert "synthetic" in dataset.label


def test_degrees_follow_a_power_law_with_the_presets_mean_and_maximum(where: Roots) -> None:
    dataset = load(where, preset="ogbn-arxiv", scale=0.2)
    info = describe.info(dataset)
    assert info.degree_mean == pytest.approx(2_315_598 / 169_343, rel=0.01)
    cut = 13_161 * 0.2**0.5
    assert 0.7 * cut < info.degree_quantiles["1"] < 1.1 * cut
    assert info.isolated_nodes == 0
    degree = dataset.edge_index[1].bincount().numpy()
    tail = degree[degree >= 20]
    exponent = 1 + len(tail) / np.log(tail / 19.5).sum()  # Clauset, Shalizi & Newman 2009, equation 3.7
    assert exponent == pytest.approx(2.4, abs=0.15)


def test_homophily_is_the_share_of_edges_within_a_community(where: Roots) -> None:
    keys = {"preset": "cora", "nodes": 4_000, "edges": 60_000, "classes": 10}
    shares = {}
    for homophily in (0.0, 0.9):
        dataset = load(where, **keys, homophily=homophily)
        src, dst = dataset.y[dataset.edge_index]
        shares[homophily] = float((src == dst).float().mean())
    noise = synthetic.PRESETS["cora"].label_noise
    assert shares[0.9] == pytest.approx(0.9 * (1 - noise) ** 2, abs=0.03)
    assert shares[0.0] == pytest.approx(0.1, abs=0.04)


def test_neighbours_tell_the_label_better_than_a_nodes_own_features_but_not_perfectly(where: Roots) -> None:
    dataset = load(where, preset="ogbn-arxiv", scale=0.05)
    src, dst = dataset.edge_index

    def nearest_mean_accuracy(x: torch.Tensor) -> float:
        train, classes = dataset.train_mask, torch.arange(dataset.num_classes)
        means = torch.stack([x[train & (dataset.y == c)].mean(0) for c in classes])
        return dataset.score(-torch.cdist(x, means)[dataset.test_mask], dataset.y[dataset.test_mask])

    mixed = dataset.x.clone().index_add_(0, dst, dataset.x[src])
    mixed /= 1 + dst.bincount(minlength=dataset.num_nodes).unsqueeze(1)
    alone, together = nearest_mean_accuracy(dataset.x), nearest_mean_accuracy(mixed)
    assert 1.5 / dataset.num_classes < alone < 0.6
    assert alone + 0.2 < together < 0.9


def test_sparse_binary_features_and_multilabel_targets(where: Roots) -> None:
    assert describe.info(load(where, preset="cora")).feature_density == pytest.approx(0.0127, rel=0.05)
    proteins = load(where, preset="ogbn-proteins", scale=0.005)
    assert proteins.y.shape == (663, 112)
    assert proteins.metric == "micro-F1"
    assert 0.1 < float(proteins.y.mean()) < 0.2


def test_second_load_maps_the_same_files_which_writes_cannot_change(where: Roots) -> None:
    first = load(where, preset="cora")
    (folder,) = (where.cache / "synthetic").iterdir()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    features = first.x.clone()
    first.x.zero_()
    second = load(where, preset="cora")
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert torch.equal(second.x, features)
    assert [path.name for path in (where.cache / "synthetic").iterdir()] == [folder.name]  # no leftovers


def test_seed_and_nothing_else_decides_the_graph(tmp_path: Path) -> None:
    """Neither memory that is not written nor the number of threads, which is another in the second process."""
    code = (
        "import sys; from pathlib import Path; from gnnbench.datasets import synthetic; "
        "config = synthetic.Config(preset='ogbn-arxiv', scale=0.01); "
        "shape = synthetic.scaled(config, synthetic.PRESETS[config.preset]); "
        "synthetic.generate(shape, 0, Path(sys.argv[1]))"
    )
    folders = [tmp_path / name for name in ("threads", "same", "other")]
    for folder in folders:
        folder.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", code, str(folders[0])], env=environment, check=True)
    shape = synthetic.scaled(synthetic.Config(preset="ogbn-arxiv", scale=0.01), synthetic.PRESETS["ogbn-arxiv"])
    for seed, folder in enumerate(folders[1:]):
        synthetic.generate(shape, seed, folder)
    digests = [
        [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*.npy"))]
        for folder in folders
    ]
    assert digests[0] == digests[1]
    assert all(a != b for a, b in zip(digests[0], digests[2], strict=True))


@pytest.mark.parametrize(
    ("spec", "label"),
    [("synthetic:cora", "synthetic cora"), ("synthetic:reddit:0.002", "synthetic reddit x0.002")],
)
def test_specs_and_labels(where: Roots, spec: str, label: str) -> None:
    keys = datasets.parse(spec)
    assert datasets.load(synthetic.Config(**keys), where).label == label


def test_own_counts_show_in_the_label(where: Roots) -> None:
    assert load(where, preset="cora", nodes=500, edges=3_000).label == "synthetic cora, nodes 500, edges 3000"


def test_a_graph_denser_than_its_nodes_allow_is_cut_to_half_of_all_pairs(where: Roots) -> None:
    dataset = load(where, preset="reddit", nodes=130)
    assert dataset.edge_index.size(1) == 2 * (130 * 129 // 4)
    assert describe.info(dataset).duplicate_edges == 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"preset": "reddit", "scale": 1e-4},
            "23 nodes are too few for 41 classes; use a scale of at least 0.00053",
        ),
        ({"preset": "ogbn-proteins", "scale": 1e-9}, "1 nodes are too few"),
        ({"preset": "reddit", "scale": 1e6}, "GiB of memory, but"),
        ({"preset": "cora", "features": 10**12}, "GiB of disk, but"),
    ],
)
def test_impossible_sizes_are_refused_in_one_sentence(where: Roots, keys: dict, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        load(where, **keys)


@pytest.mark.parametrize(
    "keys", [{"preset": "redit"}, {"preset": "cora", "scale": 0}, {"preset": "cora", "scale": "x"}]
)
def test_impossible_keys_are_refused(keys: dict) -> None:
    with pytest.raises(ValidationError):
        synthetic.Config(**keys)


def test_full_disk_leaves_nothing_behind(where: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_disk, "save", full)
    with pytest.raises(DatasetError, match="No space left on device; set GNNBENCH_CACHE"):
        load(where, preset="cora")
    assert list((where.cache / "synthetic").iterdir()) == []
