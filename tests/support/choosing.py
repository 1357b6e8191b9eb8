"""Rules by which products run the way that a test is about."""

from __future__ import annotations

import pytest

from gnnbench.backends.isplib import choices


def use_blocks(patch: pytest.MonkeyPatch, shift: int) -> None:
    """Every graph with edges goes over blocks of 2^shift columns, however few edges share one."""
    for name, value in {"SHIFT": shift, "SHIFTS": (0,), "PLAN": 100, "FULL": 0, "SHARED": 0}.items():
        patch.setattr(choices, name, value)
