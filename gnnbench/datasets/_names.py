"""Names in configurations, and what presets of synthetic data share: where they are kept, whether they fit."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field

from gnnbench.datasets import _cache
from gnnbench.errors import DatasetError, did_you_mean

if TYPE_CHECKING:
    from gnnbench.datasets import Roots

Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def one_of(noun: str, names: Collection[str]) -> AfterValidator:
    """The check of a key of a configuration that holds one of `names`."""

    def check(value: str) -> str:
        if value not in names:
            raise ValueError(f"unknown {noun} {value!r}{did_you_mean(value, names)}")
        return value

    return AfterValidator(check)


def known(items: Mapping[str, Any], spec: str) -> dict[str, Any] | None:
    """The keys of a source that knows `items`, in any case and with `_` for `-`; None for another name."""
    name = {name.lower(): name for name in items}.get(spec.lower().replace("_", "-"))
    return {"name": name, **items[name].keys} if name else None


def parse(spec: str, presets: Collection[str]) -> dict[str, Any] | None:
    """The keys that `synthetic:PRESET[:SCALE]` stands for; None for another name or preset."""
    source, *rest = spec.split(":")
    if source != "synthetic" or not 1 <= len(rest) <= 2 or rest[0] not in presets:
        return None
    return dict(zip(("preset", "scale"), rest, strict=False))


def scaled(preset: str, scale: float) -> str:
    """Name a preset in tables."""
    return f"synthetic {preset}" + ("" if scale == 1 else f" x{scale:g}")


def folder(where: Roots, preset: str, *facts: Any) -> Path:
    """Where data of `preset` are kept that depend on `facts` alone."""
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    return where.cache / "synthetic" / f"{preset}-{digest}"


def mapped(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Arrays of a folder, mapped copy-on-write: the file cannot change, and writing to a tensor is no crash."""
    import numpy as np
    import torch

    return {name: torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c")) for name in names}


def check_fits(name: str, memory: float, disk: float, where: Roots) -> None:
    """Raises DatasetError where generating `name` needs more bytes than are free, or the cache cannot be made."""
    import psutil

    for resource, need, free in (
        ("memory", memory, psutil.virtual_memory().available),
        ("disk", disk, shutil.disk_usage(_cache.made(where.cache)).free),
    ):
        if need > free:
            raise DatasetError(
                f"{name}: generating it needs {need / 2**30:.1f} GiB of {resource}, but "
                f"{free / 2**30:.1f} GiB are free; use a smaller dataset.scale"
            )
