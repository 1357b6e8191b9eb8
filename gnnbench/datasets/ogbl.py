"""OGB's link-property datasets through ogb's own loader, splits and Evaluators (Hu et al. 2020)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gnnbench.config import DatasetConfig
from gnnbench.datasets import LinksDataset, Roots, ogb, one_of
from gnnbench.datasets._kinds import EVALUATED

# Nodes and edges of messages, as published; both directions but for citation2.
KNOWN = {
    "ogbl-collab": ogb.Known(235_868, 2_358_104),
    "ogbl-ddi": ogb.Known(4_267, 2_135_822, keys={"embedding": 256}),  # which has no features
    "ogbl-ppa": ogb.Known(576_289, 42_463_862),
    "ogbl-citation2": ogb.Known(2_927_963, 30_387_995),
    "ogbl-vessel": ogb.Known(3_538_495, None),
}


class Config(DatasetConfig):
    """Which dataset."""

    source: str = "ogbl"
    name: Annotated[str, one_of("dataset", KNOWN)]
    task: Literal["links"] = Field("links", description="links: tell edges from pairs that are none")


def load(config: Config, where: Roots) -> LinksDataset:
    """The graph of training edges of `ogb.linkproppred.PygLinkPropPredDataset(config.name)`, and its split."""
    import torch

    graphs, splits = ogb.loaded(config.name, where, "cora --set dataset.task=links")
    data, ranked = graphs[0], "target_node_neg" in splits["test"]
    positives, negatives = {}, {}
    for split, links in splits.items():
        pairs = (links["source_node"], links["target_node"]) if "source_node" in links else links["edge"].T
        positives[split] = torch.stack([torch.as_tensor(ends).long() for ends in pairs])
        if split in EVALUATED:
            none = links["target_node_neg"] if ranked else links["edge_neg"].T
            negatives[split] = torch.as_tensor(none).long().contiguous()
    metric = ogb.meta(config.name)["metric"]
    return LinksDataset(
        config.name,
        data.edge_index,
        torch.empty(data.num_nodes, 0) if data.x is None else data.x.float(),
        positives=positives,
        negatives=negatives,
        ranked=ranked,
        metric={"rocauc": "auc"}.get(metric, metric),
        own_split=True,
    )
