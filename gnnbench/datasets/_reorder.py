"""Node orders that bring neighbours close together in memory."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from gnnbench.datasets._links import LinksDataset
from gnnbench.datasets._nodes import NodeDataset
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor

NODES_PER_PART = 1024  # of METIS: features of a part fit a core's cache


def reordered(dataset: NodeDataset | LinksDataset, how: str) -> NodeDataset | LinksDataset:
    """Return the graph with its nodes in another order, and, of nodes, `node_id` to map them back.

    Args:
        dataset: checked; it is left as it is.
        how: "degree" (most in-edges first), "rcm" (reverse Cuthill-McKee: neighbours at similar positions) or
            "metis" (nodes of one part of a partition that cuts few edges side by side).

    Raises:
        DatasetError: "metis" without pymetis.
    """
    import torch

    edge_index, nodes = dataset.edge_index, dataset.num_nodes
    if how == "degree":
        order = torch.bincount(edge_index[1], minlength=nodes).argsort(descending=True, stable=True)
    elif how == "rcm":
        order = _reverse_cuthill_mckee(edge_index, nodes)
    else:
        order = _by_part(edge_index, nodes)
    if isinstance(dataset, LinksDataset):
        return dataset.renumbered(order)
    position = torch.empty_like(order)
    position[order] = torch.arange(nodes)
    node_id = order if dataset.node_id is None else dataset.node_id[order]
    parts = {name: getattr(dataset, name)[order] for name in ("x", "y", "train_mask", "val_mask", "test_mask")}
    return dataset.changed(edge_index=position[edge_index], node_id=node_id, **parts)


def _reverse_cuthill_mckee(edge_index: Tensor, nodes: int) -> Tensor:
    import torch
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    result = reverse_cuthill_mckee(undirected(edge_index, nodes), symmetric_mode=True)
    return torch.from_numpy(result.copy()).long()


def _by_part(edge_index: Tensor, nodes: int) -> Tensor:
    import torch

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
    import numpy as np
    from scipy.sparse import csr_array

    src, dst = edge_index[:, edge_index[0] != edge_index[1]].numpy()
    ones = np.ones(len(src), dtype=bool)
    graph = csr_array((ones, (dst, src)), shape=(nodes, nodes))
    return (graph + graph.T).tocsr()
