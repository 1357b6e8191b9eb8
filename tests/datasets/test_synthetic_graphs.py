"""Synthetic sets of graphs: sizes of the presets, tasks that can be learned, one set per seed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnbench import datasets
from gnnbench.datasets import GraphsDataset, Roots, synthetic_graphs
from gnnbench.datasets import _describe as describe
from gnnbench.errors import DatasetError
from tests.support.real_data import load

SCALES = {
    "pattern": 0.01,
    "cluster": 0.01,
    "mnist": 0.01,
    "cifar10": 0.005,
    "pascalvoc-sp": 0.01,
    "coco-sp": 0.001,
}


@pytest.fixture(scope="module")
def where(cache: Path) -> Roots:
    return Roots(cache / "data", cache / "cache")


def nodes_of(dataset: GraphsDataset) -> tuple[torch.Tensor, torch.Tensor]:
    """The graph of each node, and the ids of both ends of each edge among all nodes."""
    owner = torch.arange(dataset.num_graphs).repeat_interleave(dataset.graph_ptr.diff())
    first = dataset.graph_ptr[:-1].repeat_interleave(dataset.edge_ptr.diff())
    return owner, dataset.edge_index.long() + first


@pytest.mark.parametrize("preset", SCALES)
def test_sizes_are_those_of_the_presets(where: Roots, preset: str) -> None:
    dataset = load(f"synthetic:{preset}:{SCALES[preset]}", where)
    shape, info = synthetic_graphs.PRESETS[preset], describe.info(dataset)
    assert [info.train, info.val, info.test] == [
        round(n * SCALES[preset]) for n in (shape.train, shape.val, shape.test)
    ]
    assert info.nodes / info.graphs == pytest.approx(shape.nodes, rel=0.05)
    assert info.edges / info.graphs == pytest.approx(shape.edges, rel=0.08)
    assert (info.features, info.outputs, info.per_node) == (shape.features, shape.classes, shape.kind != "image")
    assert sum(info.class_counts) == (info.graphs if shape.kind == "image" else info.nodes)
    assert dataset.label == f"synthetic {preset} x{SCALES[preset]:g}"
    assert dataset.synthetic_parts == ["graphs", "features", "labels", "split"]
    _, edges = nodes_of(dataset)
    keys = edges[0] * dataset.num_nodes + edges[1]
    assert bool((keys.diff() > 0).all())  # ordered, and none twice
    assert not bool((edges[0] == edges[1]).any())
    if shape.kind == "image":
        assert bool((edges[0].bincount() == 8).all())
    else:
        reverse = (edges[1] * dataset.num_nodes + edges[0]).sort().values
        assert torch.equal(reverse, keys)


def test_neighbours_of_superpixels_are_the_nearest(where: Roots) -> None:
    dataset = load("synthetic:mnist:0.01", where)
    for graph in (0, 5):
        places = dataset.x[dataset.graph_ptr[graph] : dataset.graph_ptr[graph + 1], 1:]
        apart = torch.cdist(places, places).fill_diagonal_(torch.inf)
        expected = apart.topk(8, largest=False).indices.sort(1).values
        edges = dataset.edge_index[:, dataset.edge_ptr[graph] : dataset.edge_ptr[graph + 1]]
        assert torch.equal(edges[1].reshape(-1, 8).long(), expected)


def test_one_node_of_each_cluster_tells_its_number(where: Roots) -> None:
    dataset = load("synthetic:cluster:0.01", where)
    owner, edges = nodes_of(dataset)
    word = dataset.x.argmax(1)
    told = word > 0
    assert torch.equal(word[told] - 1, dataset.y[told])
    assert torch.equal(owner[told].bincount(), torch.full((dataset.num_graphs,), 6))
    same = dataset.y[edges[0]] == dataset.y[edges[1]]
    sizes = torch.zeros(dataset.num_graphs, 6).index_put_((owner, dataset.y), torch.ones(()), accumulate=True)
    inside = float((sizes * (sizes - 1)).sum())
    assert float(same.sum()) / inside == pytest.approx(0.55, abs=0.01)
    across = float((sizes.sum(1) * (sizes.sum(1) - 1)).sum()) - inside
    assert float((~same).sum()) / across == pytest.approx(0.25, abs=0.01)


def test_patterns_are_few_and_planted_whole(where: Roots) -> None:
    dataset = load("synthetic:pattern:0.01", where)
    owner, edges = nodes_of(dataset)
    assert torch.equal(owner[dataset.y == 1].bincount(), torch.full((dataset.num_graphs,), 20))
    within = (dataset.y[edges] == 1).all(0)
    counts = owner[edges[0, within]].bincount()
    signals = torch.zeros(dataset.num_graphs, 3).index_add_(0, owner, dataset.x * dataset.y.unsqueeze(1))
    kinds = {(*signal, count) for signal, count in zip(map(tuple, signals.tolist()), counts.tolist(), strict=True)}
    assert 50 < len(kinds) <= synthetic_graphs.PATTERNS < dataset.num_graphs


def accuracy_of_nearest_mean(x: torch.Tensor, y: torch.Tensor, train: torch.Tensor, test: torch.Tensor) -> float:
    means = torch.stack([x[train & (y == c)].mean(0) for c in range(int(y.max()) + 1)]).nan_to_num(1e6)
    return float((torch.cdist(x, means).argmin(1) == y)[test].float().mean())


def test_images_can_be_told_by_their_colours(where: Roots) -> None:
    dataset = load("synthetic:mnist:0.02", where)
    owner, _ = nodes_of(dataset)
    cell = (dataset.x[:, 1:].clamp(0, 0.999) * 4).long() @ torch.tensor([4, 1])
    shape = (dataset.num_graphs, 16)
    colours = torch.zeros(shape).index_put_((owner, cell), dataset.x[:, 0], accumulate=True)
    counts = torch.zeros(shape).index_put_((owner, cell), torch.ones(()), accumulate=True)
    parts = {
        split: torch.zeros(shape[0], dtype=torch.bool).index_fill_(0, i, True)
        for split, i in dataset.splits.items()
    }
    found = accuracy_of_nearest_mean(colours / counts.clamp(min=1), dataset.y, parts["train"], parts["test"])
    assert found > 0.5


def test_neighbours_tell_the_class_in_a_scene_better_than_own_features(where: Roots) -> None:
    dataset = load("synthetic:pascalvoc-sp:0.01", where)
    owner, edges = nodes_of(dataset)
    train = torch.isin(owner, dataset.splits["train"])
    test = ~train & (dataset.y > 0)
    mixed = dataset.x.clone().index_add_(0, edges[1], dataset.x[edges[0]])
    mixed /= 1 + edges[1].bincount(minlength=len(mixed)).unsqueeze(1)
    alone = accuracy_of_nearest_mean(dataset.x, dataset.y, train, test)
    together = accuracy_of_nearest_mean(mixed, dataset.y, train, test)
    assert alone > 2 / 21
    assert together > alone + 0.1


def test_seed_and_nothing_else_decides_the_graphs_which_are_kept(where: Roots) -> None:
    digests = []
    for seed in (0, 0, 1):
        dataset = load("synthetic:cluster:0.001", where, seed=seed)
        arrays = [getattr(dataset, name).numpy() for name in ("graph_ptr", "edge_ptr", "edge_index", "x", "y")]
        digests.append(hashlib.sha256(b"".join(map(np.ndarray.tobytes, arrays))).hexdigest())
    assert digests[0] == digests[1] != digests[2]
    on_disk = {offer.spec for offer in datasets.listing(where) if offer.on_disk}
    assert on_disk == set()  # at scale 1


def test_what_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"synthetic coco-sp x1000: generating it needs .* GiB of memory, but"):
        load("synthetic:coco-sp:1000", Roots(tmp_path, tmp_path))
    assert datasets.parse("synthetic:coco-sp:1000")["source"] == "synthetic_graphs"
