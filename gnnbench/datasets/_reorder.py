"""Node orders that bring neighbours close together in memory."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from gnnbench.errors import DatasetError

NODES_PER_PART = 1024  # of METIS: features of a part fit a core's cache


def order(edge_index: Tensor, nodes: int, how: str) -> Tensor:
    """Return an order of nodes [N] int64: the ids of those that are to come first, second and so on.

    Args:
        how: "degree" (most in-edges first), "rcm" (reverse Cuthill-McKee: neighbours at similar positions) or
            "metis" (nodes of one part of a partition that cuts few edges side by side).

    Raises:
        DatasetError: "metis" without pymetis.
    """
    if how == "degree":
        return torch.bincount(edge_index[1], minlength=nodes).argsort(descending=True, stable=True)
    if how == "rcm":
        found = reverse_cuthill_mckee(undirected(edge_index, nodes), symmetric_mode=True)
        return torch.from_numpy(found.copy()).long()
    metis = pymetis("dataset.reorder: metis", "rcm or degree")
    graph = undirected(edge_index, nodes)
    adjacency = metis.CSRAdjacency(adj_starts=graph.indptr, adjacent=graph.indices)
    _, parts = metis.part_graph(-(-nodes // NODES_PER_PART), adjacency)
    return torch.tensor(parts).argsort(stable=True)


def pymetis(option: str, others: str) -> ModuleType:
    """The package.

    Raises:
        DatasetError: it is not installed, so that the user may choose `others` for `option`.
    """
    try:
        return importlib.import_module("pymetis")
    except ImportError:
        raise DatasetError(
            f"{option} needs the package pymetis, which is not installed; run `pip install pymetis`, "
            f"or choose {others}"
        ) from None


def undirected(edge_index: Tensor, nodes: int) -> csr_array:
    """The pattern with every edge in both directions, without self-loops and duplicates."""
    src, dst = edge_index[:, edge_index[0] != edge_index[1]].numpy()
    ones = np.ones(len(src), dtype=bool)
    graph = csr_array((ones, (dst, src)), shape=(nodes, nodes))
    return (graph + graph.T).tocsr()
