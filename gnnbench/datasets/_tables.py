"""Read graphs, matrices and splits from files into NumPy arrays, and check them; nothing is ever unpickled."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.io import mmread
from scipy.sparse import coo_array, csr_array, load_npz
from torch import Tensor

from gnnbench.datasets import _prepare
from gnnbench.errors import DatasetError

Arrays = dict[str, Any]
SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
NPZ_EXTRAS = ("x", "y", "train_mask", "val_mask", "test_mask", "num_nodes")


def read_mtx(path: Path) -> Arrays:
    """Matrix Market, with values or pattern; `symmetric` ones are expanded; entry (i, j) is the edge i to j."""
    return _from_matrix(path, mmread(path))


def read_npz(path: Path) -> Arrays:
    """`edge_index` [2, E], or `row` and `col`, or `rowptr` and `col` (rows are sources), or scipy's `save_npz`.

    Beside it `x`, `y`, `train_mask`, `val_mask`, `test_mask` and `num_nodes`, as PyG calls them.
    """
    with np.load(_opened(path), allow_pickle=False) as archive:
        keys = {*archive.files}
        if "graph_ptr" in keys:
            raise DatasetError(
                f"{path}: holds many graphs; save them with torch_geometric.data.InMemoryDataset.save(graphs, "
                f"'{path.stem}.pt'), which is read"
            )
        pick = {name: archive[name] for name in NPZ_EXTRAS if name in keys}
        pointers, columns = ("indptr", "indices") if "indptr" in keys else ("rowptr", "col")
        if "edge_index" in keys:
            return pick | {"edge_index": whole_edges(path, archive["edge_index"])}
        elif "format" in keys:
            matrix = load_npz(_opened(path))
        elif {pointers, columns} <= keys:
            rowptr, col = archive[pointers], archive[columns]
            rows = len(rowptr) - 1
            shape = archive["shape"] if "shape" in keys else (rows, max(rows, int(col.max(initial=-1)) + 1))
            matrix = csr_array((np.ones(len(col)), col, rowptr), shape=tuple(shape))
        elif {"row", "col", "shape"} <= keys:
            entries = archive["row"], archive["col"]
            matrix = coo_array((np.ones(len(entries[0])), entries), tuple(archive["shape"]))
        elif {"row", "col"} <= keys:
            edges = np.stack([archive["row"], archive["col"]])
            return pick | {"edge_index": whole_edges(path, edges)}
        else:
            raise DatasetError(
                f"{path}: holds {', '.join(sorted(keys)) or 'nothing'}; a graph needs edge_index, "
                f"or row and col, or rowptr and col"
            )
    return pick | _from_matrix(path, matrix)


def read_edge_list(path: Path) -> Arrays:
    """Two columns of ids from 0, by white space, comma or semicolon, and perhaps weights, which are not used.

    A header is skipped, and so are lines that start with `#` or `%`.
    """
    table = _table(path)
    if table.shape[1] < 2:
        raise DatasetError(f"{path}: has {table.shape[1]} column; an edge list needs two, source and destination")
    return {"edge_index": whole_edges(path, table[:, :2].T), "weighted": table.shape[1] > 2}


def read_matrix(path: Path) -> np.ndarray:
    """Numbers in `.npy`, in the only array of an `.npz`, in scipy's `.npz`, or in text."""
    if path.suffix == ".npy":
        values = np.load(path, allow_pickle=False)
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            values = archive[names[0]]
        if "format" in names:
            values = load_npz(path).toarray()
        elif len(names) != 1:
            raise DatasetError(f"{path}: holds {', '.join(names)}; keep one array in it")
    else:
        values = _table(path)
    if values.dtype.kind not in "biuf":
        raise DatasetError(f"{path}: holds {_not_a_number(values)!r}, but must hold numbers alone")
    return values


def read_split(path: Path) -> Arrays:
    """`train_mask`, `val_mask` and `test_mask` (bool, or node ids), from an `.npz` or from one word per node."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            named = {key: SPLIT_WORDS.get(key.removesuffix("_mask")) for key in archive.files}
            parts = {
                f"{split}_mask": archive[key].astype(bool) if key.endswith("_mask") else archive[key]
                for key, split in named.items()
                if split
            }
        if "train_mask" not in parts:
            raise DatasetError(f"{path}: holds {', '.join(named)}; a split needs train, val and test")
        return parts
    words = [line.lower() for line in _lines(path)]
    if unknown := set(words) - SPLIT_WORDS.keys() - {"none", ""}:
        raise DatasetError(f"{path}: unknown part {min(unknown)!r}; allowed: train, val, test, none")
    spelled = np.array([SPLIT_WORDS.get(word, "") for word in words])
    return {f"{split}_mask": spelled == split for split in ("train", "val", "test")}


def mask(path: Path, values: np.ndarray | None, nodes: int) -> Tensor:
    """[N] bool from such a mask or from node ids."""
    if values is None:
        return torch.zeros(nodes, dtype=torch.bool)
    if values.dtype == bool:
        if values.shape != (nodes,):
            raise DatasetError(f"{path}: a part has shape {list(values.shape)}, but the graph has {nodes} nodes")
        return torch.from_numpy(values)
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise DatasetError(f"{path}: a part must be a mask or a list of node ids")
    ids = torch.from_numpy(values.astype("int64"))
    _prepare.check_range(str(path), "a part", ids, nodes)
    return _prepare.mask_of(nodes, ids)


def _opened(path: Path) -> Any:
    return gzip.open(path) if path.suffix == ".gz" else path


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        yield from map(str.strip, file)


def _table(path: Path) -> np.ndarray:
    """The columns of a text file without comments and header."""
    skip, separator = _start(path)
    table = pd.read_csv(path, sep=separator, skiprows=skip, header=None, comment="#", skipinitialspace=True)
    if separator == r"\s+":
        return table.to_numpy()
    return table.dropna(axis=1, how="all").to_numpy()  # a separator at the end of every line


def _start(path: Path) -> tuple[int, str]:
    """How many lines come before the numbers, and what separates those."""
    header_seen = False
    for number, text in enumerate(_lines(path)):
        if not text or text[0] in "#%":
            continue
        separator = next((mark for mark in ",;" if mark in text), r"\s+")
        if header_seen or _is_number(re.split(r"[,;\s]+", text)[0]):
            return number, separator
        header_seen = True
    raise DatasetError(f"{path}: holds no line of numbers")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _not_a_number(values: np.ndarray) -> Any:
    return next((value for value in values.flat if not _is_number(str(value))), values.flat[0])


def _from_matrix(path: Path, matrix: Any) -> Arrays:
    if isinstance(matrix, np.ndarray):
        raise DatasetError(f"{path}: holds a dense matrix; store the graph's edges in coordinate format")
    rows, cols = matrix.shape
    if rows != cols:
        raise DatasetError(f"{path}: is a {rows} x {cols} matrix; a graph's adjacency must be square")
    entries = matrix.tocoo()
    edges = np.stack([entries.row, entries.col])
    weighted = bool((entries.data != 1).any())
    return {"edge_index": whole_edges(path, edges), "num_nodes": rows, "weighted": weighted}


def whole_edges(path: Path, edges: np.ndarray) -> np.ndarray:
    """[2, E] int64 from any numbers that are whole."""
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise DatasetError(f"{path}: edges have shape {list(edges.shape)}, but must be [2, E]")
    if edges.dtype.kind not in "iuf":
        raise DatasetError(f"{path}: node ids must be whole numbers from 0; found {_not_a_number(edges)!r}")
    if edges.dtype.kind == "f" and not bool((edges == np.rint(edges)).all()):
        wrong = edges[edges != np.rint(edges)][0]
        raise DatasetError(f"{path}: node ids must be whole numbers from 0; found {wrong}")
    if edges.size and (edges.min() < 0 or edges.max() >= 2**31):
        wrong = edges.min() if edges.min() < 0 else edges.max()
        raise DatasetError(f"{path}: node id {wrong:g} is out of range; ids go from 0 to {2**31 - 1}")
    return np.ascontiguousarray(edges, np.int64)
