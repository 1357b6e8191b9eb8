"""The op specification in plain torch, bound like every accelerated backend: slow, and right by inspection."""

from __future__ import annotations

from gnnbench.backends import base
from gnnbench.ops.kernels import Kernels


class Backend(base.KernelBackend):
    """Untouched PyG models whose convs run on `ops.Kernels`."""

    name = "reference"
    anywhere = True
    kernels = Kernels
