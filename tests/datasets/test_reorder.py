"""Another order of the nodes is the same graph: same edges, labels and results, ids that map back."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench import datasets
from gnnbench.config import validate
from gnnbench.datasets import NodeDataset, _reorder, synthetic
from gnnbench.errors import DatasetError
from gnnbench.training import run as running

ORDERS = ("degree", "rcm", "metis")


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> datasets.Roots:
    folder = tmp_path_factory.mktemp("data")
    return datasets.Roots(folder, folder)


def loaded(roots: datasets.Roots, **keys: Any) -> NodeDataset:
    return datasets.load(synthetic.Config(source="synthetic", preset="cora", **keys), roots)


def spread(edge_index: Tensor) -> float:
    """Mean distance between the positions of an edge's ends."""
    return float((edge_index[0] - edge_index[1]).abs().double().mean())


@pytest.mark.parametrize("how", ORDERS)
def test_ids_map_back_to_the_same_graph(roots: datasets.Roots, how: str) -> None:
    before, after = loaded(roots), loaded(roots, reorder=how)
    assert before.node_id is None
    assert after.node_id is not None
    assert sorted(after.node_id.tolist()) == list(range(before.num_nodes))
    edges, mapped = before.edge_index, after.node_id[after.edge_index]
    assert sorted(map(tuple, edges.t().tolist())) == sorted(map(tuple, mapped.t().tolist()))
    for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(getattr(after, name), getattr(before, name)[after.node_id])


def test_degrees_fall(roots: datasets.Roots) -> None:
    found = loaded(roots, reorder="degree")
    assert (torch.bincount(found.edge_index[1], minlength=found.num_nodes).diff() <= 0).all()


def test_cuthill_mckee_narrows_the_matrix() -> None:
    path = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    edge_index = torch.stack([path[:-1], path[1:]])
    order = _reorder.order(edge_index, 50, "rcm")
    position = torch.empty_like(order)
    position[order] = torch.arange(50)
    assert spread(position[edge_index]) == 1


def test_parts_of_metis_lie_side_by_side() -> None:
    """Two cliques with shuffled ids, joined by one edge."""
    clique = torch.combinations(torch.arange(1024)).t()
    ids = torch.randperm(2048, generator=torch.Generator().manual_seed(0))
    edge_index = ids[torch.cat([clique, clique + 1024, torch.tensor([[0], [1024]])], dim=1)]
    order = _reorder.order(edge_index, 2048, "metis")
    first = {int(node) for node in order[:1024]}
    assert first in ({*ids[:1024].tolist()}, {*ids[1024:].tolist()})


def test_metis_without_its_package_is_one_sentence(roots: datasets.Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(DatasetError, match="run `pip install pymetis`, or choose rcm or degree"):
        loaded(roots, reorder="metis")


def test_cost_and_order_are_in_the_result(roots: datasets.Roots) -> None:
    raw = {
        "dataset": {"source": "synthetic", "preset": "cora", "reorder": "rcm"},
        "model": {"name": "gcn", "dropout": 0.0},
        "train": {"epochs": 3},
    }
    result = running.run(validate(raw, "test"), roots=roots, out=None)
    facts = result.dataset_facts
    assert facts is not None
    assert facts.reorder == "rcm"
    assert facts.reorder_s is not None
    assert facts.reorder_s > 0
