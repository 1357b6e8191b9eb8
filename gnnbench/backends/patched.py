"""PyG on a plain `edge_index` as `gnnbench.patch_pyg()` leaves it: what the two-line drop-in gains."""

from __future__ import annotations

import torch

from gnnbench import convs
from gnnbench.backends import base
from gnnbench.backends.isplib import Backend as IsplibBackend
from gnnbench.backends.isplib import IsplibKernels
from gnnbench.patch import forward, propagate
from gnnbench.patch.policy import Policy
from gnnbench.results.schema import Binding


class Backend(base.EdgeIndexBackend):
    """Every call finds its Graph by `edge_index`, or builds it once that pays: in the first epochs."""

    name = "patched"

    @classmethod
    def unavailable(cls) -> list[str]:
        return IsplibBackend.unavailable()

    def bind(self, model: torch.nn.Module) -> list[Binding]:
        engine = forward.Engine([IsplibKernels()], Policy())
        forward.bind(model, engine, convs.table())
        propagate.bind(model, engine, None)
        return super().bind(model)
