"""PartData: what one process holds of a graph, taken from one in memory by `split`, or from a folder by `load`.

In the folder of a partition every part has files of its own, and a manifest says whose they are:

partition.json    the manifest, written last
part-0000         a folder with the arrays of `PartData` of rank 0, as `.npy` files that can be mapped
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, _reorder, mapped
from gnnbench.datasets._kinds import FACTS, MASKS
from gnnbench.errors import DatasetError
from gnnbench.graph import CSRBuilder, Graph
from gnnbench.graph.layout import ptr_of
from gnnbench.results.schema import Record

Method = Literal["metis", "random", "contiguous"]
PLAIN = "Parts are contiguous ranges of ids; after `pip install pymetis` they would have fewer edges between them"
MANIFEST = "partition.json"
DTYPES = {**mapped.DTYPES, "node_id": ("int64",), "halo": ("int64",)}


class PartData(NodeDataset):
    """One rank's share of a graph: its nodes, their in-edges, and which nodes of other ranks these come from.

    Nodes are renumbered by part: part p owns the new ids `offsets[p]:offsets[p + 1]`. Columns ascend in new ids,
    so that a row is accumulated in the same order as in one process that trains on the renumbered graph.

    Of its nodes it says what a dataset does, and of itself what the whole graph is; it has no `edge_index`.

    Attributes:
        rank: which part this is.
        offsets: [P + 1] int64, where each part's new ids begin.
        node_id: [n] int64, the ids of my nodes in the dataset, ascending.
        rowptr: [n + 1] int64, where the in-edges of each of my nodes begin.
        col: [e] int32, columns among [halo of lower parts | my nodes | halo of higher parts], ascending in a row.
        halo: [h] int64, new ids of the sources of my edges that other parts own, ascending.
        x, y, train_mask, val_mask, test_mask: of my nodes, as in `NodeDataset`.
        name, num_classes, metric, synthetic_parts, notes: of the whole dataset, as in `NodeDataset`.
        num_nodes, num_edges: of the whole graph; num_rows: my nodes.
    """

    def __init__(
        self, rank: int, offsets: Tensor, rowptr: Tensor, col: Tensor, halo: Tensor, num_edges: int, **others: Any
    ) -> None:
        self.rank, self.offsets, self.rowptr, self.col, self.halo = rank, offsets, rowptr, col, halo
        self._num_edges = num_edges
        vars(self).update(others)

    @property
    def num_nodes(self) -> int:
        return int(self.offsets[-1])

    @property
    def num_edges(self) -> int:
        return self._num_edges

    @property
    def begin(self) -> int:
        """The new id of my first node."""
        return int(self.offsets[self.rank])

    @property
    def num_rows(self) -> int:
        return self.rowptr.numel() - 1


class Numbering(NamedTuple):
    """New ids of nodes, by part."""

    offsets: Tensor  # [P + 1] int64, where each part's begin
    order: Tensor  # [N] int64, the id in the dataset of every new id
    position: Tensor  # [N] int64, its inverse

    @classmethod
    def of(cls, assignment: Tensor, nodes: int, parts: int) -> Numbering:
        """Number the nodes of each part in the order of their ids.

        Raises:
            DatasetError: `assignment` does not give each of `nodes` one of `parts`.
        """
        within = not nodes or 0 <= int(assignment.min()) <= int(assignment.max()) < parts
        if assignment.shape != (nodes,) or not within:
            raise DatasetError(f"an assignment gives each of the {nodes} nodes one of the parts 0 to {parts - 1}")
        offsets = ptr_of(torch.bincount(assignment, minlength=parts))
        order = assignment.argsort(stable=True)
        return cls(offsets, order, order.argsort())

    def nodes(self, rank: int) -> Tensor:
        """The nodes of a part by their ids in the dataset, ascending."""
        return self.order[int(self.offsets[rank]) : int(self.offsets[rank + 1])]


def split(
    dataset: NodeDataset,
    assignment: Tensor,
    rank: int,
    parts: int | None = None,
    *,
    layout: CSRBuilder | None = None,
) -> PartData:
    """One part of a graph in memory.

    Args:
        assignment: [N] int64, the part of every node.
        parts: their number; None for one more than the highest in `assignment`.
        layout: sorts the edges.

    Raises:
        DatasetError: `assignment` is not of this graph, or names a part that there is not.
    """
    parts = int(assignment.max()) + 1 if parts is None else parts
    numbering = Numbering.of(assignment, dataset.num_nodes, parts)
    mine = (assignment[dataset.edge_index[1]] == rank).nonzero().flatten()
    return taken(dataset, dataset.edge_index[:, mine], numbering, rank, layout)


def taken(
    dataset: NodeDataset, edges: Tensor, numbering: Numbering, rank: int, layout: CSRBuilder | None = None
) -> PartData:
    """One part, whose in-edges [2, e] are known already."""
    begin, end = numbering.offsets[rank : rank + 2].tolist()
    source, row = numbering.position[edges[0]], numbering.position[edges[1]] - begin
    halo = source[(source < begin) | (source >= end)].unique()
    behind = torch.where(source < begin, 0, (source - begin).clamp(max=end - begin))  # of my nodes, lower ones
    column = torch.searchsorted(halo, source) + behind
    rows = (layout or CSRBuilder()).csr(row, column, end - begin, end - begin + len(halo))
    node_id = numbering.nodes(rank)
    return PartData(
        rank,
        numbering.offsets,
        rows.rowptr,
        rows.col,
        halo,
        dataset.num_edges,
        **dataset.facts,
        node_id=node_id,
        **{name: getattr(dataset, name)[node_id] for name in ("x", "y", *MASKS)},
    )


def in_edges(graph: Graph, nodes: Tensor) -> Tensor:
    """Source and destination of the edges into `nodes`, [2, e] int64."""
    degree = graph.rowptr[nodes + 1] - graph.rowptr[nodes]
    begin = (graph.rowptr[nodes] - degree.cumsum(0) + degree).repeat_interleave(degree)
    source = graph.col[begin + torch.arange(len(begin))].long()
    return torch.stack([source, nodes.repeat_interleave(degree)])


def chosen(method: Method | Literal["auto"]) -> tuple[Method, list[str]]:
    """Choose metis for "auto", or without its package contiguous parts, which a note then says."""
    if method != "auto":
        return method, []
    return ("metis", []) if find_spec("pymetis") else ("contiguous", [PLAIN])


def assign(graph: Graph, parts: int, method: Method, seed: int) -> Tensor:
    """The part of every node, [N] int64; a part may be left without nodes where some have many edges.

    Args:
        graph: on the CPU.
        method: "metis" (few edges between parts, nodes weighted by 1 + in-degree), "contiguous" (ranges of ids of
            about the same weight) or "random" (the same number of nodes in each, up to one).
        seed: of "metis" and "random".

    Raises:
        DatasetError: more parts than nodes; "metis" without pymetis, or on a graph that is too large for it.
    """
    if parts > graph.num_rows:
        raise DatasetError(
            f"{graph.num_rows} nodes cannot be shared among {parts} parts; choose at most {graph.num_rows}"
        )
    if method == "contiguous":
        before = torch.arange(graph.num_rows) + graph.rowptr[:-1]
        return before * parts // (graph.num_rows + graph.num_edges)
    if method == "random":
        return torch.randperm(graph.num_rows, generator=torch.Generator().manual_seed(seed)) % parts
    edge_index, others = torch.stack([graph.col.long(), graph.row]), "--method random or contiguous"
    return _reorder.metis(edge_index, graph.num_rows, parts, "--method metis", others, 1 + graph.degree, seed)


class PartFiles(Record):
    """The files of one part."""

    nodes: int = Field(ge=0)
    edges: int = Field(ge=0, description="into its nodes")
    halo: int = Field(ge=0, description="nodes of other parts from which edges come")
    sha256: str = Field(description="of all its files, in the order of their names")
    arrays: dict[str, mapped.Array]


class Partition(mapped.Facts):
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
    with mapped.new_folder(folder) as temporary:
        written = []
        for rank in range(parts):
            edges = in_edges(graph, numbering.nodes(rank))
            data = taken(dataset, edges, numbering, rank, graph.layout)
            (where := temporary / f"part-{rank:04d}").mkdir()
            arrays = mapped.save(where, {name: getattr(data, name) for name in DTYPES})
            sizes = {"nodes": data.num_rows, "edges": len(data.col), "halo": len(data.halo)}
            written.append(PartFiles(**sizes, sha256=_checksum(where), arrays=arrays))
        written_for = config.model_dump(mode="json")
        partition = Partition(**dataset.facts, dataset=written_for, method=method, seed=seed, parts=written)
        (temporary / MANIFEST).write_text(partition.model_dump_json(indent=1), encoding="utf-8")
    return partition


def load(folder: Path, rank: int, parts: int, config: DatasetConfig | None = None) -> PartData:
    """One part, read whole once to check it, its arrays mapped read-only; no other part has to be there.

    Args:
        parts: how many processes train together.
        config: the dataset that they are configured to train on; None for whichever it is.

    Raises:
        DatasetError: no manifest of this version, another number of parts, another dataset, or a part that is
            missing, truncated, altered, or of another partition.
    """
    with mapped.remedy("write the folder with `gnnbench partition`"):
        partition = mapped.read_record(Partition, folder / MANIFEST)
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
    with mapped.remedy("copy it here once more, or write all parts anew with `gnnbench partition`"):
        maps = mapped.open_arrays(where, part.arrays, DTYPES, folder / MANIFEST)
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
    mapped.check_shapes(where, maps, {**dict.fromkeys(maps, part.nodes), **lengths})
    mapped.check_rows(where, maps["rowptr"], maps["col"], part.nodes + part.halo)
    halo, (begin, end) = maps["halo"], offsets[rank : rank + 2].tolist()
    inside = bool(((halo >= begin) & (halo < end)).any())
    if part.halo and (inside or halo[0] < 0 or halo[-1] >= offsets[-1] or bool((halo.diff() <= 0).any())):
        raise DatasetError(
            f"{where / 'halo.npy'}: must hold ascending ids of 0 to {int(offsets[-1]) - 1} other than those of "
            f"the part itself, {begin} to {end - 1}"
        )
