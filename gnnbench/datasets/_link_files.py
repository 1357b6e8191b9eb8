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
    if len(unknown := part[~part.isin(["train", *EVALUATED, MESSAGE])]):
        raise DatasetError(f"{path}: unknown part {unknown.iloc[0]!r}; allowed: train, val, test, {MESSAGE}")
    label = table["label"] if "label" in table else part.eq(part).astype(int)
    if len(unknown := label[~label.isin([0, 1])]):
        raise DatasetError(
            f"{path}: found label {unknown.iloc[0]}; allowed: 1 for a link, 0 for a pair that is none"
        )
    if len(misplaced := part[label.eq(0) & ~part.isin(EVALUATED)]):
        raise DatasetError(
            f"{path}: a line of part {misplaced.iloc[0]} has label 0, but negatives are listed for val and test "
            "alone; those of training are drawn"
        )
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
        kinds = _types(path, table["type"], part.ne(MESSAGE) & label.eq(1))
        result["relations"] = {name: kinds[where(name)] for name in positives}
        result["num_relations"] = int(kinds.max()) + 1 if len(kinds) else 1
    return result


def _types(path: Path, column: pd.Series[Any], asked: pd.Series[bool]) -> Tensor:
    """Types [P] int64, of which those `asked` for are whole numbers from 0; others are 0."""
    import pandas as pd
    import torch

    values = pd.to_numeric(column, errors="coerce").where(asked, 0)
    wrong = ~((values >= 0) & (values == values.round()) & (values < len(column)))
    if wrong.any():
        raise DatasetError(
            f"{path}: found type {column[wrong].iloc[0]} of a link; number the types from 0 without gaps"
        )
    return torch.from_numpy(values.astype("int64").to_numpy())
