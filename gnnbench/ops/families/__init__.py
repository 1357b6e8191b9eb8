"""Attention families: one file per score function, all of which share one op and the kernels of every backend.

_family      what a family says of itself
gat gatv2 dot   the families; each file has FAMILY
"""

from __future__ import annotations

from gnnbench import registry
from gnnbench.ops.families._family import Family

FAMILIES: dict[str, Family] = {
    name: registry.find("ops.families", name).FAMILY for name in registry.names("ops.families")
}

__all__ = ["FAMILIES", "Family"]
