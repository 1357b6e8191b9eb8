"""Any node-classification dataset of `torch_geometric.datasets`, of one type or several, by class name."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator

from gnnbench.config import Count, DatasetConfig
from gnnbench.datasets import NodeDataset, Roots, TypedDataset, _pyg
from gnnbench.datasets._pyg import Known

KNOWN = {
    "amazon-computers": Known("Amazon", {"name": "Computers"}, 13_752, 491_722),
    "amazon-photo": Known("Amazon", {"name": "Photo"}, 7_650, 238_162),
    "amazon-ratings": Known("HeterophilousGraphDataset", {"name": "Amazon-ratings"}, 24_492, 186_100),
    "blogcatalog": Known("AttributedGraphDataset", {"name": "BlogCatalog"}, 5_196, 343_486),
    "coauthor-cs": Known("Coauthor", {"name": "CS"}, 18_333, 163_788),
    "coauthor-physics": Known("Coauthor", {"name": "Physics"}, 34_493, 495_924),
    "dblp": Known("DBLP", {}, 26_128, 239_566, keys={"embedding": 64}),  # whose conferences have no features
    "flickr": Known("Flickr", {}, 89_250, 899_756),
    "imdb": Known("IMDB", {}, 11_616, 34_212),
    "johnshopkins55": Known("LINKXDataset", {"name": "johnshopkins55"}, 5_180, 373_172),
    "minesweeper": Known("HeterophilousGraphDataset", {"name": "Minesweeper"}, 10_000, 78_804),
    "questions": Known("HeterophilousGraphDataset", {"name": "Questions"}, 48_921, 307_080),
    "roman-empire": Known("HeterophilousGraphDataset", {"name": "Roman-empire"}, 22_662, 65_854),
    "soc-epinions1": Known("SNAPDataset", {"name": "soc-epinions1"}, 75_888, 508_837),
    "tolokers": Known("HeterophilousGraphDataset", {"name": "Tolokers"}, 11_758, 1_038_000),
    "wiki-vote": Known("SNAPDataset", {"name": "wiki-vote"}, 7_115, 103_689),
    "wikics": Known("WikiCS", {}, 11_701, 431_726),
    "yelp": Known("Yelp", {}, 716_847, 13_954_819),
}
OURS = {"root", "transform", "pre_transform", "pre_filter", "force_reload"}


class Config(DatasetConfig):
    """A class, its arguments and, where it has several splits, which."""

    source: str = "pyg"
    dataset_class: str = Field(description="a class of torch_geometric.datasets, such as Amazon")
    args: dict[str, Any] = Field({}, description="what its constructor takes beside root, such as name")
    split_index: Count = Field(0, description="which split where there are several")

    @field_validator("args")
    @classmethod
    def _not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if ours := OURS & value.keys():
            raise ValueError(f"{min(ours)!r} cannot be given; use --data-root and the keys of this section")
        return value


def parse(spec: str) -> dict[str, Any] | None:
    """A short name in any case, or `ClassName[:argument]`, such as `Amazon:Photo`."""
    if item := KNOWN.get(spec.lower()):
        return {"dataset_class": item.dataset_class, "args": item.args, **item.keys}
    match = re.fullmatch(r"([A-Z]\w*)(?::([^:/]+))?", spec)
    if not match:
        return None
    import inspect

    import torch_geometric.datasets as datasets

    name, argument = match.groups()
    if name not in datasets.__all__ or name == "TUDataset":  # which is a source of its own
        return None
    keys = [key for key in inspect.signature(getattr(datasets, name)).parameters if key not in OURS]
    args = {keys[0]: argument} if argument is not None and keys else {}
    return {"dataset_class": name, "args": args}


def load(config: Config, where: Roots) -> NodeDataset | TypedDataset:
    """Raises DatasetError: unknown class or arguments, raw files missing or corrupt, not one graph."""
    argument = "".join(f":{value}" for value in config.args.values())
    name, asked = config.dataset_class + argument, Known(config.dataset_class, config.args)
    options = {"split_index": config.split_index, "seed": config.seed}
    dataset = _pyg.load(name, asked, where, "synthetic:cora", **options)
    known = next((item for item in KNOWN.values() if item[:2] == asked[:2]), None)
    if known and (unlike := _pyg.unlike(dataset, known)):
        dataset.notes.append(f"{dataset.name} {unlike}; its files may be altered or truncated")
    return dataset
