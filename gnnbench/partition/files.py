"""A partition as a folder: every part in files of its own, and a manifest that says whose they are.

partition.json    the manifest, written last
part-0000         a folder with the arrays of `PartData` of rank 0, as `.npy` files that can be mapped
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, _maps
from gnnbench.datasets._kinds import FACTS
from gnnbench.errors import DatasetError
from gnnbench.graph import Graph
from gnnbench.partition.part import Method, Numbering, PartData, in_edges, taken
from gnnbench.results.schema import Record

MANIFEST = "partition.json"
DTYPES = {**_maps.DTYPES, "node_id": ("int64",), "halo": ("int64",)}


class PartFiles(Record):
    """The files of one part."""

    nodes: int = Field(ge=0)
    edges: int = Field(ge=0, description="into its nodes")
    halo: int = Field(ge=0, description="nodes of other parts from which edges come")
    sha256: str = Field(description="of all its files, in the order of their names")
    arrays: dict[str, _maps.Array]


class Partition(_maps.Facts):
    """Record of a folder of parts."""

    dataset: dict[str, Any] = Field(description="section `dataset` of the configurations that it belongs to")
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

    One part at a time is in memory, and what has one number per node, so that a `MappedDataset` may be larger.

    Args:
        graph: its edges, on the CPU.
        assignment: [N] int64, as `method` gave it.
        config: what `dataset` was loaded by.

    Raises:
        DatasetError: the folder exists and is not empty, cannot be written, or its disk is full.
    """
    numbering = Numbering.of(assignment, dataset.num_nodes, parts)
    with _maps.new_folder(folder) as temporary:
        written = []
        for rank in range(parts):
            edges = in_edges(graph, numbering.nodes(rank))
            data = taken(dataset, edges, numbering, rank, graph.layout)
            (where := temporary / f"part-{rank:04d}").mkdir()
            arrays = _maps.save(where, {name: getattr(data, name) for name in DTYPES})
            sizes = {"nodes": data.num_rows, "edges": len(data.col), "halo": len(data.halo)}
            written.append(PartFiles(**sizes, sha256=_checksum(where), arrays=arrays))
        partition = Partition(
            **dataset.facts,
            dataset=config.model_dump(mode="json"),
            method=method,
            seed=seed,
            parts=written,
        )
        (temporary / MANIFEST).write_text(partition.model_dump_json(indent=1), encoding="utf-8")
    return partition


def read(folder: Path) -> Partition:
    """The manifest.

    Raises:
        DatasetError: it is missing or of another version.
    """
    with _maps.remedy("write the folder with `gnnbench partition`"):
        return _maps.read_record(Partition, folder / MANIFEST)


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
        written, asked = partition.dataset, config.model_dump(mode="json")
        for key in sorted(written.keys() | asked.keys()):
            if written.get(key) != asked.get(key):
                raise DatasetError(
                    f"{folder}: was written with dataset.{key}={written.get(key)}, but the configuration has "
                    f"dataset.{key}={asked.get(key)}; partition anew, or train with the configuration of the parts"
                )
    part, where = partition.parts[rank], folder / f"part-{rank:04d}"
    offsets = torch.tensor([0, *(each.nodes for each in partition.parts)]).cumsum(0)
    with _maps.remedy("copy it here once more, or write all parts anew with `gnnbench partition`"):
        maps = _maps.open_arrays(where, part.arrays, DTYPES, folder / MANIFEST)
        if _checksum(where) != part.sha256:
            raise DatasetError(
                f"{where}: is not the part that {folder / MANIFEST} describes, for its checksum differs: it was "
                f"altered or belongs to another partition"
            )
        _check(where, maps, part, offsets, rank)
    arrays: dict[str, Any] = maps
    return PartData(
        rank, offsets, num_edges=partition.num_edges, **arrays, **partition.model_dump(include={*FACTS})
    )


def _checksum(where: Path) -> str:
    digest, buffer = hashlib.sha256(), memoryview(bytearray(1 << 20))
    for name in sorted(DTYPES):
        with (where / f"{name}.npy").open("rb", buffering=0) as file:
            while size := file.readinto(buffer):
                digest.update(buffer[:size])
    return digest.hexdigest()


def _check(where: Path, maps: dict[str, Tensor], part: PartFiles, offsets: Tensor, rank: int) -> None:
    """Raises DatasetError where kernels or exchanges could not trust the indices."""
    lengths = {"rowptr": part.nodes + 1, "col": part.edges, "halo": part.halo}
    _maps.check_shapes(where, maps, {**dict.fromkeys(maps, part.nodes), **lengths})
    _maps.check_rows(where, maps["rowptr"], maps["col"], part.nodes + part.halo)
    halo, (begin, end) = maps["halo"], offsets[rank : rank + 2].tolist()
    inside = bool(((halo >= begin) & (halo < end)).any())
    if part.halo and (inside or halo[0] < 0 or halo[-1] >= offsets[-1] or bool((halo.diff() <= 0).any())):
        raise DatasetError(
            f"{where / 'halo.npy'}: must hold ascending ids of 0 to {int(offsets[-1]) - 1} other than those of "
            f"the part itself, {begin} to {end - 1}"
        )
