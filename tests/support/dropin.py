"""What tests of the drop-in share: its backend here, and PyG as it was after each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gnnbench
from gnnbench.backends import isplib
from gnnbench.patch import cost
from gnnbench.patch.status import TALLY

BACKEND = "reference" if isplib.MISSING else "isplib"


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Calls are counted anew, too."""
    TALLY.clear()
    yield
    gnnbench.unpatch_pyg()


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is worth its Graph."""
    monkeypatch.setattr(cost, "FEW", 0)
