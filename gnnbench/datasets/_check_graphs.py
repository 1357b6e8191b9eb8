"""The checks of many graphs before training: each refusal is a sentence that names the graph by its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.datasets._graphs import PARTS, GraphsDataset
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    from torch import Tensor


def structure(dataset: GraphsDataset) -> None:
    """Pointers ascend and fit the tensors, every graph has nodes, and edges stay within their graph."""
    import numpy as np

    name, edge_index = dataset.name, dataset.edge_index
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise DatasetError(f"{name}: edge_index has shape {list(edge_index.shape)}, but must be [2, E]")
    _pointer(name, "graph_ptr", dataset.graph_ptr, dataset.num_nodes, "nodes")
    _pointer(name, "edge_ptr", dataset.edge_ptr, edge_index.size(1), "edges")
    if dataset.edge_ptr.numel() != dataset.graph_ptr.numel():
        raise DatasetError(
            f"{name}: edge_ptr is of {dataset.edge_ptr.numel() - 1} graphs, but graph_ptr of {dataset.num_graphs}"
        )
    sizes = dataset.graph_ptr.diff()
    if not bool(sizes.all()):
        raise DatasetError(f"{name}: graph {_first(sizes == 0)} has no nodes; leave it out")
    filled = dataset.edge_ptr.diff() > 0
    if not bool(filled.any()):
        raise DatasetError(f"{name}: none of its graphs has an edge; there is nothing to aggregate")
    starts = dataset.edge_ptr[:-1][filled].numpy()
    for ends in edge_index.numpy():
        low, high = np.minimum.reduceat(ends, starts), np.maximum.reduceat(ends, starts)
        wrong = (low < 0) | (high >= sizes[filled].numpy())
        if wrong.any():
            place = int(wrong.argmax())
            graph = int(filled.nonzero()[place])
            node = int(low[place] if low[place] < 0 else high[place])
            raise DatasetError(
                f"{name}: an edge of graph {graph} names node {node}; "
                f"its {int(sizes[graph])} nodes have ids 0 to {int(sizes[graph]) - 1}"
            )


def values(dataset: GraphsDataset) -> None:
    """Features are finite or categories that the encoder knows; targets are those that `target` promises."""
    _features(dataset, dataset.x, dataset.graph_ptr, "features of node", "node features")
    if dataset.edge_attr is not None:
        if dataset.edge_attr.size(0) != dataset.num_edges:
            raise DatasetError(
                f"{dataset.name} has features of {dataset.edge_attr.size(0)} edges, but {dataset.num_edges} edges"
            )
        _features(dataset, dataset.edge_attr, dataset.edge_ptr, "features of edge", "edge features")
    _targets(dataset)


def split(dataset: GraphsDataset) -> None:
    """Graphs of the parts exist, are in one part only and have a target; the training part is not empty."""
    import torch

    name, graphs = dataset.name, dataset.num_graphs
    if unknown := dataset.parts.keys() - set(PARTS):
        raise DatasetError(f"{name}: unknown part {min(unknown)!r}; allowed: {', '.join(PARTS)}")
    ids = torch.cat([dataset.parts[part] for part in PARTS])
    outside = ids[(ids < 0) | (ids >= graphs)]
    if outside.numel():
        raise DatasetError(
            f"{name}: its split names graph {int(outside[0])}; its {graphs} graphs have ids 0 to {graphs - 1}"
        )
    if not dataset.parts["train"].numel():
        raise DatasetError(
            f"{name}: the training split is empty; give graphs to it, "
            f"or raise dataset.train_share where the split is drawn"
        )
    uses = torch.bincount(ids, minlength=graphs)
    if bool((uses > 1).any()):
        graph = _first(uses > 1)
        parts = [part for part in PARTS for _ in range(int((dataset.parts[part] == graph).sum()))]
        raise DatasetError(
            f"{name}: graph {graph} is in {' and in '.join(parts)}; every graph is in one part, once"
        )
    if bool((missing := (uses > 0) & without_class(dataset)).any()):
        raise DatasetError(
            f"{name}: graph {_first(missing)} has no class{' at some node' * dataset.per_node}; "
            f"give it one, or leave it out of the split"
        )


def without_class(dataset: GraphsDataset) -> Tensor:
    """[G] bool: graphs that have no class, or have nodes without."""
    import torch

    if dataset.target != "class":
        return torch.zeros(dataset.num_graphs, dtype=torch.bool)
    if not dataset.per_node:
        return dataset.y < 0
    nodes = (dataset.y < 0).nonzero().flatten()
    owners = torch.searchsorted(dataset.graph_ptr, nodes, right=True) - 1
    return torch.bincount(owners, minlength=dataset.num_graphs) > 0


def _pointer(name: str, key: str, ptr: Tensor, total: int, noun: str) -> None:
    if ptr.dim() != 1 or ptr.numel() < 2 or int(ptr[0]) != 0:
        raise DatasetError(f"{name}: {key} must start at 0 and have an entry more than there are graphs")
    if bool((ptr.diff() < 0).any()):
        raise DatasetError(f"{name}: graph {_first(ptr.diff() < 0)} ends before it begins; {key} must not fall")
    if int(ptr[-1]) != total:
        raise DatasetError(
            f"{name}: {key} ends at {int(ptr[-1])} in graph {ptr.numel() - 2}, but there are {total} {noun}"
        )


def _features(dataset: GraphsDataset, table: Tensor, ptr: Tensor, place: str, noun: str) -> None:
    import torch

    if table.is_floating_point():
        low, high = table.aminmax() if table.numel() else (torch.zeros(()),) * 2  # NaN if any value is
        if not bool(torch.isfinite(high - low)):
            row = _first(~torch.isfinite(table).all(1))
            graph = _owner(ptr, row)
            raise DatasetError(
                f"{dataset.name}: the {place} {row - int(ptr[graph])} of graph {graph} hold NaN or infinity; "
                f"clean them first"
            )
        return
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    known = torch.tensor(get_bond_feature_dims() if table is dataset.edge_attr else get_atom_feature_dims())
    if dataset.encoder != "ogb" or table.size(1) != len(known):
        raise DatasetError(f"{dataset.name}: the {noun} are {table.size(1)} whole numbers; give them as float32")
    wrong = ((table < 0) | (table >= known)).any(1)
    if bool(wrong.any()):
        row = _first(wrong)
        graph = _owner(ptr, row)
        raise DatasetError(
            f"{dataset.name}: the {place} {row - int(ptr[graph])} of graph {graph} are not categories that OGB's "
            f"encoder knows: {table[row].tolist()}"
        )


def _targets(dataset: GraphsDataset) -> None:
    import torch

    name, y = dataset.name, dataset.y
    expected = dataset.num_nodes if dataset.per_node else dataset.num_graphs
    noun = "nodes" if dataset.per_node else "graphs"
    if y.size(0) != expected:
        raise DatasetError(f"{name} has {y.size(0)} targets, but {expected} {noun}")
    if dataset.target == "class":
        wrong = (y < -1) | (y >= dataset.num_outputs)
        allowed = f"the classes are 0 to {dataset.num_outputs - 1}, or -1 for none"
    elif dataset.target == "labels":
        wrong = ((y != 0) & (y != 1) & ~y.isnan()).any(1)
        allowed = "labels are 0, 1, or NaN where one is missing"
    else:
        wrong = ~torch.isfinite(y).all(1)
        allowed = "targets to regress must be finite"
    if bool(wrong.any()):
        row = _first(wrong)
        graph = _owner(dataset.graph_ptr, row) if dataset.per_node else row
        place = (
            f"node {row - int(dataset.graph_ptr[graph])} of graph {graph}" if dataset.per_node else f"graph {row}"
        )
        raise DatasetError(f"{name}: the target of {place} is {y[row].tolist()}; {allowed}")


def _first(wrong: Tensor) -> int:
    return int(wrong.nonzero()[0])


def _owner(ptr: Tensor, row: int) -> int:
    """The graph that a row of all nodes or edges belongs to."""
    import torch

    return int(torch.searchsorted(ptr, row, right=True)) - 1
