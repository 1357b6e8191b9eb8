"""OGB's link-property datasets through ogb's own loader, splits and Evaluators (Hu et al. 2020)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from gnnbench.config import DatasetConfig
from gnnbench.datasets import LinksDataset, Roots, _names, _ogb
from gnnbench.datasets._links import EVALUATED
from gnnbench.datasets._ogb import Known

if TYPE_CHECKING:
    from torch import Tensor

# Nodes and edges of messages, as published; both directions but for citation2.
KNOWN = {
    "ogbl-collab": Known(235_868, 2_358_104),
    "ogbl-ddi": Known(4_267, 2_135_822, keys={"embedding": 256}),  # which has no features
    "ogbl-ppa": Known(576_289, 42_463_862),
    "ogbl-citation2": Known(2_927_963, 30_387_995),
    "ogbl-vessel": Known(3_538_495, None),
}


class Config(DatasetConfig):
    """Which dataset."""

    source: str = "ogbl"
    name: Annotated[str, _names.one_of("dataset", KNOWN)]
    task: Literal["links"] = Field("links", description="links: tell edges from pairs that are none")


def load(config: Config, where: Roots) -> LinksDataset:
    """The graph of training edges of `ogb.linkproppred.PygLinkPropPredDataset(config.name)`, and its split.

    Raises:
        DatasetError: files missing or corrupt.
    """
    import torch

    graphs, split = _ogb.load(config.name, where, "cora --set dataset.task=links")
    data = graphs[0]
    ranked = "target_node_neg" in split["test"]
    metric = _ogb.meta(config.name)["metric"]
    return LinksDataset(
        config.name,
        data.edge_index,
        torch.empty(data.num_nodes, 0) if data.x is None else data.x.float(),
        positives={part: _links(links) for part, links in split.items()},
        negatives={part: _negatives(split[part], ranked) for part in EVALUATED},
        ranked=ranked,
        metric={"rocauc": "auc"}.get(metric, metric),
        own_split=True,
    )


def _links(part: dict[str, Any]) -> Tensor:
    """[2, P] int64."""
    import torch

    ends = [part["source_node"], part["target_node"]] if "source_node" in part else torch.as_tensor(part["edge"]).T
    return torch.stack([torch.as_tensor(each).long() for each in ends])


def _negatives(part: dict[str, Any], ranked: bool) -> Tensor:
    """[2, Q] int64, or destinations [P, K] int64 of each link."""
    import torch

    return torch.as_tensor(part["target_node_neg"] if ranked else part["edge_neg"].T).long().contiguous()
