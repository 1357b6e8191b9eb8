"""The scripts that measure what docs tell: each still finds what it imports."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted(path for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith(("test_", "_")))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_loads(script: Path) -> None:
    assert callable(runpy.run_path(str(script), run_name="loaded")["main"])
