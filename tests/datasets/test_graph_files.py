"""Many graphs of one's own: every form that is promised, and one sentence for every way they can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, tensor
from torch_geometric.data import Data, InMemoryDataset

from gnnbench import datasets
from gnnbench.datasets import GraphsDataset, Roots, files
from gnnbench.errors import DatasetError

NAN = float("nan")
EDGES = [tensor([[0, 2, 1], [1, 0, 2]]), torch.empty(2, 0, dtype=torch.long), tensor([[1, 0], [0, 1]])]
NODES = [3, 1, 2]


def load(where: Roots, path: Path, **keys: object) -> GraphsDataset:
    return datasets.load(files.Config(path=path, **keys), where)


def saved(path: Path, y: Any = (1, 0, 1), **fields: Any) -> Path:
    """Three graphs of 3, 1 and 2 nodes with targets `y`, the second without edges; `fields` replace theirs."""
    graphs = []
    for number, (nodes, edges) in enumerate(zip(NODES, EDGES, strict=True)):
        x, attr = torch.arange(2.0 * nodes).view(nodes, 2), torch.arange(edges.size(1)).view(-1, 1)
        own = {} if y is None else {"y": y[number] if isinstance(y[number], Tensor) else tensor([y[number]])}
        graphs.append(Data(**{"x": x, "edge_index": edges, "edge_attr": attr, **own, **fields}))
    InMemoryDataset.save(graphs, str(path))
    return path


def test_one_file_is_a_set_whose_split_is_drawn(where: Roots, tmp_path: Path) -> None:
    dataset = load(where, saved(tmp_path / "mine.pt"))
    assert datasets.parse("mine.pt") == {"source": "files", "path": "mine.pt"}
    assert (dataset.graph_ptr.tolist(), dataset.edge_ptr.tolist()) == ([0, 3, 4, 6], [0, 3, 3, 5])
    assert dataset.edge_index.tolist() == torch.cat(EDGES, 1).tolist()
    assert dataset.edge_attr is not None
    assert dataset.edge_attr.flatten().tolist() == [0, 1, 2, 0, 1]
    assert (dataset.target, dataset.num_outputs, dataset.per_node) == ("class", 2, False)
    assert dataset.label == "mine (split synthetic)"
    bare = load(where, saved(tmp_path / "bare.pt", x=None, edge_attr=None, num_nodes=4))
    assert (bare.graph_ptr.tolist(), bare.x.shape, bare.edge_attr) == ([0, 4, 8, 12], (12, 64), None)


def test_a_folder_of_three_files_is_a_split(where: Roots, tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        saved(tmp_path / f"{part}.pt")
    dataset = load(where, tmp_path)
    assert datasets.parse(f"{tmp_path}/") == {"source": "files", "path": f"{tmp_path}/"}
    assert {split: ids.tolist() for split, ids in dataset.splits.items()} == {
        "train": [0, 1, 2],
        "val": [3, 4, 5],
        "test": [6, 7, 8],
    }
    assert dataset.label == tmp_path.name
    saved(tmp_path / "val.pt", edge_attr=None)
    with pytest.raises(
        DatasetError, match="graph 3 has 2 features of nodes and 0 of edges, but graph 0 has 2 and 1"
    ):
        load(where, tmp_path)


@pytest.mark.parametrize(
    ("y", "target", "outputs", "per_node"),
    [
        ([tensor([0, 1, 2]), tensor([0]), tensor([1, 2])], "class", 3, True),
        (tensor([[[0.0, 1]], [[1, 1]], [[NAN, 0]]]), "labels", 2, False),
        (tensor([[[0.5, 1]], [[1, 1]], [[2, 0]]]), "value", 2, False),
        ((0.5, 1.0, 2.0), "value", 1, False),
        (None, "class", 8, False),
    ],
)
def test_targets_tell_the_task(
    where: Roots, tmp_path: Path, y: Any, target: str, outputs: int, per_node: bool
) -> None:
    dataset = load(where, saved(tmp_path / "g.pt", y))
    assert (dataset.target, dataset.num_outputs, dataset.per_node) == (target, outputs, per_node)
    assert "labels" in dataset.synthetic_parts or y is not None


def test_the_text_files_of_tudataset(where: Roots, tmp_path: Path) -> None:
    texts = {
        "A": "1, 2\n2, 1\n3, 4\n4, 5\n",
        "graph_indicator": "1\n1\n2\n2\n2\n",
        "graph_labels": "1\n-1\n",
        "node_labels": "0\n1\n0\n0\n1\n",
        "node_attributes": "0.5\n1.5\n2.5\n3.5\n4.5\n",
    }
    for name, text in texts.items():
        (tmp_path / f"mine_{name}.txt").write_text(text)
    dataset = load(where, tmp_path)
    assert (dataset.graph_ptr.tolist(), dataset.edge_ptr.tolist()) == ([0, 2, 5], [0, 2, 4])
    assert dataset.edge_index.tolist() == [[0, 1, 0, 1], [1, 0, 1, 2]]
    assert dataset.x.tolist() == [[0.5, 1, 0], [1.5, 0, 1], [2.5, 1, 0], [3.5, 1, 0], [4.5, 0, 1]]
    assert dataset.y.tolist() == [1, 0]
    (tmp_path / "mine_A.txt").write_text("1, 2\n2, one\n")
    with pytest.raises(DatasetError, match="cannot be read as part of mine"):
        load(where, tmp_path)


WRONG = {
    "beyond": (
        {"edge_index": tensor([[3], [0]]), "edge_attr": None},
        "graph 0 has 3 nodes, .* an edge with the source 3",
    ),
    "x": ({"x": torch.full((3, 2), NAN)}, "the features of node 0 of graph 0 hold NaN"),
    "y large": ({"y": [0, 1, 10**9]}, "class 1000000000 among 3 targets; number the classes from 0"),
    "no edges": ({"edge_index": None, "edge_attr": None}, "its graphs have no edge_index"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files_are_refused_in_one_sentence(where: Roots, tmp_path: Path, case: str) -> None:
    changes, message = WRONG[case]
    with pytest.raises(DatasetError, match=message) as caught:
        load(where, saved(tmp_path / "g.pt", **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"hello", b"", saved])
def test_what_pyg_did_not_save_is_refused_in_one_sentence(where: Roots, tmp_path: Path, content: Any) -> None:
    path = tmp_path / "g.pt"
    path.write_bytes(content if isinstance(content, bytes) else saved(path).read_bytes()[:-500])
    with pytest.raises(DatasetError, match=r"g\.pt: cannot be read .* probably truncated or corrupt"):
        load(where, path)
    torch.save({"weights": 1}, path)
    with pytest.raises(DatasetError, match=r"g\.pt: cannot be read"):
        load(where, path)


def test_what_is_no_set_of_graphs_is_refused(where: Roots, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"dataset\.labels: is for a file of one graph; .* holds many"):
        load(where, saved(tmp_path / "g.pt"), labels="y.npy")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"holds neither train.pt, val.pt and test.pt nor NAME_A.txt"):
        load(where, tmp_path / "empty")
    np.savez(tmp_path / "g.npz", graph_ptr=[0, 2], edge_index=[[0], [1]])
    with pytest.raises(
        DatasetError, match=r"holds many graphs; save them with torch_geometric.data.InMemoryDataset"
    ):
        load(where, tmp_path / "g.npz")
