"""The checks of many graphs before training: each refusal is a sentence that names the graph by its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.datasets._graphs import PARTS, GraphsDataset
from gnnbench.errors import DatasetError, GraphError

if TYPE_CHECKING:
    from torch import Tensor


def structure(dataset: GraphsDataset) -> None:
    """Pointers ascend and fit the tensors, every graph has nodes, and edges stay within their graph."""
    from gnnbench.graph import union

    try:
        graph_ptr, _ = union.checked(dataset.graph_ptr, dataset.edge_ptr, dataset.edge_index)
    except GraphError as error:
        raise DatasetError(f"{dataset.name}: {error}") from None
    if graph_ptr[-1] != dataset.num_nodes:
        raise DatasetError(
            f"{dataset.name}: graph_ptr ends at {int(graph_ptr[-1])}, but there are {dataset.num_nodes} nodes"
        )
    if bool((empty := graph_ptr.diff() == 0).any()):
        raise DatasetError(f"{dataset.name}: graph {_first(empty)} has no nodes; leave it out")
    if not dataset.num_edges:
        raise DatasetError(f"{dataset.name}: none of its graphs has an edge; there is nothing to aggregate")


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
