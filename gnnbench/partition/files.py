"""A partition as a folder: every part in files of its own, and a manifest that says whose they are.

partition.json    the manifest, written last
part-0000         a folder with the arrays of `PartData` of rank 0, as `.npy` files that can be mapped
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from gnnbench import __version__
from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, _maps, _prepare
from gnnbench.errors import DatasetError
from gnnbench.graph import Graph, Layout
from gnnbench.partition.part import BY_NODE, Method, PartData, columns, numbering
from gnnbench.results.schema import Record

MANIFEST = "partition.json"
DTYPES = {**_maps.DTYPES, "node_id": ("int64",), "halo": ("int64",)}
AGAIN = "copy it here once more, or write all parts anew with `gnnbench partition`"


class PartFiles(Record):
    """The files of one part."""

    nodes: int = Field(ge=0)
    edges: int = Field(ge=0, description="into its nodes")
    halo: int = Field(ge=0, description="nodes of other parts from which edges come")
    sha256: str = Field(description="of all its files, in the order of their names")
    arrays: dict[str, _maps.Array]


class Partition(Record):
    """Record of a folder of parts."""

    schema_version: Literal[1] = 1
    gnnbench: str = Field(description="version that wrote it")
    dataset: dict[str, Any] = Field(description="section `dataset` of the configurations that it belongs to")
    name: str
    made_up: list[str]
    notes: list[str]
    num_classes: int
    metric: str
    method: Method
    seed: int
    parts: list[PartFiles] = Field(min_length=1)

    @property
    def num_nodes(self) -> int:
        return sum(part.nodes for part in self.parts)

    @property
    def num_edges(self) -> int:
        return sum(part.edges for part in self.parts)


def write(
    dataset: NodeDataset,
    graph: Graph,
    assignment: Tensor,
    parts: int,
    folder: Path,
    *,
    config: DatasetConfig,
    method: Method,
    seed: int,
) -> Partition:
    """Write all parts, as `split` takes them, into a folder: whole or not at all.

    Reads the in-edges and the features once and in order, `_maps.CHUNK` numbers (or one row) at a time, so that a
    `MappedDataset` may be larger than the memory; what has one number per node is in memory.

    Args:
        graph: its edges, on the CPU.
        assignment: [N] int64, as `method` gave it.
        config: what `dataset` was loaded by.

    Raises:
        DatasetError: the folder exists and is not empty, cannot be written, or its disk is full; or the metric of
            `dataset` cannot be told from its name.
    """
    _prepare.metric_named(dataset.metric, dataset.num_classes)  # which is read back by its name
    offsets, order = numbering(assignment, dataset.num_nodes, parts)
    with _maps.new_folder(folder) as temporary:
        folders = [temporary / f"part-{rank:04d}" for rank in range(parts)]
        for rank, where in enumerate(folders):
            _begin(where, dataset, graph, order[int(offsets[rank]) : int(offsets[rank + 1])])
        _scatter(folders, dataset, graph, assignment, order)
        for rank, where in enumerate(folders):
            _place_columns(where, int(offsets[rank]), int(offsets[rank + 1]), len(order))
        partition = Partition(
            gnnbench=__version__,
            dataset=config.model_dump(mode="json"),
            name=dataset.name,
            made_up=dataset.made_up,
            notes=dataset.notes,
            num_classes=dataset.num_classes,
            metric=dataset.metric,
            method=method,
            seed=seed,
            parts=[_sealed(where) for where in folders],
        )
        (temporary / MANIFEST).write_text(partition.model_dump_json(indent=1), encoding="utf-8")
    return partition


def read(folder: Path) -> Partition:
    """The manifest.

    Raises:
        DatasetError: it is missing or of another version.
    """
    return _maps.read_record(Partition, folder / MANIFEST, "write the folder with `gnnbench partition`")


def load(folder: Path, rank: int, parts: int, config: DatasetConfig | None = None) -> PartData:
    """One part, read whole once to check it, its arrays mapped read-only; no other part has to be there.

    Args:
        parts: how many processes train together.
        config: the dataset that they are configured to train on; None for whichever it is.

    Raises:
        DatasetError: another number of parts, another dataset, or a part that is missing, truncated, altered, or
            of another partition.
    """
    partition = read(folder)
    if len(partition.parts) != parts:
        raise DatasetError(
            f"{folder}: holds {len(partition.parts)} parts, but there are {parts} processes; start "
            f"{len(partition.parts)}, or partition anew with --parts {parts}"
        )
    if config is not None:
        _check_dataset(folder, partition.dataset, config.model_dump(mode="json"))
    part, where = partition.parts[rank], folder / f"part-{rank:04d}"
    maps = _maps.open_arrays(where, part.arrays, DTYPES, folder / MANIFEST, AGAIN)
    if _checksum(where) != part.sha256:
        raise DatasetError(
            f"{where}: is not the part that {folder / MANIFEST} describes, for its checksum differs: it was "
            f"altered or belongs to another partition; {AGAIN}"
        )
    offsets = torch.tensor([0, *(each.nodes for each in partition.parts)]).cumsum(0)
    _check(where, maps, part, offsets, rank)
    arrays: dict[str, Any] = maps
    return PartData(
        rank,
        offsets,
        **arrays,
        name=partition.name,
        num_classes=partition.num_classes,
        **_prepare.metric_named(partition.metric, partition.num_classes),
        num_edges=partition.num_edges,
        made_up=partition.made_up,
        notes=partition.notes,
    )


def _begin(where: Path, dataset: NodeDataset, graph: Graph, node_id: Tensor) -> None:
    """Write what is known of a part beforehand, and the headers of the arrays that are then added to."""
    where.mkdir()
    rowptr = torch.zeros(len(node_id) + 1, dtype=torch.int64)
    torch.cumsum(graph.rowptr[node_id + 1] - graph.rowptr[node_id], 0, out=rowptr[1:])
    _maps.save(where / "node_id.npy", node_id.numpy())
    _maps.save(where / "rowptr.npy", rowptr.numpy())
    shapes = {"col": (int(rowptr[-1]),)}
    shapes |= {name: (len(node_id), *getattr(dataset, name).shape[1:]) for name in BY_NODE}
    for name, shape in shapes.items():
        values = graph.col if name == "col" else getattr(dataset, name)
        with (where / f"{name}.npy").open("wb") as file:
            _maps.begin_array(file, values[:0].numpy().dtype, shape)


def _scatter(folders: list[Path], dataset: NodeDataset, graph: Graph, assignment: Tensor, order: Tensor) -> None:
    """Add every row to the files of its part, its columns still the new ids of the whole graph."""
    position = torch.empty_like(order, dtype=torch.int32)
    position[order] = torch.arange(len(order), dtype=torch.int32)
    for begin, end in _chunks(graph.rowptr, dataset.x.size(1)):
        owner = assignment[begin:end]
        by_part = owner.argsort(stable=True)
        place = torch.empty_like(by_part)
        place[by_part] = torch.arange(end - begin)
        edges = slice(int(graph.rowptr[begin]), int(graph.rowptr[end]))
        row = place.repeat_interleave(graph.rowptr[begin : end + 1].diff())
        source = position[graph.col[edges].long()].long()
        rows = Layout().csr(row, source, end - begin, len(order))
        last = owner.bincount(minlength=len(folders)).cumsum(0).tolist()
        for where, low, high in zip(folders, [0, *last], last, strict=False):
            if low < high:
                _append(where / "col.npy", rows.col[int(rows.rowptr[low]) : int(rows.rowptr[high])])
                for name in BY_NODE:
                    _append(where / f"{name}.npy", getattr(dataset, name)[begin:end][by_part[low:high]])


def _chunks(rowptr: Tensor, width: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most so many edges, and features, as are held at once."""
    begin, rows = 0, max(1, _maps.CHUNK // max(1, width))
    while begin < len(rowptr) - 1:
        fitting = int(torch.searchsorted(rowptr, int(rowptr[begin]) + _maps.CHUNK, right=True)) - 1
        end = min(max(fitting, begin + 1), begin + rows, len(rowptr) - 1)
        yield begin, end
        begin = end


def _append(path: Path, values: Tensor) -> None:
    with path.open("ab") as file:
        file.write(values.numpy().data)


def _place_columns(where: Path, begin: int, end: int, nodes: int) -> None:
    """Replace new ids by columns, in place, and write the halo."""
    source = np.load(where / "col.npy", mmap_mode="r+")
    is_source = torch.zeros(nodes, dtype=torch.bool)
    for low, high in _maps.pieces(len(source)):
        is_source[torch.from_numpy(source[low:high]).long()] = True
    is_source[begin:end] = False
    halo = is_source.nonzero().flatten()
    for low, high in _maps.pieces(len(source)):
        source[low:high] = columns(torch.from_numpy(source[low:high]).long(), halo, begin, end).numpy()
    source.flush()
    _maps.save(where / "halo.npy", halo.numpy())


def _sealed(where: Path) -> PartFiles:
    arrays = {name: np.load(where / f"{name}.npy", mmap_mode="r") for name in DTYPES}
    return PartFiles(
        nodes=len(arrays["node_id"]),
        edges=len(arrays["col"]),
        halo=len(arrays["halo"]),
        sha256=_checksum(where),
        arrays={name: _maps.Array.of(array) for name, array in arrays.items()},
    )


def _checksum(where: Path) -> str:
    digest, buffer = hashlib.sha256(), memoryview(bytearray(1 << 20))
    for name in sorted(DTYPES):
        with (where / f"{name}.npy").open("rb", buffering=0) as file:
            os.fsync(file.fileno())  # of what was just written
            while size := file.readinto(buffer):
                digest.update(buffer[:size])
    return digest.hexdigest()


def _check_dataset(folder: Path, written: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raises DatasetError where the sections are not the same."""
    for key in sorted(written.keys() | asked.keys()):
        if written.get(key) != asked.get(key):
            raise DatasetError(
                f"{folder}: was written with dataset.{key}={written.get(key)}, but the configuration has "
                f"dataset.{key}={asked.get(key)}; partition anew, or train with the configuration of the parts"
            )


def _check(where: Path, maps: dict[str, Tensor], part: PartFiles, offsets: Tensor, rank: int) -> None:
    """Raises DatasetError where kernels or exchanges could not trust the indices."""
    lengths = {"rowptr": part.nodes + 1, "col": part.edges, "halo": part.halo}
    for name, values in maps.items():
        dims, length = {"x": (2,), "y": (1, 2)}.get(name, (1,)), lengths.get(name, part.nodes)
        if values.dim() not in dims or len(values) != length:
            raise DatasetError(
                f"{where / name}.npy: has shape {[*values.shape]}, but {MANIFEST} promises {length} rows; {AGAIN}"
            )
    _maps.check_rows(where, maps["rowptr"], maps["col"], part.nodes + part.halo, AGAIN)
    halo, (begin, end) = maps["halo"], offsets[rank : rank + 2].tolist()
    inside = bool(((halo >= begin) & (halo < end)).any())
    if part.halo and (inside or halo[0] < 0 or halo[-1] >= offsets[-1] or bool((halo.diff() <= 0).any())):
        raise DatasetError(
            f"{where / 'halo.npy'}: must hold ascending ids of 0 to {int(offsets[-1]) - 1} other than those of "
            f"the part itself, {begin} to {end - 1}; {AGAIN}"
        )
