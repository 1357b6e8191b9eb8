"""A graph that stays on disk: the folder that `gnnbench datasets convert` wrote, as read-only memory maps."""

from __future__ import annotations

import os.path
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from gnnbench.config import DatasetConfig
from gnnbench.datasets import MappedDataset, Offer, Roots, _cache, _raw
from gnnbench.datasets._kinds import FACTS
from gnnbench.errors import ConfigError, DatasetError

BEFORE = ("to_undirected", "reorder", "normalize_features")  # what would copy whole arrays

AGAIN = "write the folder anew with `gnnbench datasets convert`"


class Config(DatasetConfig):
    """Where the folder is, relative to the working folder or the data root."""

    source: str = "mapped"
    path: Path = Field(description="a folder that `gnnbench datasets convert` wrote")


def parse(spec: str) -> dict[str, Any] | None:
    """A folder that holds such arrays."""
    from gnnbench.datasets import _maps

    return {"path": spec} if os.path.isfile(os.path.join(spec, _maps.HEADER)) else None


def listing(where: Roots) -> list[Offer]:
    """Those in the data root."""
    from gnnbench.datasets import _maps

    offers = []
    for path in sorted(where.raw.glob(f"*/{_maps.HEADER}")):
        with suppress(DatasetError):  # of one that is broken, or another program's
            arrays = _maps.read_record(_maps.Header, path).arrays
            nodes, edges = (arrays[name].shape[0] if name in arrays else None for name in ("x", "col"))
            offers.append(Offer(str(path.parent), nodes, edges, path.parent))
    return offers


def load(config: Config, where: Roots) -> MappedDataset:
    """Map the arrays; `rowptr` and `col` are read once to check them, and not again until they change.

    Raises:
        ConfigError: an option that has to be given to the conversion.
        DatasetError: a file is missing, truncated or no part of a graph.
    """
    from gnnbench.datasets import _maps

    for name in BEFORE:
        if getattr(config, name) != DatasetConfig.model_fields[name].default:
            raise ConfigError(
                f"dataset.{name}: {config.path} is mapped as it is; give the option to `gnnbench datasets convert`"
            )
    folder = _raw.located(config.path, where.raw, "folder", Path.is_dir)
    with _maps.remedy(AGAIN):
        header = _maps.read_record(_maps.Header, folder / _maps.HEADER)
        maps = _maps.open_arrays(folder, header.arrays)
        nodes, edges = len(maps["x"]), len(maps["col"])
        _maps.check_shapes(folder, maps, {**dict.fromkeys(maps, nodes), "rowptr": nodes + 1, "col": edges})
    rowptr, col = maps.pop("rowptr"), maps.pop("col")

    def check(_: Path) -> None:
        with _maps.remedy(AGAIN):
            _maps.check_rows(folder, rowptr, col)

    key = _cache.fingerprint([folder / "rowptr.npy", folder / "col.npy"])
    _cache.built(where.cache / "mapped" / key, check)
    return MappedDataset(rowptr, col, **maps, **header.model_dump(include={*FACTS}))
