"""Your own files, read and checked: a graph and what is beside it, a list of links, many graphs, a folder by type.

Text, matrices and arrays become NumPy arrays; nothing is ever unpickled.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.io import mmread
from scipy.sparse import coo_array, csr_array, load_npz
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.io import read_tu_data

from gnnbench.datasets import GraphsDataset, LinksDataset, NodeDataset, TypedDataset, _disk, _prepare
from gnnbench.datasets._kinds import EVALUATED, MASKS, SPLITS
from gnnbench.datasets._prepare_graphs import from_pyg
from gnnbench.errors import DatasetError

Arrays = dict[str, Any]
SPARSEST = 100  # nodes per edge beyond which ids are taken to have gaps
COLUMNS = ("source", "destination", "part")
OPTIONAL = ("type", "label")
MESSAGE = "message"  # in place of a part: an edge that is no link
SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
ADJACENCY = "_A.txt"
BETWEEN = "__"  # source, name and destination in the name of a file of edges
EDGES = (".npz", ".csv", ".tsv", ".txt", ".edges")  # how it ends, gzipped or not
OF_TYPE = re.compile(r"(.+)\.(x|y|split)\.(.+)")
ENDINGS = ("npy", "npz", *(text + packed for text in ("csv", "tsv", "txt") for packed in ("", ".gz")))


def read_graph(path: Path, beside: Mapping[str, Path], classes: int) -> NodeDataset:
    """A graph in one file.

    Args:
        beside: files of its "x", "y" and "split", in place of what it holds itself.
        classes: their number; 0 for as many as the labels name.
    """
    arrays = _edges(path)
    if "x" in arrays and arrays["x"].ndim:  # beside its own features, an edge beyond them is out of range
        arrays.setdefault("num_nodes", len(arrays["x"]))
    arrays |= _read(beside)
    nodes = _num_nodes(path, arrays)
    y = _targets(beside.get("y", path), arrays["y"]) if "y" in arrays else torch.full((nodes,), -1)
    named = beside.get("split", path)
    masks: dict[str, Any] = {name: mask(named, arrays.get(name), nodes) for name in MASKS}
    if "split" in beside and not bool(masks["train_mask"].any()):
        raise DatasetError(f"{named}: the training split is empty; name some nodes 'train'")
    return NodeDataset(
        _plain_name(path),
        torch.from_numpy(arrays["edge_index"]),
        _features(beside.get("x", path), arrays.get("x"), nodes),
        y,
        **masks,
        num_classes=classes or _num_classes(beside.get("y", path), y),
        notes=[f"the weights in {path.name} are not used"] if arrays.get("weighted") else [],
    )


def read_links(path: Path, beside: Mapping[str, Path]) -> LinksDataset:
    """Links with their parts, in a table of `COLUMNS`, some of `OPTIONAL`, and `beside` of the "x" of their nodes.

    Messages run over lines of part `message`; where there are none, over training links in both directions.
    """
    parts = _disk.read(path, _links)
    arrays = {"edge_index": parts.pop("pairs").numpy()} | _read(beside)
    x = _features(beside.get("x", path), arrays.get("x"), _num_nodes(path, arrays))
    return LinksDataset(_plain_name(path), x=x, **parts)


def _edges(path: Path) -> Arrays:
    formats = {".mtx": read_mtx, ".npz": read_npz}
    return _disk.read(path, formats.get(_disk.suffix(path), read_edge_list))


def _read(paths: Mapping[str, Path]) -> Arrays:
    """The arrays of files of nodes, and the masks of one that is a split."""
    arrays = {what: _disk.read(path, read_matrix) for what, path in paths.items() if what != "split"}
    return arrays | (_disk.read(paths["split"], read_split) if "split" in paths else {})


def _targets(path: Path, values: np.ndarray) -> Tensor:
    return _prepare.targets(str(path), torch.from_numpy(values.astype("float64")))


def _plain_name(path: Path) -> str:
    return path.name[: path.name.lower().rindex(_disk.suffix(path))]


def _num_nodes(path: Path, arrays: Arrays) -> int:
    """Count as many as the graph's file says, else as edges name or as have features or labels."""
    edges = arrays["edge_index"]
    beside = [len(arrays[key]) for key in ("x", "y") if key in arrays and arrays[key].ndim]
    nodes = int(arrays.get("num_nodes", max([*beside, int(edges.max(initial=-1)) + 1])))
    if not beside and nodes > SPARSEST * (edges.shape[1] + 10):
        raise DatasetError(
            f"{path}: {edges.shape[1]} edges do not need {nodes} nodes; number the nodes from 0 without gaps"
        )
    return nodes


def _features(path: Path, values: np.ndarray | None, nodes: int) -> Tensor:
    if values is None:
        return torch.empty(nodes, 0)
    if values.ndim != 2 or len(values) != nodes:
        raise DatasetError(
            f"{path}: features have shape {list(values.shape)}, but the graph has {nodes} nodes; give one row each"
        )
    return torch.from_numpy(values.astype("float32"))


def _num_classes(path: Path, y: Tensor) -> int:
    if y.dim() == 2:
        return y.size(1)
    classes = int(y.max()) + 1 if y.numel() else 0
    if classes > max(len(y), 2):
        raise DatasetError(f"{path}: class {classes - 1} among {len(y)} targets; number the classes from 0")
    return classes


def _links(path: Path) -> dict[str, Any]:
    """Read arguments of `LinksDataset`, but for its name and x, and all `pairs` [2, P] that the file names."""
    table = pd.read_csv(path, skipinitialspace=True, comment="#")
    table.columns = [str(name).strip().lower() for name in table.columns]
    named = sorted({*table.columns})
    if not {*COLUMNS} <= {*named} <= {*COLUMNS, *OPTIONAL}:
        raise DatasetError(
            f"{path}: has columns {', '.join(named)}; a file of links needs {', '.join(COLUMNS)}, and may have "
            f"{' and '.join(OPTIONAL)}"
        )
    part = table["part"].astype(str).str.strip().str.lower().replace(SPLIT_WORDS)
    _check(path, part, part.isin(["train", *EVALUATED, MESSAGE]), f"train, val, test, {MESSAGE}")
    label = table["label"] if "label" in table else part.eq(part).astype(int)
    _check(path, label, label.isin([0, 1]), "1 for a link, 0 for a pair that is none")
    negative = part[label.eq(0)]
    _check(path, negative, negative.isin(EVALUATED), "val, test beside label 0; negatives of training are drawn")
    pairs = torch.from_numpy(whole_edges(path, table[["source", "destination"]].to_numpy().T))

    def where(name: str, kind: int = 1) -> Tensor:
        return torch.from_numpy((part.eq(name) & label.eq(kind)).to_numpy())

    positives = {name: pairs[:, where(name)] for name in ("train", *EVALUATED)}
    messages, train = pairs[:, where(MESSAGE)], positives["train"]
    result: dict[str, Any] = {
        "edge_index": messages if messages.numel() else torch.cat([train, train.flip(0)], 1).unique(dim=1),
        "positives": positives,
        "negatives": {name: pairs[:, where(name, 0)] for name in EVALUATED} if label.eq(0).any() else {},
        "pairs": pairs,
    }
    if "type" in table:
        typed = pd.to_numeric(table["type"], errors="coerce").where(part.ne(MESSAGE) & label.eq(1), 0)
        is_type = (typed >= 0) & (typed == typed.round()) & (typed < len(table))
        _check(path, table["type"], is_type, "whole numbers from 0 without gaps")
        kinds = torch.from_numpy(typed.astype("int64").to_numpy())
        result["relations"] = {name: kinds[where(name)] for name in positives}
        result["num_relations"] = int(kinds.max()) + 1
    return result


def _check(path: Path, column: pd.Series[Any], fits: pd.Series[bool], allowed: str) -> None:
    if not fits.all():
        raise DatasetError(f"{path}: found {column.name} {column[~fits].iloc[0]}; allowed: {allowed}")


def read_graphs(path: Path, classes: int) -> GraphsDataset:
    """Graphs in a file, or in a folder of such files for each split, or of TUDataset's.

    A file is what `torch_geometric.data.InMemoryDataset.save` writes of a list of `Data`. Their `y` tells the
    task: whole numbers are classes of graphs, or of nodes where there is one for each; the real numbers 0, 1 and
    NaN are answers to yes-or-no questions; other real numbers are values to regress.
    """
    files = [path] if path.is_file() else [file for split in SPLITS if (file := path / f"{split}.pt").is_file()]
    texts = [] if files else sorted(path.glob(f"*{ADJACENCY}"))
    name = path.resolve().name.removesuffix(".pt")
    if not files and not texts:
        raise DatasetError(f"{path}: holds neither train.pt, val.pt and test.pt nor NAME_A.txt and its companions")
    prefix = texts[0].name.removesuffix(ADJACENCY) if texts else ""
    with _disk.reading(prefix or path.name, files or sorted(path.glob(f"{prefix}_*.txt"))), _disk.quiet():
        if texts:
            data, slices, _ = read_tu_data(str(path), prefix)
            graphs = from_pyg(name, SimpleNamespace(_data=data, slices=slices))
        elif path.is_file():
            graphs = from_pyg(name, _saved(path))
        else:
            graphs = from_pyg(name, {file.stem: _saved(file) for file in files})
    y = graphs.y
    if graphs.target == "value" and bool(((y == 0) | (y == 1) | y.isnan()).all()):
        graphs = replace(graphs, target="labels", metric="")
    if graphs.target == "class":
        graphs.num_outputs = classes or _num_classes(path, y)
    graphs.x, graphs.edge_attr = graphs.x.float(), None if graphs.edge_attr is None else graphs.edge_attr.float()
    return graphs


def _saved(path: Path) -> SimpleNamespace:
    with _disk.reading(path.name, [path]):
        fields, slices, *_ = torch.load(path)
        return SimpleNamespace(_data=Data.from_dict(fields), slices=slices)


def is_typed(folder: Path) -> bool:
    """Return whether a folder holds files of relations."""
    return any(BETWEEN in path.name and _disk.suffix(path) in EDGES for path in folder.iterdir())


def read_types(folder: Path) -> TypedDataset:
    """Read `SOURCE__NAME__DESTINATION.csv` for each relation, and `TYPE.x.npy`, `TYPE.y.csv`, `TYPE.split.txt`.

    A type has as many nodes as rows of features or labels, or else as edges name.
    """
    name, data = folder.resolve().name, HeteroData()
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    edges: dict[tuple[str, str, str], Path] = {}
    for path in files:
        if BETWEEN in path.name and _disk.suffix(path) in EDGES:
            _once(edges, _relation(path), path)
    types = list(dict.fromkeys(kind for source, _, destination in edges for kind in (source, destination)))
    largest = dict.fromkeys(types, -1)
    for relation, path in edges.items():
        edge_index = _edges(path)["edge_index"]
        data[relation].edge_index = torch.from_numpy(edge_index)
        for kind, ids in zip((relation[0], relation[2]), edge_index, strict=True):
            largest[kind] = max(largest[kind], int(ids.max(initial=-1)))
    given: dict[str, dict[str, Path]] = {kind: {} for kind in types}
    for path in files:
        if BETWEEN not in path.name and (found := OF_TYPE.fullmatch(path.name)):
            kind, what, ending = found.groups()
            if kind not in types:
                raise DatasetError(
                    f"{path}: is of type {kind!r}, which no relation has; types are {', '.join(types)}"
                )
            if ending not in ENDINGS:
                raise DatasetError(f"{path}: ends in .{ending}, but may in .{', .'.join(ENDINGS)}; remove it")
            _once(given[kind], what, path)
    for kind, paths in given.items():
        if "split" in paths and "y" not in paths:
            raise DatasetError(f"{paths['split']}: splits nodes without labels; add {kind}.y.csv, or remove it")
        values, store = _read(paths), data[kind]
        if "x" in values:
            store.x = torch.from_numpy(values.pop("x").astype("float32"))
        if "y" in values:
            store.y = _targets(paths["y"], values.pop("y"))
        sizes = [len(store[key]) for key in ("x", "y") if key in store]
        store.num_nodes = max(sizes, default=largest[kind] + 1)
        for key, each in values.items():
            store[key] = mask(paths["split"], each, store.num_nodes)
    return _prepare.typed(name, data)


def _once(known: dict[Any, Path], key: Any, path: Path) -> None:
    if key in known:
        raise DatasetError(f"{path}: is the second file of its kind beside {known[key].name}; remove one of them")
    known[key] = path


def _relation(path: Path) -> tuple[str, str, str]:
    parts = path.name.removesuffix(".gz").rpartition(".")[0].split(BETWEEN)
    if len(parts) != 3 or not all(parts):
        raise DatasetError(
            f"{path}: the name of a file of edges is SOURCE__NAME__DESTINATION, such as author__writes__paper.csv"
        )
    return parts[0], parts[1], parts[2]


def read_mtx(path: Path) -> Arrays:
    """Matrix Market, with values or pattern; `symmetric` ones are expanded; entry (i, j) is the edge i to j."""
    return _from_matrix(path, mmread(path))


def read_npz(path: Path) -> Arrays:
    """`edge_index` [2, E], or `row` and `col`, or `rowptr` and `col` (rows are sources), or scipy's `save_npz`.

    Beside it `x`, `y`, `train_mask`, `val_mask`, `test_mask` and `num_nodes`, as PyG calls them.
    """
    with (
        gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file,
        np.load(file, allow_pickle=False) as archive,
    ):
        keys = {*archive.files}
        if "graph_ptr" in keys:
            raise DatasetError(
                f"{path}: holds many graphs; save them with torch_geometric.data.InMemoryDataset.save(graphs, "
                f"'{path.stem}.pt'), which is read"
            )
        pick = {name: archive[name] for name in ("x", "y", *MASKS, "num_nodes") if name in keys}
        pointers, columns = ("indptr", "indices") if "indptr" in keys else ("rowptr", "col")
        if "edge_index" in keys:
            return pick | {"edge_index": whole_edges(path, archive["edge_index"])}
        elif "format" in keys:
            file.seek(0)
            matrix = load_npz(file)
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
            masks = {
                f"{split}_mask": archive[key].astype(bool) if key.endswith("_mask") else archive[key]
                for key, split in named.items()
                if split
            }
        if "train_mask" not in masks:
            raise DatasetError(f"{path}: holds {', '.join(named)}; a split needs train, val and test")
        return masks
    words = [line.lower() for line in _lines(path)]
    if unknown := set(words) - SPLIT_WORDS.keys() - {"none", ""}:
        raise DatasetError(f"{path}: unknown split {min(unknown)!r}; allowed: train, val, test, none")
    spelled = np.array([SPLIT_WORDS.get(word, "") for word in words])
    return {f"{split}_mask": spelled == split for split in ("train", "val", "test")}


def mask(path: Path, values: np.ndarray | None, nodes: int) -> Tensor:
    """[N] bool from such a mask or from node ids."""
    if values is None:
        return torch.zeros(nodes, dtype=torch.bool)
    if values.dtype == bool:
        if values.shape != (nodes,):
            raise DatasetError(f"{path}: a split has shape {list(values.shape)}, but the graph has {nodes} nodes")
        return torch.from_numpy(values)
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise DatasetError(f"{path}: a split must be a mask or a list of node ids")
    ids = torch.from_numpy(values.astype("int64"))
    _prepare.check_range(str(path), "a split", ids, nodes)
    return _prepare.mask_of(nodes, ids)


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
