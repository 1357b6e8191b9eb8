"""Many graphs of one's own: every form that is promised, and one sentence for every way they can be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnbench import datasets
from gnnbench.datasets import GraphsDataset, Roots, files
from gnnbench.errors import DatasetError

ARRAYS: dict[str, Any] = {
    "graph_ptr": np.array([0, 3, 4, 6]),
    "edge_index": np.array([[4, 0, 2, 5, 1], [5, 1, 0, 4, 2]]),  # in any order, through all graphs
    "edge_attr": np.arange(5)[:, None],
    "x": np.arange(12).reshape(6, 2),
    "y": np.array([1, 0, 1]),
    "train": np.array([0, 2]),
    "test": np.array([False, True, False]),
}


def load(where: Roots, path: Path, **keys: object) -> GraphsDataset:
    return datasets.load(files.Config(path=path, **keys), where)


def saved(path: Path, **changes: Any) -> Path:
    """`ARRAYS` with changes; None leaves one out."""
    arrays = {name: value for name, value in (ARRAYS | changes).items() if value is not None}
    np.savez(path, **arrays)
    return path


def test_one_file_with_ids_through_all_graphs_or_of_each(where: Roots, tmp_path: Path) -> None:
    whole = load(where, saved(tmp_path / "whole.npz"))
    local = np.array([[0, 2, 1, 0, 1], [1, 0, 2, 1, 0]])
    changes = {
        "edge_index": local,
        "edge_ptr": np.array([0, 3, 3, 5]),
        "edge_attr": np.array([[1], [2], [4], [0], [3]]),
    }
    each = load(where, saved(tmp_path / "each.npz", **changes))
    for dataset in (whole, each):
        assert dataset.edge_ptr.tolist() == [0, 3, 3, 5]
        assert dataset.edge_index.tolist() == local.tolist()
        assert dataset.edge_attr.flatten().tolist() == [1, 2, 4, 0, 3]
        assert dataset.x.tolist() == ARRAYS["x"].tolist()
        assert {part: ids.tolist() for part, ids in dataset.parts.items()} == {
            "train": [0, 2],
            "val": [],
            "test": [1],
        }
        assert (dataset.target, dataset.num_outputs, dataset.per_node, dataset.made_up) == ("class", 2, False, [])
    assert whole.label == "whole"


@pytest.mark.parametrize(
    ("y", "target", "outputs", "per_node"),
    [
        (np.arange(6) % 3, "class", 3, True),
        (np.array([[0, 1], [1, 1], [np.nan, 0]]), "labels", 2, False),
        (np.array([[0.5, 1], [1, 1], [2, 0]]), "value", 2, False),
        (np.array([0.5, 1, 2]), "value", 1, False),
        (None, "class", 8, False),
    ],
)
def test_targets_tell_the_task(
    where: Roots, tmp_path: Path, y: np.ndarray | None, target: str, outputs: int, per_node: bool
) -> None:
    dataset = load(where, saved(tmp_path / "g.npz", y=y))
    assert (dataset.target, dataset.num_outputs, dataset.per_node) == (target, outputs, per_node)
    assert dataset.made_up == ([] if y is not None else ["labels"])


WRONG = {
    "no edges": ({"edge_index": None}, "graphs need edge_index beside graph_ptr"),
    "pointer": ({"graph_ptr": np.array([0.0, 3, 4, 6])}, "graph_ptr is float64 of shape .4., but must be whole"),
    "beyond": ({"edge_index": np.array([[6], [0]]), "edge_attr": None}, "names node 6, but graph_ptr ends at 6"),
    "crossing": (
        {"edge_index": np.array([[0, 2], [1, 3]]), "edge_attr": None},
        "edge 1 joins node 2 of graph 0 with node 3 of graph 1; an edge stays within its graph",
    ),
    "x": ({"x": np.ones((5, 2))}, "x has 5 rows, but graph_ptr ends at 6 nodes"),
    "x words": ({"x": np.array([["a"]] * 6)}, "x is <U1 of shape .6, 1., but must be a table"),
    "y words": ({"y": np.array(["a", "b", "c"])}, "y is <U1 of shape .3.; give numbers"),
    "y large": ({"y": np.array([0, 1, 10**9])}, "class 1000000000 among 3 targets; number the classes from 0"),
    "part": ({"train": np.array([0.5])}, "train is float64 of shape .1.; give ids of graphs, or a mask"),
    "pickled": ({"y": np.array([{}], dtype=object)}, "cannot be read as part of g.npz"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files_are_refused_in_one_sentence(where: Roots, tmp_path: Path, case: str) -> None:
    changes, message = WRONG[case]
    with pytest.raises(DatasetError, match=message) as caught:
        load(where, saved(tmp_path / "g.npz", **changes))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "g.npz") in str(caught.value) or case == "y large"


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_file_cut_short_is_refused_in_one_sentence(where: Roots, tmp_path: Path, share: float) -> None:
    path = saved(tmp_path / "g.npz")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DatasetError, match=r"g\.npz: cannot be read .* probably truncated or corrupt"):
        load(where, path)
    broken = bytearray(content)
    broken[len(content) // 2] ^= 0xFF
    path.write_bytes(broken)
    with pytest.raises(DatasetError):
        load(where, path)


def test_files_beside_many_graphs_are_refused(where: Roots, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"dataset\.labels: is for a file of one graph; .* holds many"):
        load(where, saved(tmp_path / "g.npz"), labels="y.npy")


def folder_of(path: Path, index: str, **lists: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "graphs.csv").write_text(index)
    for name, text in lists.items():
        (path / f"{name}.txt").write_text(text)
    return path


def test_a_folder_of_edge_lists(where: Roots, tmp_path: Path) -> None:
    index = "graph,class,part\nb.txt,1,train\na.txt,0,test\nc.txt,1,valid\n"
    path = folder_of(tmp_path / "mine", index, a="0 1\n1 0\n", b="0 2\n2 1\n", c="# none but this\n3 0\n")
    assert datasets.parse(f"{path}/") == {"source": "files", "path": f"{path}/"}
    dataset = load(where, path)
    assert dataset.graph_ptr.tolist() == [0, 3, 5, 9]
    assert dataset.edge_index.tolist() == [[0, 2, 0, 1, 3], [2, 1, 1, 0, 0]]
    assert dataset.y.tolist() == [1, 0, 1]
    assert {part: ids.tolist() for part, ids in dataset.parts.items()} == {"train": [0], "val": [2], "test": [1]}
    assert (dataset.label, dataset.x.shape) == ("mine", (9, 64))
    assert load(where, folder_of(path, "graph,class\na.txt,0\nb.txt,1\n")).made_up == ["split"]


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (None, "there is no such file; a folder of graphs needs it, with the columns graph,class,part"),
        ("graph,class,part\n", "has no rows; give it the columns graph,class,part"),
        ("name,class\na.txt,0\n", "has name, class; give it the columns"),
        ("graph,class\nz.txt,0\n", "graph 0 is z.txt, but there is no such file in"),
        ("graph,class\na.txt,0\na.txt,one\n", "the class of graph 1 is 'one', but must be a whole number"),
        ("graph,class,part\na.txt,0,training\n", "the part of graph 0 is 'training'; allowed: train, val, test"),
    ],
)
def test_wrong_folders_are_refused_in_one_sentence(
    where: Roots, tmp_path: Path, index: str | None, message: str
) -> None:
    path = folder_of(tmp_path / "mine", index or "", a="0 1\n")
    if index is None:
        (path / "graphs.csv").unlink()
    with pytest.raises(DatasetError, match=message) as caught:
        load(where, path)
    assert "\n" not in str(caught.value)
