"""OGB's node-property datasets through ogb's own loader and split (Hu et al. 2020)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, Roots, TypedDataset, _ogb, one_of
from gnnbench.datasets._ogb import Known
from gnnbench.errors import DatasetError

# Nodes and edges as ogb's loader gives them (products and proteins in both directions, arxiv in one).
KNOWN = {
    "ogbn-arxiv": Known(169_343, 1_166_243),
    "ogbn-products": Known(2_449_029, 123_718_280),
    "ogbn-proteins": Known(132_534, 79_122_504),
    # Only its papers have features, as wide as the vectors that the others get.
    "ogbn-mag": Known(1_939_743, 21_111_007, keys={"to_undirected": True, "embedding": 128}),
    "ogbn-papers100M": Known(111_059_956, 1_615_685_872),
}


class Config(DatasetConfig):
    """Which dataset."""

    source: str = "ogb"
    name: Annotated[str, one_of("dataset", KNOWN)]


def load(config: Config, where: Roots) -> NodeDataset | TypedDataset:
    """The only graph of `ogb.nodeproppred.PygNodePropPredDataset(config.name)`.

    ogbn-proteins has features on its edges alone: those of a node are the sum over its in-edges.

    Raises:
        DatasetError: files missing or corrupt, or node features missing and not asked to be filled in.
    """
    import torch

    from gnnbench.datasets import _prepare

    stand_in = {"ogbn-products": "ogbn-products", "ogbn-proteins": "ogbn-proteins", "ogbn-mag": "mag:0.01"}
    twin = stand_in.get(config.name, "ogbn-arxiv")
    graphs, split = _ogb.load(config.name, where, f"synthetic:{twin}")
    data, meta = graphs[0], _ogb.meta(config.name)
    if meta["is hetero"] == "True":
        typed = _typed(config.name, data)
        typed.num_classes = int(meta["num classes"])
        for part, ids in split.items():
            setattr(typed, f"{part}_mask", _prepare.mask_of(len(typed.y), ids[typed.target]))
        return typed

    x = data.x
    if x is None and data.edge_attr is not None:
        x = torch.zeros(data.num_nodes, data.edge_attr.size(1))
        x.index_add_(0, data.edge_index[1], data.edge_attr.float())
    elif x is None:
        if not config.random_features:
            raise DatasetError(
                f"{config.name}: {Path(graphs.raw_dir) / 'node-feat.csv.gz'} is missing; put it there, or fill in "
                f"seeded random features, marked synthetic, with --set dataset.random_features=128"
            )
        x = torch.empty(data.num_nodes, 0)
    y = _prepare.targets(config.name, data.y.nan_to_num(-1) if data.y.size(1) == 1 else data.y)
    masks: dict[str, Any] = {f"{part}_mask": _prepare.mask_of(len(x), ids) for part, ids in split.items()}
    return NodeDataset(
        config.name,
        data.edge_index,
        x.float(),
        y,
        **masks,
        num_classes=y.size(1) if y.dim() == 2 else int(meta["num classes"]),
        metric=meta["metric"],
    )


def _typed(name: str, graph: Any) -> TypedDataset:
    """The types of ogb's graph, with labels and without a split."""
    from torch_geometric.data import HeteroData

    from gnnbench.datasets import _prepare

    data = HeteroData()
    for kind, nodes in graph.num_nodes_dict.items():
        data[kind].num_nodes = nodes
    for key in ("x", "y", "edge_index"):
        for kind, value in graph[f"{key}_dict"].items():
            data[kind][key] = value
    return _prepare.typed(name, data)
