"""A user's own graphs: as PyG saves them, or as the text files of TUDataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from gnnbench.datasets import GraphsDataset, _prepare_graphs, _raw, _union
from gnnbench.datasets._graphs import PARTS, Target
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    from torch import Tensor

ADJACENCY = "_A.txt"


def read(path: Path, classes: int) -> GraphsDataset:
    """Graphs in a file, or in a folder of such files for each part of the split, or of TUDataset's.

    A file is what `torch_geometric.data.InMemoryDataset.save` writes of a list of `Data`. Their `y` tells the
    task: whole numbers are classes of graphs, or of nodes where there is one for each; the real numbers 0, 1 and
    NaN are answers to yes-or-no questions; other real numbers are values to regress.

    Raises:
        DatasetError: nothing of the kind is there; corrupt; or classes that are not numbered from 0.
    """
    saved = [path / f"{split}.pt" for split in PARTS if (path / f"{split}.pt").is_file()]
    texts = sorted(path.glob(f"*{ADJACENCY}"))
    parts: dict[str, Tensor] = {}
    if path.is_file():
        union = _saved(path)
    elif saved:
        union, parts = _union.joined(path.name, {file.stem: _saved(file) for file in saved})
    elif texts:
        union = _tu(path, texts[0].name.removesuffix(ADJACENCY))
    else:
        raise DatasetError(f"{path}: holds neither train.pt, val.pt and test.pt nor NAME_A.txt and its companions")
    name = path.resolve().name.removesuffix(".pt")
    y, target = _targets(union.targets)
    largest = int(y.max()) if target == "class" and y.numel() else -1
    if not classes and largest >= max(len(y), 2):
        raise DatasetError(f"{name}: class {largest} among {len(y)} targets; number the classes from 0")
    outputs = (classes or largest + 1) if target == "class" else y.size(1)
    union.x, union.edge_attr = union.x.float(), None if union.edge_attr is None else union.edge_attr.float()
    graphs, nodes = union.graph_ptr.numel() - 1, union.x.size(0)
    return GraphsDataset(
        name,
        **union.graphs(),
        y=y,
        parts=parts,
        target=target,
        num_outputs=outputs,
        **_prepare_graphs.plain_metric(target, outputs),
        per_node=len(y) == nodes != graphs,
    )


def _saved(path: Path) -> _union.Union:
    import torch
    from torch_geometric.data import Data

    with _raw.reading(path.name, [path]), _raw.quiet():
        fields, slices, *_ = torch.load(path)
        return _union.of(path.name, SimpleNamespace(_data=Data.from_dict(fields), slices=slices))


def _tu(folder: Path, name: str) -> _union.Union:
    from torch_geometric.io import read_tu_data

    files: Sequence[Path] = sorted(folder.glob(f"{name}_*.txt"))
    with _raw.reading(name, files), _raw.quiet():
        data, slices, _ = read_tu_data(str(folder), name)
        return _union.of(name, SimpleNamespace(_data=data, slices=slices))


def _targets(y: Tensor) -> tuple[Tensor, Target]:
    y = y.unsqueeze(1) if y.dim() == 1 else y
    if y.size(1) == 1 and not y.is_floating_point():
        return y.flatten().long(), "class"
    y = y.float()
    return y, "labels" if bool(((y == 0) | (y == 1) | y.isnan()).all()) else "value"
