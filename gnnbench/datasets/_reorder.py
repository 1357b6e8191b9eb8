"""Node orders that bring neighbours close together in memory."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from gnnbench.errors import DatasetError

NODES_PER_PART = 1024  # of METIS: features of a part fit a core's cache
METIS_LIMIT = 2**31 - 1  # of its integers: twice the edges, and nodes and edges together as weights


def order(edge_index: Tensor, nodes: int, how: str) -> Tensor:
    """Return an order of nodes [N] int64: the ids of those that are to come first, second and so on.

    Args:
        how: "degree" (most in-edges first), "rcm" (reverse Cuthill-McKee: neighbours at similar positions) or
            "metis" (nodes of one part of a partition that cuts few edges side by side).
    """
    if how == "degree":
        return torch.bincount(edge_index[1], minlength=nodes).argsort(descending=True, stable=True)
    if how == "rcm":
        found = reverse_cuthill_mckee(undirected(edge_index, nodes), symmetric_mode=True)
        return torch.from_numpy(found.copy()).long()
    parts = -(-nodes // NODES_PER_PART)
    return metis(edge_index, nodes, parts, "dataset.reorder: metis", "rcm or degree").argsort(stable=True)


def metis(
    edge_index: Tensor, nodes: int, parts: int, option: str, others: str, weights: Any = None, seed: int = -1
) -> Tensor:
    """The part of every node, [N] int64, so that few edges lie between parts, which weigh about the same.

    Args:
        weights: of nodes [N] int64; None for one each.

    Raises:
        DatasetError: `option` asks for it without pymetis, or of too large a graph; choose one of `others`.
    """
    try:
        pymetis = importlib.import_module("pymetis")
    except ImportError:
        raise DatasetError(
            f"{option} needs the package pymetis, which is not installed; run `pip install pymetis`, "
            f"or choose {others}"
        ) from None
    if parts == nodes:  # of which METIS complains on standard output
        return torch.arange(nodes)
    graph, size = undirected(edge_index, nodes), nodes + edge_index.size(1)
    if max(graph.nnz, size) > METIS_LIMIT:
        raise DatasetError(
            f"METIS counts up to {METIS_LIMIT:,}, but this graph has {size:,} nodes and edges; choose {others}"
        )
    adjacency = pymetis.CSRAdjacency(adj_starts=graph.indptr, adjacent=graph.indices)
    own = None if weights is None else weights.numpy().astype(graph.indices.dtype)
    _, membership = pymetis.part_graph(parts, adjacency, vweights=own, options=pymetis.Options(seed=seed))
    return torch.tensor(membership)


def undirected(edge_index: Tensor, nodes: int) -> csr_array:
    """The pattern with every edge in both directions, without self-loops and duplicates."""
    src, dst = edge_index[:, edge_index[0] != edge_index[1]].numpy()
    ones = np.ones(len(src), dtype=bool)
    graph = csr_array((ones, (dst, src)), shape=(nodes, nodes))
    return (graph + graph.T).tocsr()
