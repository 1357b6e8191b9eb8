"""Own graph files: every format that is promised, and one sentence for every way they can be wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import torch

from gnnbench import datasets
from gnnbench.datasets import NodeDataset, Roots, files
from gnnbench.errors import ConfigError, DatasetError
from tests.support.real_data import REAL, needs_data

EDGES = np.array([[0, 0, 1, 3, 4], [1, 2, 3, 0, 4]])  # node 4 has a loop alone


def load(where: Roots, path: Path, **keys: object) -> NodeDataset:
    return datasets.load(files.Config(path=path, **keys), where)


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


LISTS = {
    "space.txt": "# a comment\n0 1\n0 2\n1 3\n3 0\n4 4\n",
    "tabs.edges": "% konect\n% 5 5\n0\t1\n0\t2\n1\t3\n3\t0\n4\t4",
    "many.edgelist": "0   1\n 0  2\n1 3 \n3 0\n4 4\n\n",
    "plain.csv": "0,1\n0,2\n1,3\n3,0\n4,4\n",
    "header.csv": "source,target\n0, 1\n0, 2\n1, 3\n3, 0\n4, 4\n",
    "semicolon.csv": "0;1\n0;2\n1;3\n3;0\n4;4\n",
    "table.tsv": "src\tdst\n0\t1\n0\t2\n1\t3\n3\t0\n4\t4\n",
    "packed.txt.gz": "# a comment\n\n0 1\n0 2\n# another\n1 3\n3 0\n4 4\n",
    "windows.txt": "0 1\r\n0 2\r\n1 3\r\n3 0\r\n4 4\r\n",
    "floats.csv": "0.0,1.0\n0,2\n1,3\n3,0\n4,4\n",
    "trailing.csv": "0,1,\n0,2,\n1,3,\n3,0,\n4,4,\n",
}


@pytest.mark.parametrize("name", LISTS)
def test_edge_lists_of_all_kinds_give_the_same_edges(where: Roots, tmp_path: Path, name: str) -> None:
    dataset = load(where, write(tmp_path / name, LISTS[name]))
    assert dataset.edge_index.tolist() == EDGES.tolist()
    assert dataset.num_nodes == 5
    assert dataset.notes == []
    assert dataset.label == f"{name.split('.')[0]} (features, labels, split synthetic)"


@pytest.mark.parametrize("name", ["w.txt", "w.csv"])
def test_weights_are_left_out_with_a_note(where: Roots, tmp_path: Path, name: str) -> None:
    mark = "," if name.endswith("csv") else " "
    text = "".join(mark.join([str(s), str(d), "0.5"]) + "\n" for s, d in EDGES.T)
    dataset = load(where, write(tmp_path / name, text))
    assert dataset.edge_index.tolist() == EDGES.tolist()
    assert dataset.notes == [f"the weights in {name} are not used"]


@pytest.mark.parametrize("name", ["g.mtx", "g.mtx.gz"])
@pytest.mark.parametrize("field", ["pattern", "real"])
@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
def test_matrix_market(where: Roots, tmp_path: Path, name: str, field: str, symmetry: str) -> None:
    entries = "2 1\n3 1\n4 2\n5 5\n" if field == "pattern" else "2 1 2\n3 1 2\n4 2 2\n5 5 2\n"
    text = f"%%MatrixMarket matrix coordinate {field} {symmetry}\n% note\n6 6 4\n{entries}"
    dataset = load(where, write(tmp_path / name, text))
    expected = {(1, 0), (2, 0), (3, 1), (4, 4)}
    if symmetry == "symmetric":
        expected |= {(0, 1), (0, 2), (1, 3)}
    assert sorted(map(tuple, dataset.edge_index.T.tolist())) == sorted(expected)
    assert dataset.num_nodes == 6
    assert bool(dataset.notes) == (field == "real")


CSR = scipy.sparse.csr_array((np.ones(5), EDGES), shape=(5, 5))
ARCHIVES = {
    "edge_index": {"edge_index": EDGES},
    "coo": {"row": EDGES[0], "col": EDGES[1]},
    "csr": {"rowptr": CSR.indptr, "col": CSR.indices},
    "scipy parts": {"indptr": CSR.indptr, "indices": CSR.indices, "shape": CSR.shape},
}


@pytest.mark.parametrize("kind", [*ARCHIVES, "scipy csr", "scipy coo"])
def test_npz(where: Roots, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "g.npz"
    if kind in ARCHIVES:
        np.savez(path, **ARCHIVES[kind])
    else:
        scipy.sparse.save_npz(path, CSR if kind == "scipy csr" else CSR.tocoo())
    dataset = load(where, path)
    assert sorted(map(tuple, dataset.edge_index.T.tolist())) == sorted(map(tuple, EDGES.T.tolist()))
    assert dataset.num_nodes == 5


def test_the_shape_of_an_npz_counts_nodes_without_edges(where: Roots, tmp_path: Path) -> None:
    for name, nodes in (("row", EDGES[0]), ("rowptr", np.append(CSR.indptr, [5, 5]))):
        np.savez(tmp_path / "g.npz", **{name: nodes, "col": EDGES[1], "shape": (7, 7)})
        assert load(where, tmp_path / "g.npz").num_nodes == 7
    np.savez(tmp_path / "g.npz", row=EDGES[0], col=EDGES[1], shape=(5, 7))
    with pytest.raises(DatasetError, match="square"):
        load(where, tmp_path / "g.npz")


def test_npz_with_everything_is_not_made_up(where: Roots, tmp_path: Path) -> None:
    masks = {f"{part}_mask": np.arange(6) % 3 == i for i, part in enumerate(("train", "val", "test"))}
    x, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, -1, 1])
    np.savez(tmp_path / "g.npz", edge_index=EDGES, x=x, y=y, **masks)
    dataset = load(where, tmp_path / "g.npz")
    assert dataset.label == "g"
    assert (dataset.x.tolist(), dataset.y.tolist(), dataset.num_classes) == (x.tolist(), y.tolist(), 3)
    assert dataset.train_mask.nonzero().flatten().tolist() == [0, 3]
    assert dataset.val_mask.nonzero().flatten().tolist() == [1]  # node 4 has no label


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "txt"])
def test_features_labels_and_split_from_files_beside(where: Roots, tmp_path: Path, kind: str) -> None:
    graph = write(tmp_path / "g.txt", LISTS["space.txt"])
    x, y = np.arange(15.0).reshape(5, 3) / 2, np.array([1, 0, 1, 0, 1])
    for name, values in (("x", x), ("y", y)):
        path = tmp_path / f"{name}.{kind}"
        if kind == "npy":
            np.save(path, values)
        elif kind == "npz":
            np.savez(path, values=values)
        else:
            np.savetxt(path, values, fmt="%g", delimiter="," if kind == "csv" else " ")
    if kind == "npz":
        split = tmp_path / "split.npz"
        np.savez(split, train=[0, 2], valid=[1], test=[3])
    else:
        split = write(tmp_path / "split.txt", "train\nval\ntrain\ntest\nnone\n")
    dataset = load(where, graph, features=tmp_path / f"x.{kind}", labels=tmp_path / f"y.{kind}", split=split)
    assert dataset.synthetic_parts == []
    assert (dataset.x.tolist(), dataset.y.tolist()) == (x.tolist(), y.tolist())
    masks = [getattr(dataset, f"{part}_mask").nonzero().flatten().tolist() for part in ("train", "val", "test")]
    assert masks == [[0, 2], [1], [3]]


def test_multilabel_and_sparse_features(where: Roots, tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.eye(5, 3))
    scipy.sparse.save_npz(tmp_path / "x.npz", scipy.sparse.csr_array(np.eye(5)))
    graph = write(tmp_path / "g.txt", LISTS["space.txt"])
    dataset = load(where, graph, labels=tmp_path / "y.npy", features=tmp_path / "x.npz")
    assert (dataset.multilabel, dataset.num_classes, dataset.metric) == (True, 3, "micro-F1")
    assert torch.equal(dataset.x, torch.eye(5))


def test_what_is_drawn_depends_on_the_seed_alone(where: Roots, tmp_path: Path) -> None:
    graph = write(tmp_path / "g.txt", "".join(f"{i} {i + 1}\n" for i in range(50)))
    first, again, other = (load(where, graph, seed=seed) for seed in (0, 0, 1))
    for key in ("x", "y", "train_mask"):
        assert torch.equal(getattr(first, key), getattr(again, key))
        assert not torch.equal(getattr(first, key), getattr(other, key))


def test_paths_are_also_looked_for_in_the_data_root(where: Roots) -> None:
    where.raw.mkdir()
    write(where.raw / "g.csv", LISTS["plain.csv"])
    assert load(where, Path("g.csv")).num_nodes == 5
    assert [offer.spec for offer in files.listing(where)] == ["g.csv"]


MTX = "%%MatrixMarket matrix coordinate pattern general\n"
BAD_GRAPHS = {
    "rectangular": ("g.mtx", MTX + "2 3 1\n1 1\n", "is a 2 x 3 matrix; a graph's adjacency must be square"),
    "entry outside": ("g.mtx", MTX + "2 2 1\n3 1\n", "g.mtx: cannot be read"),
    "no header": ("g.mtx", "1 2\n", "g.mtx: cannot be read"),
    "short matrix": ("g.mtx", MTX + "3 3 2\n1 2\n", "g.mtx: cannot be read"),
    "huge matrix": ("g.mtx", MTX + "2000000000 2000000000 1\n1 2\n", "number the nodes from 0 without gaps"),
    "dense": ("g.mtx", "%%MatrixMarket matrix array real general\n1 1\n1\n", "holds a dense matrix"),
    "empty": ("g.txt", "", "g.txt: holds no line of numbers"),
    "comments alone": ("g.txt", "# nothing\n", "g.txt: holds no line of numbers"),
    "one column": ("g.txt", "0\n1\n", "has 1 column; an edge list needs two"),
    "names": ("g.csv", "anna,bob\nbob,carl\n", "node ids must be whole numbers from 0; found 'bob'"),
    "fraction": ("g.csv", "0,1\n1,2.5\n", "node ids must be whole numbers from 0; found 2.5"),
    "hole": ("g.csv", "0,1\n1,\n", "node ids must be whole numbers from 0; found nan"),
    "negative": ("g.txt", "0 1\n-1 2\n", "node id -1 is out of range"),
    "gaps": ("g.txt", "0 1\n1 1999999999\n", "2 edges do not need 2000000000 nodes"),
    "beyond int32": ("g.txt", "0 1\n1 99999999999\n", "node id 1e\\+11 is out of range"),
    "one node": ("g.txt", "0 0\n", "has 1 node; a graph to train on needs at least two"),
    "no edges": ("g.mtx", MTX + "3 3 0\n", "has no edges"),
    "broken gzip": ("g.txt.gz", None, "g.txt.gz: cannot be read"),
    "not a zip": ("g.npz", "hello", "g.npz: cannot be read"),
    "not text": ("g.txt", "\x00\x01\x02 \x00", "g.txt: "),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_bad_graphs_are_refused_in_one_sentence(where: Roots, tmp_path: Path, case: str) -> None:
    name, text, message = BAD_GRAPHS[case]
    path = tmp_path / name
    if text is None:
        path.write_bytes(gzip.compress(b"0 1\n" * 1000)[:-10])
    else:
        write(path, text)
    with pytest.raises(DatasetError, match=message) as caught:
        load(where, path)
    assert "\n" not in str(caught.value)


BAD_ARRAYS = {
    "foreign keys": ({"user": [0], "item": [1]}, "holds item, user; a graph needs edge_index"),
    "wrong shape": ({"edge_index": np.zeros((3, 4), int)}, r"edges have shape \[3, 4\], but must be \[2, E\]"),
    "ragged": ({"row": [0, 1], "col": [1]}, "cannot be read"),
    "index out of range": (
        {"edge_index": [[0, 9], [1, 0]], "num_nodes": 3},
        "an edge names node 9, which is not there",
    ),
    "pickled": ({"edge_index": np.array([[0, "a"], [1, None]], object)}, "cannot be read.*allow_pickle=False"),
    "NaN": ({"edge_index": EDGES, "x": np.full((5, 2), np.nan)}, "features of node 0 hold NaN"),
    "infinity": ({"edge_index": EDGES, "x": np.diag([1, 1, 1, np.inf, 1])}, "features of node 3 hold NaN"),
    "too few features": ({"edge_index": EDGES, "x": np.ones((4, 2)), "num_nodes": 5}, r"have shape \[4, 2\]"),
    "too few labels": (
        {"edge_index": EDGES, "x": np.ones((5, 2)), "y": [0, 1]},
        r"shape \[2\], but must be \[5\]",
    ),
    "label too large": ({"edge_index": EDGES, "y": [0, 1, 2, 3, 10**9]}, "number the classes from 0"),
    "negative label": ({"edge_index": EDGES, "y": [0, 1, -2, 0, 0]}, "label -2 is outside the range"),
    "real label": ({"edge_index": EDGES, "y": [0, 0.5, 1, 0, 0]}, "labels must be whole numbers"),
    "multilabel of 2": ({"edge_index": EDGES, "y": np.full((5, 2), 2)}, "must each be 0 or 1"),
    "short mask": ({"edge_index": EDGES, "train_mask": [True]}, r"a split has shape \[1\]"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_archives_are_refused_in_one_sentence(where: Roots, tmp_path: Path, case: str) -> None:
    arrays, message = BAD_ARRAYS[case]
    np.savez(tmp_path / "g.npz", **{key: np.asarray(value) for key, value in arrays.items()})
    with pytest.raises(DatasetError, match=message) as caught:
        load(where, tmp_path / "g.npz")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("features", "1 2\n3 4\n", r"features have shape \[2, 2\], but the graph has 5 nodes"),
        ("features", "a\n" * 5, "holds 'a', but must hold numbers alone"),
        ("labels", "0\n1\n9\n1\n0\n", "class 9 among 5 targets"),
        ("split", "train\ntrian\n", "unknown split 'trian'; allowed: train, val, test, none"),
        ("split", "val\n" * 5, "the training split is empty"),
        ("split", "train\n", r"a split has shape \[1\], but the graph has 5 nodes"),
    ],
)
def test_bad_files_beside_are_refused(where: Roots, tmp_path: Path, key: str, text: str, message: str) -> None:
    graph = write(tmp_path / "g.txt", LISTS["space.txt"])
    with pytest.raises(DatasetError, match=message):
        load(where, graph, **{key: write(tmp_path / "beside.txt", text)})


def test_labels_outside_the_class_range(where: Roots, tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", edge_index=EDGES, y=[0, 1, 2, 0, 0])
    with pytest.raises(DatasetError, match="label 2 is outside the range of its 2 classes, 0 to 1"):
        load(where, tmp_path / "g.npz", classes=2)


def test_missing_and_unknown_files(where: Roots, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="there is no such file, neither here nor in"):
        load(where, tmp_path / "none.txt")
    with pytest.raises(DatasetError, match="is not a kind of graph file known here"):
        load(where, write(tmp_path / "g.png", "0 1\n"))
    with pytest.raises(ConfigError):
        datasets.parse("g.png")


def test_specs() -> None:
    for spec in ("g.mtx", "folder/G.MTX", "a.npz", "b.txt.gz", "c.tsv"):
        assert datasets.parse(spec) == {"source": "files", "path": spec}


@needs_data
@pytest.mark.parametrize(
    ("path", "nodes", "edges"),
    [
        ("edgelists/ego-facebook/raw/facebook_combined.txt.gz", 4_039, 88_234),
        ("edgelists/ego-twitter/raw/ego-twitter-undirected.txt.gz", 81_306, 1_342_310),
    ],
)
def test_real_edge_lists(tmp_path: Path, path: str, nodes: int, edges: int) -> None:
    dataset = load(Roots(REAL, tmp_path), Path(path), random_features=4)
    assert (dataset.num_nodes, dataset.edge_index.size(1)) == (nodes, edges)
