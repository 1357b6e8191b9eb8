"""Sources and short names: real graphs have their published counts, and what does not fit is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from gnnbench import datasets, registry
from gnnbench.datasets import Roots
from gnnbench.datasets import _describe as describe
from gnnbench.errors import ConfigError, DatasetError
from tests.support.real_data import REAL, load, needs_data, snapshot

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
    assert (info.nodes, info.edges, info.features, info.outputs) == (nodes, edges, features, classes)
    assert info.symmetric
    assert sum(info.class_counts) + info.missing_targets == nodes
    if split is None:
        assert dataset.synthetic_parts == ["split"]
    else:
        assert [info.train, info.val, info.test] == split
        assert dataset.synthetic_parts == []
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
        ({"dataset_class": "FakeDataset", "args": {"task": "graph"}}, r"labels have shape \[1\], but must be"),
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
        ("nci1", "tudataset", {"name": "NCI1"}),
        ("yeast", "tudataset", {"name": "Yeast"}),
        ("tudataset:ptc_mr", "tudataset", {"name": "PTC_MR"}),
        ("TUDataset:New-1", "tudataset", {"name": "New-1"}),
        ("QM9", "pyg", {"dataset_class": "QM9", "args": {}}),
        ("synthetic:reddit:0.05", "synthetic", {"preset": "reddit", "scale": "0.05"}),
    ],
)
def test_short_names(spec: str, source: str, keys: dict) -> None:
    assert datasets.parse(spec) == {"source": source, **keys}
    registry.find("datasets", source).Config(**datasets.parse(spec))


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("corra", "; did you mean 'cora'?"),
        ("nci11", "; did you mean 'nci1'?"),
        ("ogbn-arxive", "; did you mean 'ogbn-arxiv'?"),
        ("synthetic:redit:0.1", "; did you mean 'synthetic:reddit'?"),
        ("Synthetic", "; allowed: synthetic:cifar10, synthetic:cluster, "),
    ],
)
def test_unknown_names_are_answered_with_a_near_one(spec: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"unknown dataset '{spec}'{hint}")):
        datasets.parse(spec)


def test_every_offer_can_be_asked_for(where: Roots) -> None:
    offers = datasets.listing(where)
    assert len({offer.spec for offer in offers}) == len(offers) > 25
    for offer in offers:
        assert datasets.parse(offer.spec)["source"] == offer.source
        registry.find("datasets", offer.source).Config(**datasets.parse(offer.spec))
        assert not offer.on_disk


def test_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNNBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("GNNBENCH_DATA", raising=False)
    assert datasets.roots() == Roots(tmp_path / "data", tmp_path)
    monkeypatch.setenv("GNNBENCH_DATA", "~/graphs")
    assert datasets.roots().raw == Path.home() / "graphs"
    assert datasets.roots(tmp_path / "mine").raw == tmp_path / "mine"


@pytest.fixture(autouse=True)
def _unchanged_seed() -> Iterator[None]:
    """Loading must not move torch's global generator, or a run's seed would not decide it."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)
