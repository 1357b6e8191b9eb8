"""Attention families on the device: a file for each that has kernels, named as in `ops.families`.

_device   what such a file says, in its FAMILY
"""

from __future__ import annotations

from gnnbench import registry
from gnnbench.backends.cuda.families._device import DeviceFamily

ON_DEVICE: dict[str, DeviceFamily] = {
    name: registry.find("backends.cuda.families", name).FAMILY for name in registry.names("backends.cuda.families")
}

__all__ = ["ON_DEVICE", "DeviceFamily"]
