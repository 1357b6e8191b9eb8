"""Steps that all sources of many graphs share: options, missing features and splits, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gnnbench.config import DatasetConfig
from gnnbench.datasets import _prepare
from gnnbench.datasets._graphs import PARTS, GraphsConfig, GraphsDataset
from gnnbench.errors import DatasetError, GraphError

if TYPE_CHECKING:
    from torch import Tensor

EDGELESS = 0.01  # share of graphs without edges that is worth a note


def finish(dataset: GraphsDataset, config: DatasetConfig) -> GraphsDataset:
    """`dataset` with the options of `config` applied, fit for training; its tensors are never written to.

    Raises:
        DatasetError: what makes it unfit, in one sentence with the remedy.
    """
    if config.reorder != "none":
        raise DatasetError(
            f"dataset.reorder: {config.reorder} renumbers the nodes of one large graph; leave it out for the "
            f"{dataset.num_graphs:,} graphs of {dataset.name}"
        )
    _check_structure(dataset)
    _fill(dataset, config)
    _check_values(dataset)
    _split(dataset, config)
    if config.to_undirected:
        _to_undirected(dataset)
    if config.normalize_features:
        _normalize_features(dataset)
    edgeless = int((dataset.edge_ptr.diff() == 0).sum())
    if edgeless > EDGELESS * dataset.num_graphs:
        dataset.notes.append(f"{edgeless:,} of the {dataset.num_graphs:,} graphs have no edges")
    return dataset


def fold_of(classes: Tensor, folds: int, seed: int) -> Tensor:
    """[G] int64 from 0: a random fold for each graph, so that all have about equally many of each class."""
    import torch

    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
    order = order[classes[order].argsort(stable=True)]  # those of a class side by side are dealt out in turn
    fold = torch.zeros_like(order)
    fold[order] = torch.arange(len(classes)) % folds
    return fold


def _fill(dataset: GraphsDataset, config: DatasetConfig) -> None:
    import torch

    if not dataset.x.size(1):
        columns = config.degree_features if isinstance(config, GraphsConfig) else 0
        key, width = ("degree_features", columns) if columns else ("random_features", config.random_features)
        if not width:
            raise DatasetError(
                f"{dataset.name} has no node features; take degrees with --set dataset.degree_features=64, "
                f"or add seeded random ones, marked synthetic, with --set dataset.random_features=16"
            )
        _prepare.check_memory(dataset.name, dataset.num_nodes, width, key)
        if columns:
            dataset.x = _degrees(dataset, columns)
            dataset.notes.append(
                f"nodes have no features; they get their in-degree, one-hot in {columns} columns "
                f"(dataset.degree_features; 0 leaves it to dataset.random_features)"
            )
        else:
            generator = _prepare.generator(config, _prepare.FEATURES)
            dataset.x = torch.randn(dataset.num_nodes, width, generator=generator)
            dataset.made_up.append("features")
    if dataset.target == "class" and dataset.y.numel() and int(dataset.y.max()) == int(dataset.y.min()) == -1:
        if config.random_labels < 2:
            raise DatasetError(
                f"{dataset.name} has no targets; add seeded random classes, marked synthetic, with "
                f"--set dataset.random_labels=8"
            )
        generator = _prepare.generator(config, _prepare.LABELS)
        dataset.y = torch.randint(config.random_labels, dataset.y.shape, generator=generator)
        dataset.num_outputs = config.random_labels
        dataset.made_up.append("labels")


def _degrees(dataset: GraphsDataset, columns: int) -> Tensor:
    """[N, columns] float32: a one in the column of the node's in-degree, the last for all larger ones."""
    import torch

    first = dataset.graph_ptr[:-1].repeat_interleave(dataset.edge_ptr.diff())
    degree = torch.bincount(first + dataset.edge_index[1], minlength=dataset.num_nodes)
    x = torch.zeros(dataset.num_nodes, columns)
    return x.scatter_(1, degree.clamp(max=columns - 1).unsqueeze(1), 1.0)


def _split(dataset: GraphsDataset, config: DatasetConfig) -> None:
    """Without any split draw one over the graphs that have targets; check what results."""
    import torch

    none = torch.empty(0, dtype=torch.long)
    if not any(ids.numel() for ids in dataset.parts.values()):
        graphs = (~_without_class(dataset)).nonzero().flatten()
        order = graphs[torch.randperm(len(graphs), generator=_prepare.generator(config, _prepare.SPLIT))]
        train, val = (round(share * len(graphs)) for share in (config.train_share, config.val_share))
        val = min(val, len(graphs) - train)
        sizes = [train, val, len(graphs) - train - val]
        dataset.parts = dict(zip(PARTS, order.split(sizes), strict=True))
        dataset.made_up += [] if "split" in dataset.made_up else ["split"]
    else:
        dataset.parts = {**dict.fromkeys(PARTS, none), **dataset.parts}
    _check_split(dataset)


def _to_undirected(dataset: GraphsDataset) -> None:
    """Add the reverse of every edge; edges are then ordered by source and destination."""
    import torch
    from torch_geometric.utils import to_undirected

    if dataset.edge_attr is not None:
        raise DatasetError(
            f"dataset.to_undirected: the edges of {dataset.name} have features, which their reverses would lack; "
            f"leave it out"
        )
    first = dataset.graph_ptr[:-1].repeat_interleave(dataset.edge_ptr.diff())
    edges = to_undirected(dataset.edge_index.long() + first, num_nodes=dataset.num_nodes)
    owner = torch.searchsorted(dataset.graph_ptr, edges[0], right=True) - 1
    counts = torch.bincount(owner, minlength=dataset.num_graphs)
    dataset.edge_ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    dataset.edge_index = (edges - dataset.graph_ptr[owner]).int()


def _normalize_features(dataset: GraphsDataset) -> None:
    """As PyG's NormalizeFeatures does, graph by graph."""
    import torch

    if not dataset.x.is_floating_point():
        raise DatasetError(f"dataset.normalize_features: {dataset.name} has categories as features; leave it out")
    lowest = torch.segment_reduce(dataset.x.amin(1), "min", lengths=dataset.graph_ptr.diff())
    x = dataset.x - lowest.repeat_interleave(dataset.graph_ptr.diff()).unsqueeze(1)
    dataset.x = x.div_(x.sum(dim=-1, keepdim=True).clamp_(min=1.0))


def _check_structure(dataset: GraphsDataset) -> None:
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


def _check_values(dataset: GraphsDataset) -> None:
    """Features are finite or categories that the encoder knows; targets are those that `target` promises."""
    _features(dataset, dataset.x, dataset.graph_ptr, "features of node", "node features")
    if dataset.edge_attr is not None:
        if dataset.edge_attr.size(0) != dataset.num_edges:
            raise DatasetError(
                f"{dataset.name} has features of {dataset.edge_attr.size(0)} edges, but {dataset.num_edges} edges"
            )
        _features(dataset, dataset.edge_attr, dataset.edge_ptr, "features of edge", "edge features")
    _targets(dataset)


def _check_split(dataset: GraphsDataset) -> None:
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
    if bool((missing := (uses > 0) & _without_class(dataset)).any()):
        raise DatasetError(
            f"{name}: graph {_first(missing)} has no class{' at some node' * dataset.per_node}; "
            f"give it one, or leave it out of the split"
        )


def _without_class(dataset: GraphsDataset) -> Tensor:
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
