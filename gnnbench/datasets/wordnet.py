"""WordNet18RR: links of eleven types between words (Dettmers et al. 2018), through PyG's own class."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gnnbench.config import Count, DatasetConfig
from gnnbench.datasets import LinksDataset, Roots, pyg

KNOWN = {"wordnet18rr": pyg.Known("WordNet18RR", {}, 40_943, 93_003)}


class Config(DatasetConfig):
    """Negatives are drawn and vectors trained, as the dataset has neither them nor features."""

    source: str = "wordnet"
    task: Literal["links"] = Field("links", description="links: tell edges from pairs that are none")
    negatives: Count = Field(100, description="destinations drawn for each evaluated link, as mrr needs")
    embedding: Count = Field(128, description="width of vectors trained for nodes of links, in place of features")


def parse(spec: str) -> dict[str, Any] | None:
    """`wordnet18rr`, in any case."""
    return {} if spec.lower() in KNOWN else None


def load(config: Config, where: Roots) -> LinksDataset:
    """The links with their split and types; messages run over those of training, in both directions."""
    import torch

    (dataset,) = pyg.opened("WordNet18RR", KNOWN["wordnet18rr"], where, "cora --set dataset.task=links")
    data = dataset[0]
    masks = {split: data[f"{split}_mask"] for split in ("train", "val", "test")}
    train = data.edge_index[:, masks["train"]]
    return LinksDataset(
        "WordNet18RR",
        torch.cat([train, train.flip(0)], 1),
        torch.empty(data.num_nodes, 0),
        positives={split: data.edge_index[:, mask] for split, mask in masks.items()},
        relations={split: data.edge_type[mask] for split, mask in masks.items()},
        num_relations=int(data.edge_type.max()) + 1,
    )
