"""The real graphs at GNNBENCH_DATA, and loading by short name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gnnbench import datasets, registry
from gnnbench.datasets import NodeDataset, Roots

REAL = Path(os.environ.get("GNNBENCH_DATA", "/nonexistent"))
needs_data = pytest.mark.skipif(not REAL.is_dir(), reason="GNNBENCH_DATA is not set")


def load(spec: str, where: Roots, **keys: Any) -> NodeDataset:
    section = datasets.parse(spec) | keys
    return datasets.load(registry.find("datasets", section["source"]).Config(**section), where)


def snapshot(root: Path) -> dict[Path, int]:
    """List what is in a folder and when it changed last."""
    return {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]}
