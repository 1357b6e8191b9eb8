"""Links: splits of a graph, negatives, metrics, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from gnnbench import config, datasets
from gnnbench.datasets import LinksDataset, NodeDataset, Roots, _metrics, _prepare, files
from gnnbench.errors import ConfigError, DatasetError
from tests.support.real_data import REAL, load, needs_data
from tests.support.tables import write_csv

CONFIG = config.DatasetConfig(source="test", task="links", random_features=4)


def loaded(where: Roots, **keys: Any) -> LinksDataset:
    section = {**datasets.parse("synthetic:cora:0.1"), "task": "links", **keys}
    batch = {"kind": "links"}
    wanted = config.validate({"dataset": section, "model": {"name": "gcn"}, "batch": batch}, "test")
    dataset = datasets.load(wanted.dataset, where)
    assert isinstance(dataset, LinksDataset)
    return dataset


def links(positives: dict[str, Any], edges: Any, **more: Any) -> LinksDataset:
    tensors = {part: torch.tensor(pairs).view(-1, 2).T for part, pairs in positives.items()}
    return LinksDataset("own", torch.tensor(edges).T, torch.ones(6, 2), tensors, **more)


def keys(pairs: torch.Tensor, nodes: int) -> set[int]:
    return {*(pairs[0] * nodes + pairs[1]).tolist()}


def test_an_undirected_graph_is_split_without_a_leak(where: Roots) -> None:
    dataset = loaded(where, train_share=0.8, val_share=0.1)
    nodes, messages = dataset.num_nodes, keys(dataset.edge_index, dataset.num_nodes)
    assert keys(dataset.edge_index.flip(0), nodes) == messages
    assert keys(dataset.positives["train"], nodes) <= messages
    sizes = [dataset.positives[part].size(1) for part in ("train", "val", "test")]
    assert sizes[0] / sum(sizes) == pytest.approx(0.8, abs=0.01)
    every = set[int]()
    for part in ("val", "test"):
        both = keys(dataset.positives[part], nodes) | keys(dataset.positives[part].flip(0), nodes)
        assert not both & messages
        every |= both
    for part in ("val", "test"):
        assert not keys(dataset.negatives[part], nodes) & (every | messages)
    again, other = (loaded(where, train_share=0.8, val_share=0.1, seed=seed) for seed in (0, 1))
    assert all(torch.equal(again.positives[part], dataset.positives[part]) for part in again.positives)
    assert torch.equal(again.negatives["test"], dataset.negatives["test"])
    assert not torch.equal(other.positives["test"], dataset.positives["test"])
    assert (dataset.metric, dataset.embedding) == ("auc", 0)


def test_repeated_edges_and_loops_are_no_links() -> None:
    edge_index = torch.tensor([[0, 1, 1, 0, 2, 3, 4, 5, 3], [1, 0, 0, 1, 3, 2, 4, 3, 5]])
    graph = _prepare.finish(
        NodeDataset("own", edge_index, torch.ones(6, 2), torch.full((6,), -1), *[torch.zeros(6).bool()] * 3, 0),
        CONFIG,
    )
    split = _prepare.split_links(graph, CONFIG.model_copy(update={"train_share": 0.4, "val_share": 0.3}))
    assert sum(pairs.size(1) for pairs in split.positives.values()) == 3
    assert split.notes == [
        "3 loops and repeated edges are left out, as a copy in another split would give a link away"
    ]


def test_vectors_negatives_of_their_own_and_another_order(where: Roots) -> None:
    dataset = loaded(where, embedding=8, negatives=7, reorder="degree")
    plain = loaded(where, embedding=8, negatives=7)
    assert (dataset.metric, dataset.num_features, dataset.ranked) == ("mrr", 8, True)
    assert dataset.embedding_bytes == 4 * 8 * dataset.num_nodes
    assert dataset.negatives["test"].shape == (dataset.positives["test"].size(1), 7)
    degree = [torch.bincount(each.edge_index[1], minlength=each.num_nodes) for each in (dataset, plain)]
    assert degree[0].diff().max() <= 0
    for part in dataset.positives:
        assert torch.equal(degree[0][dataset.positives[part]], degree[1][plain.positives[part]])
    known = keys(torch.cat([plain.edge_index, *plain.positives.values()], 1), plain.num_nodes)
    drawn = plain.negatives["val"]
    assert not keys(torch.stack([plain.positives["val"][0].repeat_interleave(7), drawn.flatten()]), 271) & known


def test_metrics_are_those_of_scikit_learn_and_ogb() -> None:
    ours, theirs = torch.tensor([3.0, 1.0, 0.5]), torch.tensor([2.0, 0.0, 0.7, -1.0])
    truth, scores = [1] * 3 + [0] * 4, torch.cat([ours, theirs])
    assert _metrics.link_score_of("auc")(ours, theirs) == roc_auc_score(truth, scores)
    assert _metrics.link_score_of("ap")(ours, theirs) == average_precision_score(truth, scores)
    assert _metrics.link_score_of("hits@2")(ours, theirs) == pytest.approx(2 / 3)
    ranks = torch.stack([theirs] * 3)
    assert _metrics.link_score_of("mrr")(ours, ranks) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


TRAIN = {"train": [(0, 1), (1, 2)], "val": [(2, 3)], "test": [(3, 4)]}
EDGES = [(0, 1), (1, 2)]
NEGATIVES = {"val": torch.tensor([[0], [5]]), "test": torch.tensor([[0], [5]])}


@pytest.mark.parametrize(
    ("dataset", "keys", "reason"),
    [
        (
            links({**TRAIN, "val": [(2, 9)]}, EDGES),
            {},
            "own: a val link names node 9, which is not there; its 6 nodes",
        ),
        (links({**TRAIN, "train": []}, EDGES), {}, "own has no training links"),
        (
            links(TRAIN, [*EDGES, (3, 4)]),
            {},
            "own: test link 3 -> 4 is also an edge of messages or a training link",
        ),
        (links({**TRAIN, "train": [(2, 3)]}, EDGES), {}, "own: val link 2 -> 3 is also an edge of messages"),
        (links(TRAIN, [*EDGES, (4, 3)]), {}, "own: test link 3 -> 4 is also an edge of messages"),
        (links(TRAIN, EDGES, relations={}), {}, "own has typed links, but its negatives have no type"),
        (
            links(TRAIN, EDGES, negatives={**NEGATIVES, "test": torch.empty(2, 0).long()}),
            {},
            "own has no negatives for its 1 test links",
        ),
        (
            links({**TRAIN, "train": [(2, a) for a in range(6)]}, EDGES),
            {"negatives": 2},
            "no negatives can be drawn",
        ),
        (
            links(TRAIN, EDGES, negatives=NEGATIVES),
            {"metric": "hits@2"},
            "own has a list of 1 negatives, among which",
        ),
        (
            links(TRAIN, EDGES),
            {"metric": "mrr"},
            "one list of negatives for all links, which metric mrr does not fit",
        ),
        (
            links(TRAIN, EDGES),
            {"metric": "ap", "negatives": 2},
            "negatives of its own for each link, which metric ap",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused(dataset: LinksDataset, keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(DatasetError) as refused:
        _prepare.finish_links(dataset, CONFIG.model_copy(update=keys))
    assert reason in str(refused.value)


def test_an_edge_and_its_reverse_in_two_parts_are_refused(where: Roots, tmp_path: Path) -> None:
    path = tmp_path / "ring.csv"
    path.write_text("".join(f"{a},{b}\n" for a in range(20) for b in ((a + 1) % 20, (a - 1) % 20, (a + 2) % 20)))
    config = files.Config(path=path, task="links")
    with pytest.raises(DatasetError, match=r"or its reverse is, .* --set dataset.to_undirected=true"):
        datasets.load(config, where)
    together: Any = datasets.load(config.model_copy(update={"to_undirected": True}), where)
    assert sum(pairs.size(1) for pairs in together.positives.values()) == 40


OWN = "source,destination,part\n0,1,train\n1,2,train\n2,3,valid\n3,4,test\n"


def own(where: Roots, tmp_path: Path, text: str, **keys: Any) -> Any:
    path = tmp_path / "my_links.csv"
    path.write_text(text)
    assert datasets.parse(str(path)) == {"source": "files", "path": str(path), "task": "links"}
    return datasets.load(files.Config(path=path, task="links", **keys), where)


def test_links_of_ones_own(where: Roots, tmp_path: Path) -> None:
    plain = own(where, tmp_path, OWN)
    assert plain.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert {part: pairs.T.tolist() for part, pairs in plain.positives.items()} == {
        "train": [[0, 1], [1, 2]],
        "val": [[2, 3]],
        "test": [[3, 4]],
    }
    assert (plain.label, plain.num_nodes) == ("my_links (features, negatives synthetic)", 5)
    text = "Source, Destination, Part, Label, Type\n0,1,train,1,1\n4,0,message,1,\n2,3,val,1,0\n4,2,test,1,0\n"
    x = tmp_path / "x.npy"
    np.save(x, np.ones((6, 2)))
    typed = own(where, tmp_path, text, features=x, negatives=2)
    assert (typed.num_relations, typed.relations["train"].tolist()) == (2, [1])
    assert (typed.edge_index.T.tolist(), typed.num_nodes, typed.synthetic_parts) == ([[4, 0]], 6, ["negatives"])
    listed = own(where, tmp_path, "part,source,destination,label\ntrain,0,1,1\nval,2,3,1\nval,0,3,0\n")
    assert listed.negatives["val"].tolist() == [[0], [3]]
    assert listed.synthetic_parts == ["features"]


@pytest.mark.parametrize(
    ("text", "keys", "reason"),
    [
        (OWN + "4,3,train\n", {}, "test link 3 -> 4 is also an edge of messages or a training link"),
        (OWN + "3,2,message\n", {}, "val link 2 -> 3 is also an edge of messages or a training link"),
        (OWN.replace("part", "split"), {}, "has columns destination, source, split; a file of links needs source"),
        (OWN + "0,3,dev\n", {}, "found part dev; allowed: train, val, test, message"),
        (OWN + "0,x,train\n", {}, "node ids must be whole numbers from 0; found 'x'"),
        (OWN + "0,1.5,train\n", {}, "node ids must be whole numbers from 0; found 1.5"),
        (OWN.replace("train", "message"), {}, "has no training links"),
        (
            "source,destination,part,label\n0,1,train,0\n",
            {},
            "found part train; allowed: val, test beside label",
        ),
        ("source,destination,part,label\n0,1,val,2\n", {}, "found label 2; allowed: 1 for a link"),
        ("source,destination,part,type\n0,1,train,x\n", {}, "found type x; allowed: whole numbers from 0"),
        (OWN, {"labels": "y.npy"}, "dataset.labels: is for a file of one graph; "),
    ],
)
def test_bad_links_are_one_sentence(
    where: Roots, tmp_path: Path, text: str, keys: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DatasetError) as refused:
        own(where, tmp_path, text, **keys)
    assert reason in str(refused.value)
    assert "probably truncated" not in str(refused.value)


def test_what_a_benchmark_repeats_is_told() -> None:
    dataset = _prepare.finish_links(links(TRAIN, [*EDGES, (3, 4)], own_split=True), CONFIG)
    assert dataset.notes == ["100.0% of the test links are edges of messages too, in its own split"]
    assert dataset.synthetic_parts == ["negatives"]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"task": "links", "metric": "hits@0"}, r"dataset.metric: .*found 'hits@0'"),
    ],
)
def test_wrong_keys_are_named(keys: dict[str, Any], reason: str) -> None:
    raw = {"dataset": {**datasets.parse("cora"), **keys}, "model": {"name": "gcn"}}
    with pytest.raises(ConfigError, match=reason):
        config.validate(raw, "test")


def ogbl(folder: Path, edges: Any, split: dict[str, Any]) -> None:
    """A tiny archive of OGB of a graph with these edges [E, 2] and six nodes."""
    write_csv(folder / "raw" / "edge.csv.gz", np.array(edges))
    write_csv(folder / "raw" / "num-node-list.csv.gz", np.array([6]))
    write_csv(folder / "raw" / "num-edge-list.csv.gz", np.array([len(edges)]))
    place = folder / "split" / {"ogbl_ddi": "target", "ogbl_citation2": "time"}[folder.name]
    place.mkdir(parents=True)
    for part, content in split.items():
        torch.save({key: np.array(value) for key, value in content.items()}, place / f"{part}.pt")
    (folder / "RELEASE_v1.txt").write_text("")


def test_ogbs_links_come_with_their_split_negatives_and_metric(where: Roots) -> None:
    negative = [[0, 5], [5, 1]] * 20
    evaluated = {"edge": [[2, 3]], "edge_neg": negative}
    split = {"train": {"edge": [[0, 1], [1, 2]]}, "valid": evaluated, "test": {**evaluated, "edge": [[3, 4]]}}
    ogbl(where.raw / "ogb" / "ogbl_ddi", EDGES, split)
    dataset: Any = load("ogbl_ddi", where, embedding=4)
    assert (dataset.metric, dataset.synthetic_parts, dataset.num_nodes) == ("hits@20", [], 6)
    assert dataset.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert dataset.positives["test"].tolist() == [[3], [4]]
    assert dataset.negatives["val"].T.tolist() == negative


def test_citations_rank_each_link_among_destinations_of_its_own(where: Roots) -> None:
    train = {"source_node": [0, 1], "target_node": [1, 2]}
    test = {"source_node": [2], "target_node": [3], "target_node_neg": [[4, 5, 0]]}
    folder = where.raw / "ogb" / "ogbl_citation2"
    ogbl(folder, EDGES, {"train": train, "valid": {**test, "source_node": [3], "target_node": [4]}, "test": test})
    write_csv(folder / "raw" / "node-feat.csv.gz", np.ones((6, 3)))
    write_csv(folder / "raw" / "node_year.csv.gz", np.full(6, 2020))
    dataset: Any = load("ogbl-citation2", where)
    assert (dataset.metric, dataset.ranked, dataset.x.shape) == ("mrr", True, (6, 3))
    assert dataset.negatives["test"].tolist() == [[4, 5, 0]]
    assert dataset.positives["val"].tolist() == [[3], [4]]


@needs_data
def test_typed_links_of_wordnet(cache: Path) -> None:
    dataset: Any = load("wordnet18rr", Roots(REAL, cache), embedding=8)
    sizes = [dataset.positives[part].size(1) for part in ("train", "val", "test")]
    assert (sizes, dataset.num_relations, dataset.num_nodes) == ([86_835, 3_034, 3_134], 11, 40_943)
    assert dataset.negatives["test"].shape == (3_134, 100)
    assert (dataset.metric, dataset.synthetic_parts) == ("mrr", ["negatives"])
