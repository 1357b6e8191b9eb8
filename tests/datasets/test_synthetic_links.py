"""Synthetic links: counts of the presets, a split without leaks, and links that neighbours tell of."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from gnnbench import datasets
from gnnbench.datasets import LinksDataset, Roots, synthetic_links


def load(where: Roots, spec: str) -> LinksDataset:
    keys = datasets.parse(spec)
    config = synthetic_links.Config(**keys, random_features=0 if "ddi" not in spec else 4)
    dataset = datasets.load(config, where)
    assert isinstance(dataset, LinksDataset)
    return dataset


def keys(dataset: LinksDataset, pairs: Tensor) -> Tensor:
    """One number for each pair, whichever its direction."""
    low, high = pairs.sort(0).values
    return low * dataset.num_nodes + high


@pytest.mark.parametrize(("preset", "scale"), [("collab", 0.01), ("ppa", 0.002), ("ddi", 0.2)])
def test_counts_are_the_presets_and_messages_run_over_training_links_alone(
    where: Roots, preset: str, scale: float
) -> None:
    dataset, chosen = load(where, f"synthetic:{preset}:{scale}"), synthetic_links.PRESETS[preset]
    shape, nodes = chosen.graph, round(chosen.graph.nodes * scale)
    assert dataset.num_nodes == nodes
    sizes = {part: links.size(1) for part, links in dataset.positives.items()}
    total = sum(sizes.values())
    assert total == min(round(shape.edges * scale) // 2, nodes * (nodes - 1) // 4)
    assert (sizes["val"], sizes["test"]) == (int(chosen.val * total), int(chosen.test * total))
    links = keys(dataset, torch.cat([*dataset.positives.values()], 1))
    assert links.unique().numel() == total
    assert (dataset.edge_index[0] != dataset.edge_index[1]).all()
    train = keys(dataset, dataset.positives["train"]).sort().values
    assert torch.equal(keys(dataset, dataset.edge_index).sort().values, train.repeat_interleave(2))
    assert torch.equal(dataset.edge_index.unique(dim=1), dataset.edge_index.flip(0).unique(dim=1))
    assert (dataset.metric, dataset.label) == (chosen.metric, f"synthetic {preset} x{scale:g}")
    assert torch.equal(load(where, f"synthetic:{preset}:{scale}").positives["test"], dataset.positives["test"])


def test_neighbours_tell_more_of_a_link_than_chance_and_less_than_all(where: Roots) -> None:
    dataset = load(where, "synthetic:collab:0.02")
    src, dst = dataset.edge_index
    x = dataset.x.clone().index_add_(0, dst, dataset.x[src])
    x /= 1 + dst.bincount(minlength=dataset.num_nodes).unsqueeze(1)
    pairs = torch.cat([dataset.positives["test"], dataset.negatives["test"]], 1)
    truth = torch.arange(pairs.size(1)) < dataset.positives["test"].size(1)
    assert 0.65 < roc_auc_score(truth, (x[pairs[0]] * x[pairs[1]]).sum(1)) < 0.95
