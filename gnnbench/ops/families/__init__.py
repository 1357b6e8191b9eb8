"""Attention families: a file for each score function, all of which share one op and the kernels of every backend.

_family   what such a file says, in its FAMILY
"""

from __future__ import annotations

from gnnbench import registry
from gnnbench.ops.families._family import Attention, Family, Inputs

FAMILIES: dict[str, Family] = {
    name: registry.find("ops.families", name).FAMILY for name in registry.names("ops.families")
}

__all__ = ["FAMILIES", "Attention", "Family", "Inputs"]
