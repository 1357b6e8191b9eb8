"""Links: splits of a graph, negatives, metrics, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from gnnbench import config, datasets
from gnnbench.datasets import LinksDataset, NodeDataset, Roots, _link_metrics, _prepare, _prepare_links
from gnnbench.errors import ConfigError, DatasetError

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
        NodeDataset(
            "own", edge_index, torch.ones(6, 2), torch.full((6,), -1), *[torch.zeros(6).bool()] * 3, 0, "", max
        ),
        CONFIG,
    )
    split = _prepare_links.split(graph, CONFIG.model_copy(update={"train_share": 0.4, "val_share": 0.3}))
    assert sum(pairs.size(1) for pairs in split.positives.values()) == 3
    assert split.notes == [
        "3 loops and repeated edges are left out, as a copy in another part would give a link away"
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
    assert _link_metrics.score_of("auc")(ours, theirs) == roc_auc_score(truth, scores)
    assert _link_metrics.score_of("ap")(ours, theirs) == average_precision_score(truth, scores)
    assert _link_metrics.score_of("hits@2")(ours, theirs) == pytest.approx(2 / 3)
    ranks = torch.stack([theirs] * 3)
    assert _link_metrics.score_of("mrr")(ours, ranks) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert torch.tensor(_link_metrics.score_of("auc")(ours[:0], theirs)).isnan()


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
        _prepare_links.prepare(dataset, CONFIG.model_copy(update=keys))
    assert reason in str(refused.value)


def test_what_a_benchmark_repeats_is_told() -> None:
    dataset = _prepare_links.prepare(links(TRAIN, [*EDGES, (3, 4)], own_split=True), CONFIG)
    assert dataset.notes == ["100.0% of the test links are edges of messages too, in its own split"]
    assert dataset.made_up == ["negatives"]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"task": "links", "metric": "hits@0"}, r"dataset.metric: .*found 'hits@0'"),
        ({"embedding": 8}, "dataset: embedding is for task links; set dataset.task=links too"),
    ],
)
def test_wrong_keys_are_named(keys: dict[str, Any], reason: str) -> None:
    raw = {"dataset": {**datasets.parse("cora"), **keys}, "model": {"name": "gcn"}}
    with pytest.raises(ConfigError, match=reason):
        config.validate(raw, "test")
