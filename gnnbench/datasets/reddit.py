"""Posts of Reddit: the dense graph of Hamilton, Ying & Leskovec 2017, and GraphSAINT's sparser one (Zeng 2020)."""

from __future__ import annotations

from typing import Literal

from gnnbench.config import DatasetConfig
from gnnbench.datasets import NodeDataset, Roots, TypedDataset, pyg

KNOWN = {
    "reddit": pyg.Known("Reddit", {}, 232_965, 114_615_892),
    "reddit2": pyg.Known("Reddit2", {}, 232_965, 23_213_838),
}


class Config(DatasetConfig):
    """Which of the two graphs."""

    source: str = "reddit"
    name: Literal["reddit", "reddit2"] = "reddit"


def load(config: Config, where: Roots) -> NodeDataset | TypedDataset:
    """Raises DatasetError where the raw files are missing or corrupt."""
    item = KNOWN[config.name]
    return pyg.read(item.dataset_class, item, where, "synthetic:reddit")
