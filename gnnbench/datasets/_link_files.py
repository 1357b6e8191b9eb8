"""Your own links: a `.csv` with a line for each, which says from where, to where, and in which part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnbench.datasets._links import EVALUATED
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

NAMES = ("links.csv", "links.csv.gz")
COLUMNS = ("source", "destination", "part")
OPTIONAL = ("type", "label")
MESSAGE = "message"  # in place of a part: an edge that is no link


def is_links(path: Path) -> bool:
    """Return whether the name of a file says that it lists links: it ends with `links.csv`, gzipped or not."""
    return path.name.lower().endswith(NAMES)


def read(path: Path) -> dict[str, Any]:
    """Read arguments of `LinksDataset`, but for its name and x, and all pairs [2, P] that the file names.

    Messages run over lines of part `message`; where there are none, over training links in both directions.

    Raises:
        DatasetError: a column, a part, a label or an id that cannot be.
    """
    import pandas as pd
    import torch

    from gnnbench.datasets import _tables

    table = pd.read_csv(path, skipinitialspace=True, comment="#")
    table.columns = [str(name).strip().lower() for name in table.columns]
    named = sorted({*table.columns})
    if not {*COLUMNS} <= {*named} <= {*COLUMNS, *OPTIONAL}:
        raise DatasetError(
            f"{path}: has columns {', '.join(named)}; a file of links needs {', '.join(COLUMNS)}, and may have "
            f"{' and '.join(OPTIONAL)}"
        )
    part = table["part"].astype(str).str.strip().str.lower().replace(_tables.SPLIT_WORDS)
    _check(path, part, part.isin(["train", *EVALUATED, MESSAGE]), f"train, val, test, {MESSAGE}")
    label = table["label"] if "label" in table else part.eq(part).astype(int)
    _check(path, label, label.isin([0, 1]), "1 for a link, 0 for a pair that is none")
    negative = part[label.eq(0)]
    _check(path, negative, negative.isin(EVALUATED), "val, test beside label 0; negatives of training are drawn")
    pairs = torch.from_numpy(_tables.whole_edges(path, table[["source", "destination"]].to_numpy().T))

    def where(name: str, kind: int = 1) -> Tensor:
        return torch.from_numpy((part.eq(name) & label.eq(kind)).to_numpy())

    positives = {name: pairs[:, where(name)] for name in ("train", *EVALUATED)}
    messages, train = pairs[:, where(MESSAGE)], positives["train"]
    result: dict[str, Any] = {
        "edge_index": messages if messages.numel() else torch.cat([train, train.flip(0)], 1).unique(dim=1),
        "positives": positives,
        "negatives": {name: pairs[:, where(name, 0)] for name in EVALUATED} if label.eq(0).any() else {},
        "pairs": pairs,
    }
    if "type" in table:
        typed = pd.to_numeric(table["type"], errors="coerce").where(part.ne(MESSAGE) & label.eq(1), 0)
        is_type = (typed >= 0) & (typed == typed.round()) & (typed < len(table))
        _check(path, table["type"], is_type, "whole numbers from 0 without gaps")
        kinds = torch.from_numpy(typed.astype("int64").to_numpy())
        result["relations"] = {name: kinds[where(name)] for name in positives}
        result["num_relations"] = int(kinds.max()) + 1
    return result


def _check(path: Path, column: pd.Series[Any], fits: pd.Series[bool], allowed: str) -> None:
    if not fits.all():
        raise DatasetError(f"{path}: found {column.name} {column[~fits].iloc[0]}; allowed: {allowed}")
