"""Where tests of datasets read and cache: folders of their own, the cache of real data kept for all of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnbench.datasets import Roots


@pytest.fixture
def where(tmp_path: Path) -> Roots:
    return Roots(tmp_path / "data", tmp_path / "cache")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")
