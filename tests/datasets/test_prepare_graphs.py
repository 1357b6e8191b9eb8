"""Try what all sources of many graphs share: refusals with the graph's number, options, splits and metrics."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures
from torch_geometric.utils import to_undirected

from gnnbench.datasets import GraphsDataset, _metrics, _prepare_graphs, ogb
from gnnbench.datasets import _describe as describe
from gnnbench.datasets._kinds import GraphsConfig
from gnnbench.errors import DatasetError

NAN = float("nan")


def three(**fields: Any) -> GraphsDataset:
    """Graphs of 3, 1 and 2 nodes with 3, 0 and 1 edges; `fields` replace their own."""
    whole = GraphsDataset(
        "three",
        torch.tensor([0, 3, 4, 6]),
        torch.tensor([0, 3, 3, 4]),
        torch.tensor([[2, 0, 1, 0], [0, 1, 2, 1]], dtype=torch.int32),
        torch.arange(12.0).reshape(6, 2),
        torch.tensor([0, 1, 1]),
        {"train": torch.tensor([2, 0]), "test": torch.tensor([1])},
        "class",
        2,
    )
    return dataclasses.replace(whole, **fields)


def edges(*pairs: list[int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int32).T


def rows(row: int, value: float) -> Tensor:
    x = torch.zeros(6, 2)
    x[row, 1] = value
    return x


BROKEN = {
    "no nodes": ({"graph_ptr": torch.tensor([0, 3, 3, 6])}, "graph 1 has no nodes; leave it out"),
    "pointer": ({"graph_ptr": torch.tensor([0, 5, 4, 6])}, "three: graph_ptr falls from 5 to 4 at graph 1"),
    "too few nodes": ({"graph_ptr": torch.tensor([0, 3, 4, 9])}, "ends at 9, but there are 6 nodes"),
    "beyond": (
        {"edge_index": edges([2, 0], [0, 1], [1, 2], [0, 2])},
        "three: graph 2 has 2 nodes, numbered from 0, but an edge with the destination 2",
    ),
    "no edges": (
        {"edge_index": edges([0, 0])[:, :0], "edge_ptr": torch.zeros(4, dtype=torch.long)},
        "none of its graphs has an edge",
    ),
    "NaN": ({"x": rows(3, NAN)}, "features of node 0 of graph 1 hold NaN or infinity"),
    "infinity": ({"x": rows(5, -torch.inf)}, "features of node 1 of graph 2 hold NaN"),
    "edge NaN": ({"edge_attr": torch.tensor([[0.0], [0], [0], [NAN]])}, "features of edge 0 of graph 2 hold NaN"),
    "edge rows": ({"edge_attr": torch.zeros(3, 1)}, "features of 3 edges, but 4 edges"),
    "whole numbers": ({"x": torch.zeros(6, 2).long()}, "2 whole numbers; give them as float32"),
    "unknown category": (
        {"x": torch.full((6, 9), 1).index_fill_(0, torch.tensor(4), 119), "encoder": "ogb"},
        "features of node 0 of graph 2 are not categories that OGB's encoder knows: .119, ",
    ),
    "class above": ({"y": torch.tensor([0, 1, 2])}, "target of graph 2 is 2; the classes are 0 to 1"),
    "class of a node": (
        {"y": torch.tensor([0, 0, 0, 0, 9, 0]), "per_node": True},
        "target of node 0 of graph 2 is 9",
    ),
    "label": (
        {"y": torch.tensor([[0.0], [3], [NAN]]), "target": "labels"},
        r"target of graph 1 is \[3.0\]; labels",
    ),
    "value": ({"y": torch.tensor([[0.0], [3], [NAN]]), "target": "value"}, r"target of graph 2 is \[nan\]"),
    "targets": ({"y": torch.tensor([0, 1])}, "three has 2 targets, but 3 graphs"),
    "no class": (
        {"y": torch.tensor([0, 1, -1])},
        "graph 2 has no class; give it one, or leave it out of the split",
    ),
    "no targets": ({"y": torch.full((3,), -1)}, r"no labels; .*--set dataset\.random_labels=8"),
    "no features": ({"x": torch.ones(6, 0)}, r"--set dataset\.degree_features=64, or .*random_features=128"),
    "unknown graph": (
        {"splits": {"train": torch.tensor([0, 3])}},
        "graph 3, which is not there; its 3 graphs have ids 0 to 2",
    ),
    "no training": ({"splits": {"test": torch.tensor([0])}}, "the training split is empty"),
    "two splits": (
        {"splits": {"train": torch.tensor([0, 1]), "val": torch.tensor([1])}},
        "graph 1 is in train and in val; every graph is in one split, once",
    ),
    "twice": ({"splits": {"train": torch.tensor([2, 0, 2])}}, "graph 2 is in train and in train"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_graphs_unfit_for_training_are_refused(case: str) -> None:
    fields, message = BROKEN[case]
    with pytest.raises(DatasetError, match=message) as caught:
        _prepare_graphs.finish(three(**fields), GraphsConfig(source="test", degree_features=0))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "fields", "message"),
    [
        ({"reorder": "rcm"}, {}, "dataset.reorder: rcm renumbers the nodes of one large graph; leave it out"),
        ({"to_undirected": True}, {"edge_attr": torch.zeros(4, 1)}, "dataset.to_undirected: the edges of three"),
        (
            {"normalize_features": True},
            {"x": torch.zeros(6, 9).long(), "encoder": "ogb"},
            "dataset.normalize_features: three has categories",
        ),
        ({"degree_features": 10**12}, {"x": torch.ones(6, 0)}, r"GiB are free; lower dataset\.degree_features"),
    ],
)
def test_options_that_do_not_fit_are_refused(keys: dict, fields: dict, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        _prepare_graphs.finish(three(**fields), GraphsConfig(source="test", **keys))


def test_options_do_to_each_graph_what_pyg_does() -> None:
    dataset = three()
    kept = {name: value.clone() for name, value in vars(dataset).items() if isinstance(value, Tensor)}
    given = {name: getattr(dataset, name) for name in kept}
    done = _prepare_graphs.finish(
        dataset, GraphsConfig(source="test", normalize_features=True, to_undirected=True)
    )
    assert all(torch.equal(given[name], value) for name, value in kept.items())
    for graph, (begin, end) in enumerate(zip([0, 3, 4], [3, 4, 6], strict=True)):
        own = kept["edge_index"][:, kept["edge_ptr"][graph] : kept["edge_ptr"][graph + 1]].long()
        expected = to_undirected(own, num_nodes=end - begin)
        found = done.edge_index[:, done.edge_ptr[graph] : done.edge_ptr[graph + 1]]
        assert found.tolist() == expected.tolist()
        assert torch.equal(done.x[begin:end], NormalizeFeatures()(Data(x=kept["x"][begin:end].clone())).x)
    assert done.edge_index.dtype == torch.int32


def test_missing_features_are_degrees_or_random_and_missing_splits_are_drawn() -> None:
    bare = {"x": torch.ones(6, 0), "splits": {}, "y": torch.tensor([0, -1, 1])}
    degrees = _prepare_graphs.finish(
        three(**bare), GraphsConfig(source="test", degree_features=2, train_share=0.5)
    )
    assert degrees.x.tolist() == [[0, 1], [0, 1], [0, 1], [1, 0], [1, 0], [0, 1]]
    assert {split: len(ids) for split, ids in degrees.splits.items()} == {"train": 1, "val": 0, "test": 1}
    assert 1 not in torch.cat(list(degrees.splits.values()))
    assert degrees.label == "three (split synthetic)"
    assert [note.split(";")[0] for note in degrees.notes] == [
        "nodes have no features",
        "1 of the 3 graphs have no edges",
    ]
    keys = {"degree_features": 0, "random_features": 4, "random_labels": 3}
    bare["y"] = torch.full((3,), -1)
    drawn = _prepare_graphs.finish(three(**bare), GraphsConfig(source="test", **keys))
    assert (drawn.x.shape, drawn.num_outputs) == ((6, 4), 3)
    assert drawn.label == "three (features, labels, split synthetic)"


def test_metrics_against_scikit_learn() -> None:
    from sklearn.metrics import average_precision_score, f1_score, mean_absolute_error

    generator = torch.Generator().manual_seed(0)
    outputs, y = torch.randn(60, 5, generator=generator), torch.randint(4, (60,), generator=generator)
    expected = f1_score(y, outputs.argmax(1), average="macro")
    assert _metrics.macro_f1(outputs, y) == pytest.approx(expected)
    labels = (torch.rand(60, 5, generator=generator) < 0.3).float()
    precision = _metrics.score_of("ap", 5)(outputs, labels)
    assert precision == pytest.approx(average_precision_score(labels, outputs))
    mae = _metrics.negative_mae(outputs, labels)
    assert mae == pytest.approx(-mean_absolute_error(labels, outputs), rel=1e-6)
    for metric in (_metrics.macro_f1, _metrics.negative_mae):
        assert np.isnan(metric(outputs[:0], y[:0] if metric is _metrics.macro_f1 else labels[:0]))
    metric = ogb.meta("ogbg-molesol")["metric"]
    assert metric == "negative RMSE"
    assert _metrics.score_of(metric, 1)(labels[:, :1] + 2, labels[:, :1]) == pytest.approx(-2)


def test_info_counts_graphs_drawn_by_hand() -> None:
    info = describe.info(_prepare_graphs.finish(three(), GraphsConfig(source="test")))
    assert (info.graphs, info.nodes, info.edges, info.isolated_nodes) == (3, 6, 4, 1)
    assert info.graph_nodes == {"0": 1, "0.25": 1, "0.5": 2, "0.75": 2, "0.9": 2, "0.99": 2, "1": 3}
    assert (info.degree_mean, info.degree_quantiles["1"]) == (4 / 6, 1)
    assert (info.class_counts, info.missing_targets, info.outputs) == ([1, 2], 0, 2)
    assert (info.train, info.val, info.test) == (2, 0, 1)
    assert (info.edge_index_bytes, info.feature_bytes) == (2 * 4 * 4, 6 * 2 * 4)
