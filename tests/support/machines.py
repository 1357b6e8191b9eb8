"""Machines on which products run the way that a test is about."""

from __future__ import annotations

import pytest

from gnnbench.backends.isplib import choices, machine
from gnnbench.backends.isplib.machine import DEFAULT, LINES, PREFETCH, SHIFTS, TABLES, Machine

OPS = {"spmm": (1, 2), "spmm_max": (1,)}


def figures(row_ns: float, blocked_ns: float) -> Machine:
    """Every gather by row and every edge of a block costs the same."""
    costs = dict.fromkeys(SHIFTS, (0.0, 0.0, blocked_ns))
    return Machine(
        threads=1,
        gather={op: {distance: [[row_ns] * len(TABLES) for _ in LINES] for distance in PREFETCH} for op in OPS},
        mean={op: [1.0] * len(LINES) for op in OPS},
        row={op: [0.0] * len(LINES) for op in OPS},
        blocked={op: dict.fromkeys(lines, costs) for op, lines in OPS.items()},
        wake=0.0,
        build=DEFAULT.build,
        build_edge=DEFAULT.build_edge,
    )


def use_blocks(patch: pytest.MonkeyPatch, shift: int) -> None:
    """Every graph with edges goes over blocks of 2^shift columns, however few edges share one."""
    model = figures(1e9, 1e-9)
    patch.setattr(machine, "current", lambda: model)
    patch.setattr(choices, "SHIFT", shift)
    patch.setattr(choices, "SHIFTS", (0,))
    patch.setattr(choices, "PLAN", 100)
