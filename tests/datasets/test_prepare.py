"""Try what all sources share: checks, filling in, splits, metrics, description and cache."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, _disk, _metrics, _prepare
from gnnbench.datasets import _describe as describe
from gnnbench.datasets._kinds import MASKS
from gnnbench.errors import DatasetError


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
    )
    return dataclasses.replace(whole, **fields)


BROKEN = {
    "no edges": ({"edge_index": torch.zeros(2, 0, dtype=torch.long)}, "ring has no edges"),
    "edge out of range": (
        {"edge_index": torch.tensor([[0, 6], [1, 0]])},
        "an edge names node 6, .* ids 0 to 5",
    ),
    "negative edge": ({"edge_index": torch.tensor([[0, -3], [1, 0]])}, "an edge names node -3"),
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
    masks = dict.fromkeys(MASKS, none)
    split = {"train_share": 0.5, "val_share": 0.1}
    first, again, other = (
        _prepare.finish(ring(100, y=y, **masks), DatasetConfig(source="test", seed=seed, **split))
        for seed in (0, 0, 1)
    )
    sizes = [int(getattr(first, part).sum()) for part in MASKS]
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
    assert _metrics.micro_f1(logits, y) == pytest.approx(f1_score(y, logits > 0, average="micro"))
    assert _metrics.accuracy(torch.eye(3), torch.tensor([0, 1, 1])) == pytest.approx(2 / 3)
    assert np.isnan(_metrics.micro_f1(-torch.ones(2, 2), torch.zeros(2, 2)))


def test_info_counts_a_graph_drawn_by_hand() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 3, 0, 0, 0], [1, 0, 2, 1, 3, 4, 4, 2]])  # a loop at 3, 0-4 twice, 5 alone
    y = torch.tensor([0, 1, 1, -1, 0, 1])
    info = describe.info(ring(edge_index=edges, y=y, x=torch.eye(6)))
    assert (info.nodes, info.edges, info.features, info.outputs) == (6, 8, 6, 2)
    assert (info.self_loops, info.duplicate_edges, info.isolated_nodes) == (1, 1, 1)
    assert not info.symmetric
    assert info.degree_quantiles == {"0": 0, "0.25": 1, "0.5": 1, "0.75": 2, "0.9": 2, "0.99": 2, "1": 2}
    assert info.max_out_degree == 4
    assert (info.class_counts, info.missing_targets) == ([2, 3], 1)
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
        _disk.built(tmp_path / "a" / "folder", build)
    assert list((tmp_path / "a").iterdir()) == []
    for _ in range(2):
        assert (_disk.built(tmp_path / "a" / "folder", build) / "part").read_text() == "half"
    assert len(calls) == 2
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"cannot be written: .*; set GNNBENCH_CACHE to another folder"):
        _disk.built(tmp_path / "file" / "folder", build)
