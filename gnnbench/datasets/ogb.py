"""OGB's node-property datasets through ogb's own loader and Evaluator (Hu et al. 2020)."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, Offer, Roots, _names, _ogb, _prepare
from gnnbench.errors import DatasetError

# Nodes and edges as ogb's loader gives them (products and proteins in both directions, arxiv in one).
KNOWN = {
    "ogbn-arxiv": (169_343, 1_166_243),
    "ogbn-products": (2_449_029, 123_718_280),
    "ogbn-proteins": (132_534, 79_122_504),
    "ogbn-mag": (1_939_743, 21_111_007),
    "ogbn-papers100M": (111_059_956, 1_615_685_872),
}
SPECS = list(KNOWN)
NEEDED = {
    True: ("raw/data.npz", "raw/node-label.npz"),
    False: ("raw/edge.csv.gz", "raw/num-node-list.csv.gz", "raw/num-edge-list.csv.gz", "raw/node-label.csv.gz"),
}


class Config(DatasetConfig):
    """Which dataset."""

    source: str = "ogb"
    name: Annotated[str, _names.one_of("dataset", KNOWN)]


parse = partial(_names.lowered, KNOWN)


def listing(where: Roots) -> list[Offer]:
    """On disk even where only the node features are missing, as those can be filled in."""
    return [
        Offer(name, nodes, edges, _ogb.on_disk(name, where, _needed(name)))
        for name, (nodes, edges) in KNOWN.items()
    ]


def load(config: Config, where: Roots) -> NodeDataset:
    """The only graph of `ogb.nodeproppred.PygNodePropPredDataset(config.name)`.

    ogbn-proteins has features on its edges alone: those of a node are the sum over its in-edges.

    Raises:
        DatasetError: files missing or corrupt, node features missing and not asked to be filled in, or a
            graph of several node types.
    """
    import torch

    meta = _ogb.meta("nodeproppred", config.name)
    if meta["is hetero"] == "True":
        raise DatasetError(
            f"{config.name} has several node and edge types; gnnbench trains on graphs of one type, "
            f"such as ogbn-arxiv"
        )
    twin = config.name if config.name in ("ogbn-products", "ogbn-proteins") else "ogbn-arxiv"
    folder = _ogb.find("nodeproppred", config.name, where, _needed(config.name), f"synthetic:{twin}")
    graphs, split = _ogb.read("nodeproppred", config.name, folder, where)
    data = graphs[0]

    x = data.x
    if x is None and data.edge_attr is not None:
        x = torch.zeros(data.num_nodes, data.edge_attr.size(1))
        x.index_add_(0, data.edge_index[1], data.edge_attr.float())
    elif x is None:
        if not config.random_features:
            raise DatasetError(
                f"{config.name}: {folder / 'raw' / 'node-feat.csv.gz'} is missing; put it there, or fill in "
                f"seeded random features, marked synthetic, with --set dataset.random_features=128"
            )
        x = torch.empty(data.num_nodes, 0)
    y = data.y.squeeze(1) if data.y.size(1) == 1 else data.y.float()
    if y.dim() == 1:
        y = y.nan_to_num(-1).long()
    parts = zip(_prepare.PARTS, ("train", "valid", "test"), strict=True)
    masks: dict[str, Any] = {
        part: _prepare.mask_of(data.num_nodes, torch.as_tensor(split[key])) for part, key in parts
    }
    metric, score = _ogb.metric_of("nodeproppred", config.name)
    return NodeDataset(
        config.name,
        data.edge_index,
        x.float(),
        y,
        **masks,
        num_classes=y.size(1) if y.dim() == 2 else int(meta["num classes"]),
        metric=metric,
        score=score,
    )


def _needed(name: str) -> tuple[str, ...]:
    return NEEDED[name == "ogbn-papers100M"]
