"""Citation graphs Cora, CiteSeer and PubMed with their public split (Yang, Cohen & Salakhutdinov 2016)."""

from __future__ import annotations

from typing import Literal

from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, Roots, TypedDataset, pyg
from gnnbench.errors import DatasetError

KNOWN = {
    "cora": pyg.Known("Planetoid", {"name": "Cora"}, 2_708, 10_556),
    "citeseer": pyg.Known("Planetoid", {"name": "CiteSeer"}, 3_327, 9_104),
    "pubmed": pyg.Known("Planetoid", {"name": "PubMed"}, 19_717, 88_648),
}
TEST_NODES = 1_000


class Config(DatasetConfig):
    """Which graph and which split."""

    source: str = "planetoid"
    name: Literal["cora", "citeseer", "pubmed"]
    split: Literal["public", "full"] = "public"


def load(config: Config, where: Roots) -> NodeDataset | TypedDataset:
    """Raises DatasetError where the raw files are missing or corrupt."""
    item = KNOWN[config.name]
    asked = item._replace(args={**item.args, "split": config.split})
    dataset = pyg.read(item.args["name"], asked, where, "synthetic:cora")
    # `test.index` is text: cut short it still loads, with features and labels of test nodes mixed up.
    unlike = pyg.unlike(dataset, item)
    if not unlike and (test := int(dataset.test_mask.sum())) != TEST_NODES:
        unlike = f"has {test} test nodes instead of the published {TEST_NODES:,}"
    if unlike:
        raise DatasetError(
            f"{item.folder(config.name, where)}: {dataset.name} {unlike}; replace the files, one is truncated"
        )
    return dataset
