"""Graphs of several types: from files of PyG and ogb, drawn, and what makes them unfit."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from gnnbench import datasets
from gnnbench.config import DatasetConfig
from gnnbench.datasets import Roots, TypedDataset, _describe, _kinds, _prepare
from gnnbench.errors import DatasetError
from tests.support.real_data import REAL, load, needs_data
from tests.support.tables import write_csv


@needs_data
def test_dblp(cache: Path) -> None:
    dataset: Any = load("dblp", Roots(REAL, cache), embedding=8)
    assert dataset.nodes == {"author": 4_057, "paper": 14_328, "term": 7_723, "conference": 20}
    assert (dataset.num_edges, dataset.target, dataset.num_classes) == (239_566, "author", 4)
    assert [int(mask.sum()) for mask in (dataset.train_mask, dataset.val_mask, dataset.test_mask)] == [
        400,
        400,
        3_257,
    ]
    assert (dataset.widths["conference"], dataset.embedding_bytes) == (8, 4 * 8 * 20)
    facts = _describe.info(dataset)
    assert facts.edge_types["paper to term"] == 85_810
    assert (facts.node_types["term"].features, sum(facts.class_counts)) == (50, 4_057)
    assert datasets.single(dataset).num_nodes == 26_128
    with pytest.raises(DatasetError, match="DBLP has no features of type conference; train vectors"):
        load("dblp", Roots(REAL, cache), embedding=0)


def test_synthetic_mag_is_seeded_and_has_every_relation_in_both_directions(where: Roots) -> None:
    first, again, other = (load("synthetic:mag:0.002", where, seed=seed) for seed in (0, 0, 1))
    assert isinstance(first, TypedDataset)
    assert torch.equal(first.edge_index, again.edge_index)
    assert not torch.equal(first.y, other.y)
    assert (len(first.relations), first.label) == (7, "synthetic mag x0.002")
    edges = first.relations["author", "writes", "paper"].edge_index
    back = first.relations["paper", "rev_writes", "author"].edge_index
    assert {*map(tuple, edges.T.tolist())} == {*map(tuple, back.flip(0).T.tolist())}
    src, dst = first.relations["paper", "cites", "paper"].edge_index
    within = (first.y[src] == first.y[dst]).double().mean()
    assert within > 10 * (first.y.bincount() / len(first.y)).square().sum()


def test_types_are_numbered_one_after_another(where: Roots) -> None:
    dataset: Any = load("synthetic:mag:0.001", where)
    graph = dataset.data.to_homogeneous(node_attrs=[], edge_attrs=[])
    assert torch.equal(dataset.edge_index, graph.edge_index)
    assert torch.equal(_kinds.edge_types(dataset.relations), graph.edge_type)


def test_mag_is_read_by_ogbs_own_loader(where: Roots) -> None:
    folder = where.raw / "ogb" / "ogbn_mag"
    raw, split = folder / "raw", folder / "split" / "time"
    counts = {"author": 3, "field_of_study": 2, "institution": 2, "paper": 5}
    (raw / "node-feat").mkdir(parents=True)
    sizes = f"{','.join(counts)}\n{','.join(map(str, counts.values()))}\n"
    (raw / "num-node-dict.csv.gz").write_bytes(gzip.compress(sizes.encode()))
    relations = {
        ("author", "affiliated_with", "institution"): [[0, 0], [1, 1], [2, 0]],
        ("author", "writes", "paper"): [[0, 0], [1, 4], [2, 2]],
        ("paper", "cites", "paper"): [[0, 1], [3, 2]],
        ("paper", "has_topic", "field_of_study"): [[0, 0], [1, 1]],
    }
    lines = "\n".join(",".join(relation) for relation in relations)
    (raw / "triplet-type-list.csv.gz").write_bytes(gzip.compress(lines.encode()))
    for relation, edges in relations.items():
        own = raw / "relations" / "___".join(relation)
        write_csv(own / "edge.csv.gz", np.array(edges))
        write_csv(own / "num-edge-list.csv.gz", np.array([len(edges)]))
        write_csv(own / "edge_reltype.csv.gz", np.zeros((len(edges), 1), int))
    x = np.random.default_rng(0).random((5, 128)).round(3)
    write_csv(raw / "node-feat" / "paper" / "node-feat.csv.gz", x)
    write_csv(raw / "node-feat" / "paper" / "node_year.csv.gz", np.full((5, 1), 2018))
    labels = gzip.compress(b"author,field_of_study,institution,paper\nFalse,False,False,True\n")
    for path in (raw / "nodetype-has-label.csv.gz", split / "nodetype-has-split.csv.gz"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(labels)
    write_csv(raw / "node-label" / "paper" / "node-label.csv.gz", np.arange(5).reshape(5, 1) * 80)
    for part, ids in (("train", [0, 1, 2]), ("valid", [3]), ("test", [4])):
        write_csv(split / "paper" / f"{part}.csv.gz", np.array(ids))
    (folder / "RELEASE_v2.txt").write_text("")

    dataset: Any = load("ogbn-mag", where)
    assert (dataset.nodes, dataset.target, dataset.num_classes) == (counts, "paper", 349)
    assert (dataset.y.tolist(), dataset.val_mask.nonzero().tolist()) == ([0, 80, 160, 240, 320], [[3]])
    assert dataset.widths == dict.fromkeys(counts, 128)
    np.testing.assert_allclose(dataset.x["paper"].numpy(), x, rtol=1e-6)
    assert dataset.relations["institution", "rev_affiliated_with", "author"].edge_index.tolist() == [
        [0, 1, 0],
        [0, 1, 2],
    ]
    assert dataset.score(torch.eye(349)[dataset.y], dataset.y) == 1.0
    assert [offer.on_disk for offer in datasets.listing(where) if offer.spec == "ogbn-mag"] == [True]


def graph(**changes: Any) -> HeteroData:
    data = HeteroData()
    data["a"].x, data["a"].y = torch.arange(12.0).view(4, 3), torch.tensor([0, 1, 0, 1])
    data["b"].x = torch.ones(3, 2)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 3], [2, 0]])
    data["b", "to", "a"].edge_index = torch.tensor([[0, 1], [2, 0]])
    for key, value in changes.items():
        *kind, name = key.split("__")
        data[tuple(kind) if len(kind) > 1 else kind[0]][name] = value
    return data


@pytest.mark.parametrize(
    ("changes", "keys", "reason"),
    [
        (
            {"a__of__c__edge_index": torch.zeros(2, 1).long()},
            {},
            "relation a of c is of type 'c', which is not there",
        ),
        (
            {"a__to__b__edge_index": torch.tensor([[4], [0]])},
            {},
            "relation a to b: an edge names node 4, which is not there; its 4 nodes of type a have ids 0 to 3",
        ),
        (
            {"a__to__b__edge_index": torch.zeros(3, 1).long()},
            {},
            "has edges of shape [3, 1], but they must be [2, E]",
        ),
        ({"c__num_nodes": 2}, {}, "no relation leads to nodes of type c; add the reverse of each with --set"),
        ({"b__x": torch.ones(3)}, {}, "features of type b have shape [3], but must be [3, F]"),
        ({"b__x": torch.full((3, 2), torch.nan)}, {}, "own, type b: the features of node 0 hold NaN or infinity"),
        ({"b__y": torch.zeros(3).long()}, {}, "a and b of its types of nodes have labels, and one is to be"),
        ({"a__y": torch.rand(4)}, {}, "type a: labels must be whole numbers, as they are classes"),
        (
            {"a__train_mask": torch.zeros(4).bool(), "a__val_mask": torch.ones(4).bool()},
            {},
            "the training split is",
        ),
        ({}, {"reorder": "rcm"}, "own has types of nodes, and dataset.reorder=rcm is of one; leave it out"),
        ({}, {"task": "links"}, "own has types of nodes, and dataset.task=links is of one; leave it out"),
    ],
)
def test_unfit_graphs_are_refused_in_one_sentence(
    changes: dict[str, Any], keys: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DatasetError) as refused:
        _prepare.finish_typed(_prepare.typed("own", graph(**changes)), DatasetConfig(source="own", **keys))
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_apply_to_every_type() -> None:
    data = graph()
    del data["b"].x
    data["b"].num_nodes = 3
    config = DatasetConfig(
        source="own", random_features=5, normalize_features=True, to_undirected=True, train_share=0.5
    )
    dataset = _prepare.finish_typed(_prepare.typed("own", data), config)
    assert dataset.label == "own (features, split synthetic)"
    assert dataset.widths == {"a": 3, "b": 5}
    assert len(dataset.relations) == 4
    assert int(dataset.train_mask.sum()) == 2
    torch.testing.assert_close(dataset.x["a"].sum(1), torch.ones(4))


def shop(folder: Path, **changes: str) -> Path:
    """Users, items and what connects them, in files."""
    files = {
        "user__buys__item.csv": "user,item\n0,0\n0,1\n1,2\n2,2\n4,0\n",
        "item__seen_after__item.txt": "0 1\n1 2\n",
        "item.y.csv": "0\n1\n0\n-1\n",
        "item.split.txt": "train\nval\ntest\nnone\n",
        "readme.txt": "no relation",
    }
    folder.mkdir()
    for name, text in (files | changes).items():
        (folder / name).write_text(text)
    np.save(folder / "user.x.npy", np.eye(6))
    return folder


def test_your_own_files_by_relation(tmp_path: Path, where: Roots) -> None:
    dataset: Any = load(f"{shop(tmp_path / 'shop')}/", where, to_undirected=True, embedding=4)
    assert (dataset.name, dataset.nodes, dataset.target) == ("shop", {"user": 6, "item": 4}, "item")
    assert dataset.relations["user", "buys", "item"].edge_index.tolist() == [[0, 0, 1, 2, 4], [0, 1, 2, 2, 0]]
    assert ("item", "rev_buys", "user") in dataset.relations
    assert (dataset.widths, dataset.y.tolist()) == ({"user": 6, "item": 4}, [0, 1, 0, -1])
    assert [mask.nonzero().tolist() for mask in (dataset.train_mask, dataset.test_mask)] == [[[0]], [[2]]]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"user__item.csv": "0,0"},
            "the name of a file of edges is SOURCE__NAME__DESTINATION, such as author",
        ),
        ({"shop.y.csv": "0"}, "shop.y.csv: is of type 'shop', which no relation has; types are item, user"),
        (
            {"user__likes__item.csv": "0,4"},
            "an edge names node 4, which is not there; its 4 nodes of type item have",
        ),
        ({"user__likes__item.csv": "0"}, "has 1 column; an edge list needs two, source and destination"),
        ({"item.split.txt": "train"}, "item.split.txt: a split has shape [1], but the graph has 4 nodes"),
        ({"user.split.txt": "train"}, "user.split.txt: splits nodes without labels; add user.y.csv, or remove it"),
        ({"item.y.txt": "0"}, "item.y.txt: is the second file of its kind beside item.y.csv; remove one"),
        ({"item.y.csv~": "0"}, "item.y.csv~: ends in .csv~, but may in .npy, .npz, .csv, .csv.gz"),
        ({"item.y.csv": "0.5\n1\n0\n1"}, "item.y.csv: labels must be whole numbers, as they are classes"),
    ],
)
def test_what_does_not_fit_in_your_own_files(
    changes: dict[str, str], reason: str, tmp_path: Path, where: Roots
) -> None:
    with pytest.raises(DatasetError) as refused:
        load(f"{shop(tmp_path / 'shop', **changes)}/", where, embedding=4)
    assert reason in str(refused.value)
