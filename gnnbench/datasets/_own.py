"""Your own files, read: a graph and what is beside it, a list of links, many graphs, a folder by types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.io import read_tu_data

from gnnbench.datasets import _prepare, _raw, _tables, _union
from gnnbench.datasets._kinds import EVALUATED, MASKS, PARTS, GraphsDataset, LinksDataset, NodeDataset
from gnnbench.datasets._typed import TypedDataset
from gnnbench.errors import DatasetError

SPARSEST = 100  # nodes per edge beyond which ids are taken to have gaps
COLUMNS = ("source", "destination", "part")
OPTIONAL = ("type", "label")
MESSAGE = "message"  # in place of a part: an edge that is no link
ADJACENCY = "_A.txt"
BETWEEN = "__"  # source, name and destination in the name of a file of edges
EDGES = {".npz": _tables.read_npz, **dict.fromkeys((".csv", ".tsv", ".txt", ".edges"), _tables.read_edge_list)}
OF_TYPE = re.compile(r"(.+)\.(x|y|split)\.(.+)")
ENDINGS = ("npy", "npz", *(text + packed for text in ("csv", "tsv", "txt") for packed in ("", ".gz")))
READERS: dict[str, Callable[[Path], Any]] = {  # of files beside a graph, by what they hold of its nodes
    "x": _tables.read_matrix,
    "y": _tables.read_matrix,
    "split": _tables.read_split,
}


def read_graph(path: Path, beside: Mapping[str, Path], classes: int) -> NodeDataset:
    """A graph in one file.

    Args:
        beside: files of its "x", "y" and "split", in place of what it holds itself.
        classes: their number; 0 for as many as the labels name.

    Raises:
        DatasetError: a file is corrupt, or does not fit the others.
    """
    formats = {".mtx": _tables.read_mtx, ".npz": _tables.read_npz}
    arrays = _raw.read(path, formats.get(_raw.suffix(path), _tables.read_edge_list))
    if "x" in arrays and arrays["x"].ndim:  # beside its own features, an edge beyond them is out of range
        arrays.setdefault("num_nodes", len(arrays["x"]))
    arrays |= _read(beside)
    nodes = _num_nodes(path, arrays)
    y = _targets(beside.get("y", path), arrays["y"]) if "y" in arrays else torch.full((nodes,), -1)
    named = beside.get("split", path)
    masks: dict[str, Any] = {part: _tables.mask(named, arrays.get(part), nodes) for part in MASKS}
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

    Raises:
        DatasetError: a column, a part, a label or an id that cannot be.
    """
    parts = _raw.read(path, _links)
    arrays = {"edge_index": parts.pop("pairs").numpy()} | _read(beside)
    x = _features(beside.get("x", path), arrays.get("x"), _num_nodes(path, arrays))
    return LinksDataset(_plain_name(path), x=x, **parts)


def _read(paths: Mapping[str, Path]) -> _tables.Arrays:
    """The arrays of files of nodes, and the masks of one that is a split."""
    arrays = {what: _raw.read(path, READERS[what]) for what, path in paths.items()}
    masks = arrays.pop("split", {})
    return arrays | masks


def _targets(path: Path, values: np.ndarray) -> Tensor:
    return _prepare.targets(str(path), torch.from_numpy(values.astype("float64")))


def _plain_name(path: Path) -> str:
    return path.name[: path.name.lower().rindex(_raw.suffix(path))]


def _num_nodes(path: Path, arrays: _tables.Arrays) -> int:
    """As many as the graph's file says, else as edges name or as have features or labels."""
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
        raise DatasetError(f"{path}: label {classes - 1} among {len(y)} nodes; number the classes from 0")
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
    part = table["part"].astype(str).str.strip().str.lower().replace(_tables.SPLIT_WORDS)
    _check(path, part, part.isin(["train", *EVALUATED, MESSAGE]), f"train, val, test, {MESSAGE}")
    label = table["label"] if "label" in table else part.eq(part).astype(int)
    _check(path, label, label.isin([0, 1]), "1 for a link, 0 for a pair that is none")
    negative = part[label.eq(0)]
    _check(path, negative, negative.isin(EVALUATED), "val, test beside label 0; negatives of training are drawn")
    pairs = torch.from_numpy(_tables.whole_edges(path, table[["source", "destination"]].to_numpy().T))

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
    """Graphs in a file, or in a folder of such files for each part of the split, or of TUDataset's.

    A file is what `torch_geometric.data.InMemoryDataset.save` writes of a list of `Data`. Their `y` tells the
    task: whole numbers are classes of graphs, or of nodes where there is one for each; the real numbers 0, 1 and
    NaN are answers to yes-or-no questions; other real numbers are values to regress.

    Raises:
        DatasetError: nothing of the kind is there; corrupt; or classes that are not numbered from 0.
    """
    files = [path] if path.is_file() else [file for part in PARTS if (file := path / f"{part}.pt").is_file()]
    texts = [] if files else sorted(path.glob(f"*{ADJACENCY}"))
    name = path.resolve().name.removesuffix(".pt")
    if not files and not texts:
        raise DatasetError(f"{path}: holds neither train.pt, val.pt and test.pt nor NAME_A.txt and its companions")
    prefix = texts[0].name.removesuffix(ADJACENCY) if texts else ""
    with _raw.reading(prefix or path.name, files or sorted(path.glob(f"{prefix}_*.txt"))), _raw.quiet():
        if texts:
            data, slices, _ = read_tu_data(str(path), prefix)
            graphs = _union.of(name, SimpleNamespace(_data=data, slices=slices))
        elif path.is_file():
            graphs = _union.of(name, _saved(path))
        else:
            graphs = _union.of(name, {file.stem: _saved(file) for file in files})
    y = graphs.y
    if graphs.target == "value" and bool(((y == 0) | (y == 1) | y.isnan()).all()):
        graphs = replace(graphs, target="labels", metric="")
    if graphs.target == "class":
        if not classes and graphs.num_outputs > max(len(y), 2):
            largest = graphs.num_outputs - 1
            raise DatasetError(f"{name}: class {largest} among {len(y)} targets; number the classes from 0")
        graphs.num_outputs = classes or graphs.num_outputs
    graphs.x, graphs.edge_attr = graphs.x.float(), None if graphs.edge_attr is None else graphs.edge_attr.float()
    return graphs


def _saved(path: Path) -> SimpleNamespace:
    with _raw.reading(path.name, [path]):
        fields, slices, *_ = torch.load(path)
        return SimpleNamespace(_data=Data.from_dict(fields), slices=slices)


def is_typed(folder: Path) -> bool:
    """Return whether a folder holds files of relations."""
    return any(BETWEEN in path.name and _raw.suffix(path) in EDGES for path in folder.iterdir())


def read_types(folder: Path) -> TypedDataset:
    """Read `SOURCE__NAME__DESTINATION.csv` for each relation, and `TYPE.x.npy`, `TYPE.y.csv`, `TYPE.split.txt`.

    A type has as many nodes as rows of features or labels, or else as edges name.

    Raises:
        DatasetError: a name that is no relation's or of no type; a file that is broken, or does not fit others.
    """
    name, data = folder.resolve().name, HeteroData()
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    edges: dict[tuple[str, str, str], Path] = {}
    for path in files:
        if BETWEEN in path.name and _raw.suffix(path) in EDGES:
            _once(edges, _relation(path), path)
    types = list(dict.fromkeys(kind for source, _, destination in edges for kind in (source, destination)))
    largest = dict.fromkeys(types, -1)
    for relation, path in edges.items():
        edge_index = _raw.read(path, EDGES[_raw.suffix(path)])["edge_index"]
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
        for part, each in values.items():
            store[part] = _tables.mask(paths["split"], each, store.num_nodes)
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
