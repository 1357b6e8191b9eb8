"""A user's own graphs: many in one `.npz`, or a folder with an edge list for each."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnbench.datasets import GraphsDataset, _prepare_graphs, _raw, _tables
from gnnbench.datasets._graphs import PARTS, Target
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

INDEX = "graphs.csv"
COLUMNS = ["graph", "class", "part"]


def holds_graphs(path: Path) -> bool:
    """Return whether an `.npz` is of many graphs: it then has a `graph_ptr`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "graph_ptr.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False  # whoever reads it next says what is wrong with it


def read_npz(path: Path, classes: int) -> GraphsDataset:
    """Graphs after each other in the arrays of one `.npz`.

    Keys:
        graph_ptr: [G + 1]; the nodes of graph g are graph_ptr[g] up to graph_ptr[g + 1].
        edge_index: [2, E] source and destination. With `edge_ptr`, numbered from 0 in each graph; without it,
            numbered through all graphs, in any order.
        edge_ptr: [G + 1], optional; the edges of graph g are edge_ptr[g] up to edge_ptr[g + 1].
        x, edge_attr: [N, F] and [E, D] numbers, optional.
        y: whole numbers [G] or [N]: classes of graphs or nodes; [G, T] or [N, T] of 0, 1 and NaN: labels; other
            real numbers: values to regress. Optional.
        train, val, test: ids of graphs or masks [G], optional.

    Raises:
        DatasetError: corrupt, or arrays that do not fit each other.
    """
    import numpy as np
    import torch

    with _raw.reading(path.name, [path]), _raw.quiet(), np.load(path, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in archive.files}
    if "edge_index" not in arrays:
        raise DatasetError(f"{path}: holds {', '.join(sorted(arrays))}; graphs need edge_index beside graph_ptr")
    graph_ptr = _pointer(path, "graph_ptr", arrays)
    edges = torch.from_numpy(_tables.whole_edges(path, arrays["edge_index"]))
    edge_attr = _table(path, "edge_attr", arrays)
    if "edge_ptr" in arrays:
        edge_ptr = _pointer(path, "edge_ptr", arrays)
    else:
        edges, edge_ptr, order = _grouped(path, edges, graph_ptr)
        if edge_attr is not None and len(edge_attr) == len(order):
            edge_attr = edge_attr[order]
    nodes, graphs = int(graph_ptr[-1]), len(graph_ptr) - 1
    x = _table(path, "x", arrays)
    if x is not None and len(x) != nodes:
        raise DatasetError(
            f"{path}: x has {len(x)} rows, but graph_ptr ends at {nodes} nodes; give one row a node"
        )
    y, target = _targets(path, arrays["y"]) if "y" in arrays else (torch.full((graphs,), -1), "class")
    return _dataset(
        path.name.removesuffix(".npz"),
        graph_ptr=graph_ptr,
        edge_ptr=edge_ptr,
        edge_index=edges.int(),
        x=torch.empty(nodes, 0) if x is None else x,
        y=y,
        parts={part: _ids(path, part, arrays[part], graphs) for part in PARTS if part in arrays},
        target=target,
        classes=classes,
        per_node=len(y) == nodes != graphs,
        edge_attr=edge_attr,
    )


def read_folder(folder: Path, classes: int) -> GraphsDataset:
    """One edge list per graph, and `graphs.csv` with the columns graph, class and, if wanted, part.

    `graph` names a file of the folder; a graph has as many nodes as its edges name. `part` is train, val, test or
    empty.

    Raises:
        DatasetError: a file is missing or corrupt, or a class is no whole number.
    """
    import torch

    index = folder / INDEX
    if not index.is_file():
        raise DatasetError(
            f"{index}: there is no such file; a folder of graphs needs it, with the columns graph,class,part"
        )
    with _raw.reading(index.name, [index]), index.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    if not rows or not {"graph", "class"} <= rows[0].keys() <= set(COLUMNS):
        columns = ", ".join(map(str, rows[0])) if rows else "no rows"
        raise DatasetError(f"{index}: has {columns}; give it the columns {','.join(COLUMNS)} and a row per graph")
    lists, y, parts = [], [], {part: [] for part in PARTS}  # type: ignore[var-annotated]
    for graph, row in enumerate(rows):
        path = folder / row["graph"]
        if not path.is_file():
            raise DatasetError(f"{index}: graph {graph} is {row['graph']}, but there is no such file in {folder}")
        with _raw.reading(path.name, [path]), _raw.quiet():
            lists.append(torch.from_numpy(_tables.read_edge_list(path)["edge_index"]))
        y.append(_class(index, graph, row["class"]))
        word = (row.get("part") or "").strip().lower()
        if word and word not in _tables.SPLIT_WORDS:
            raise DatasetError(f"{index}: the part of graph {graph} is {word!r}; allowed: {', '.join(PARTS)}")
        if word:
            parts[_tables.SPLIT_WORDS[word]].append(graph)
    sizes = torch.tensor([int(edges.max()) + 1 for edges in lists])
    counts = torch.tensor([edges.size(1) for edges in lists])
    return _dataset(
        folder.resolve().name,
        graph_ptr=_ptr(sizes),
        edge_ptr=_ptr(counts),
        edge_index=torch.cat(lists, 1).int(),
        x=torch.empty(int(sizes.sum()), 0),
        y=torch.tensor(y),
        parts={part: torch.tensor(ids, dtype=torch.long) for part, ids in parts.items()},
        target="class",
        classes=classes,
    )


def _dataset(name: str, *, y: Tensor, target: Target, classes: int, **fields: Any) -> GraphsDataset:
    largest = int(y.max()) if target == "class" and y.numel() else -1
    if not classes and largest >= max(len(y), 2):
        raise DatasetError(f"{name}: class {largest} among {len(y)} targets; number the classes from 0")
    outputs = (classes or largest + 1) if target == "class" else y.size(1)
    metric = _prepare_graphs.plain_metric(target, outputs)
    return GraphsDataset(name, y=y, target=target, num_outputs=outputs, **metric, **fields)


def _pointer(path: Path, key: str, arrays: dict[str, np.ndarray]) -> Tensor:
    import torch

    ptr = arrays[key]
    if ptr.ndim != 1 or ptr.dtype.kind not in "iu" or len(ptr) < 2:
        raise DatasetError(
            f"{path}: {key} is {ptr.dtype} of shape {list(ptr.shape)}, but must be whole numbers [G + 1]"
        )
    return torch.from_numpy(ptr.astype("int64"))


def _table(path: Path, key: str, arrays: dict[str, np.ndarray]) -> Tensor | None:
    """[rows, columns] float32."""
    import torch

    if key not in arrays:
        return None
    values = arrays[key]
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DatasetError(f"{path}: {key} is {values.dtype} of shape {list(values.shape)}, but must be a table")
    return torch.from_numpy(values.astype("float32"))


def _grouped(path: Path, edges: Tensor, graph_ptr: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Edges with ids through all graphs, graph by graph and numbered from 0 in each; `edge_ptr`; their order."""
    import torch

    outside = (edges >= graph_ptr[-1]).any(0)
    if bool(outside.any()):
        raise DatasetError(
            f"{path}: an edge names node {int(edges.max())}, but graph_ptr ends at {int(graph_ptr[-1])} nodes; "
            f"ids in edge_index count through all graphs where there is no edge_ptr"
        )
    owner = torch.searchsorted(graph_ptr, edges, right=True) - 1
    if bool((crossing := owner[0] != owner[1]).any()):
        edge = int(crossing.nonzero()[0])
        first, second = owner[:, edge].tolist()
        raise DatasetError(
            f"{path}: edge {edge} joins node {int(edges[0, edge])} of graph {first} with node "
            f"{int(edges[1, edge])} of graph {second}; an edge stays within its graph"
        )
    order = owner[0].argsort(stable=True)
    counts = torch.bincount(owner[0], minlength=len(graph_ptr) - 1)
    return (edges - graph_ptr[owner])[:, order], _ptr(counts), order


def _targets(path: Path, values: np.ndarray) -> tuple[Tensor, Target]:
    import torch

    if values.ndim not in (1, 2) or values.dtype.kind not in "biuf":
        raise DatasetError(
            f"{path}: y is {values.dtype} of shape {list(values.shape)}; give numbers [G] or [G, T]"
        )
    if values.ndim == 1 and values.dtype.kind != "f":
        return torch.from_numpy(values.astype("int64")), "class"
    y = torch.from_numpy(values.astype("float32"))
    if y.dim() == 1:
        return y.unsqueeze(1), "value"
    return y, "labels" if bool(((y == 0) | (y == 1) | y.isnan()).all()) else "value"


def _ids(path: Path, part: str, values: np.ndarray, graphs: int) -> Tensor:
    import torch

    if values.dtype == bool and values.shape == (graphs,):
        return torch.from_numpy(values).nonzero().flatten()
    if values.dtype.kind not in "iu" or values.ndim != 1:
        raise DatasetError(
            f"{path}: {part} is {values.dtype} of shape {list(values.shape)}; give ids of graphs, or a mask [G]"
        )
    return torch.from_numpy(values.astype("int64"))


def _class(index: Path, graph: int, text: str | None) -> int:
    try:
        return int(text or "-1")
    except ValueError:
        raise DatasetError(
            f"{index}: the class of graph {graph} is {text!r}, but must be a whole number"
        ) from None


def _ptr(counts: Tensor) -> Tensor:
    import torch

    return torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
