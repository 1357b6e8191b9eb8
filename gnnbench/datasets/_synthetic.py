"""Presets of synthetic data: their names, where they are kept, and whether there is room for them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from gnnbench.datasets import Offer, Roots, _cache
from gnnbench.errors import DatasetError

Scale = Annotated[float, Field(gt=0, allow_inf_nan=False)]


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


def offer(preset: str, folder: Path | None, nodes: int | None, edges: int | None, graphs: int = 1) -> Offer:
    """A preset at scale 1; on disk where it was generated before."""
    return Offer(f"synthetic:{preset}", nodes, edges, folder if folder and folder.is_dir() else None, graphs)


def generated(folder: Path, generate: Callable[[Path], None]) -> dict[str, Any]:
    """Arrays of a folder, which is filled first where it is missing.

    They are mapped copy-on-write: the file cannot change, and writing to a tensor is no crash.
    """
    import torch

    files = _cache.built(folder, generate).glob("*.npy")
    return {path.stem: torch.from_numpy(np.load(path, mmap_mode="c")) for path in files}


def check_fits(name: str, memory: float, disk: float, where: Roots) -> None:
    """Raises DatasetError where generating `name` needs more bytes than are free."""
    import psutil

    for resource, need, free in (
        ("memory", memory, psutil.virtual_memory().available),
        ("disk", disk, shutil.disk_usage(_cache.nearest(where.cache)).free),
    ):
        if need > free:
            raise DatasetError(
                f"{name}: generating it needs {need / 2**30:.1f} GiB of {resource}, but "
                f"{free / 2**30:.1f} GiB are free; use a smaller dataset.scale"
            )
