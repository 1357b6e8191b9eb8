"""PartData: what one process holds of a graph; `assign` says which node goes to which part, `split` takes one."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from gnnbench.datasets import NodeDataset, _reorder
from gnnbench.datasets._kinds import MASKS
from gnnbench.errors import DatasetError
from gnnbench.graph import CSRBuilder, Graph, rows_of
from gnnbench.graph.layout import ptr_of

Method = Literal["metis", "random", "contiguous"]
PLAIN = "Parts are contiguous ranges of ids; after `pip install pymetis` they would have fewer edges between them"
METIS_LIMIT = 2**31 - 1  # of its integers: twice the edges, and nodes and edges together as weights


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
        name, num_classes, metric, made_up, notes: of the whole dataset, as in `NodeDataset`.
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
    def parts(self) -> int:
        return self.offsets.numel() - 1

    @property
    def begin(self) -> int:
        """The new id of my first node."""
        return int(self.offsets[self.rank])

    @property
    def first(self) -> int:
        """How many columns belong to lower parts: the column of my first node."""
        return int(torch.searchsorted(self.halo, self.begin))

    @property
    def num_rows(self) -> int:
        return self.rowptr.numel() - 1

    @property
    def num_cols(self) -> int:
        """My nodes and those of the halo."""
        return self.num_rows + self.halo.numel()


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
    return _metis(graph, parts, seed)


def _metis(graph: Graph, parts: int, seed: int) -> Tensor:
    pymetis = _reorder.pymetis("--method metis", "random or contiguous")
    if parts == graph.num_rows:  # of which METIS complains on standard output
        return torch.arange(graph.num_rows)
    weights = 1 + graph.degree
    edge_index = torch.stack([graph.col.long(), rows_of(graph.rowptr, graph.num_edges)])
    adjacency = _reorder.undirected(edge_index, graph.num_rows)
    if max(adjacency.nnz, graph.num_rows + graph.num_edges) > METIS_LIMIT:
        raise DatasetError(
            f"METIS counts up to {METIS_LIMIT:,}, but this graph has {graph.num_rows + graph.num_edges:,} nodes "
            "and edges; choose --method random or contiguous"
        )
    _, membership = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(adj_starts=adjacency.indptr, adjacent=adjacency.indices),
        vweights=weights.numpy().astype(adjacency.indices.dtype),
        options=pymetis.Options(seed=seed),
    )
    return torch.tensor(membership)
