"""Presets of synthetic data: their short names, and the check of a name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from gnnbench.errors import did_you_mean


def known(preset: str, presets: Collection[str]) -> str:
    """`preset`; ValueError, for pydantic, where it is none of `presets`."""
    if preset not in presets:
        raise ValueError(f"unknown preset {preset!r}{did_you_mean(preset, presets)}")
    return preset


def parse(spec: str, presets: Collection[str]) -> dict[str, Any] | None:
    """The keys that `synthetic:PRESET[:SCALE]` stands for; None for another name or preset."""
    source, *rest = spec.split(":")
    if source != "synthetic" or not 1 <= len(rest) <= 2 or rest[0] not in presets:
        return None
    return dict(zip(("preset", "scale"), rest, strict=False))
