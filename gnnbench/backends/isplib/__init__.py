"""CPU kernels: `IsplibKernels` calls the compiled ones, `Backend` prepares graphs and models for them.

layout spmm edge attention layers   the kernels, by `cython_kernels/*.pyx`
sample batch                         sampled neighbourhoods, likewise
choices                              how they can be run, for heuristics and the tuner
ceiling                              what no kernel over edges can beat
_base _compiled workspace            what all share, the compiled modules, and memory to work in
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from gnnbench import registry
from gnnbench.backends import base
from gnnbench.backends.isplib import _compiled, choices
from gnnbench.backends.isplib._base import BaseKernels
from gnnbench.backends.isplib._compiled import ISA, isa_level, report, vectors
from gnnbench.backends.isplib.batch import Rows
from gnnbench.backends.isplib.sample import Neighbors, TypedNeighbors
from gnnbench.graph import CSRBuilder, Graph

BF16_TOLERANCE = 2e-2
PIECE = 1024  # rows

__all__ = ["ISA", "Neighbors", "Rows", "TypedNeighbors", "isa_level", "report", "vectors"]

if not TYPE_CHECKING:
    BaseKernels = registry.merged("backends.isplib", BaseKernels)
MISSING = _compiled.MISSING  # now that every module was asked for


class IsplibKernels(BaseKernels):
    """Cython kernels for float32 and float64 on CPU; results do not depend on the number of threads."""

    name: ClassVar[str] = "isplib"


def cpu_layout() -> CSRBuilder:
    """Return what sorts edges fastest on a CPU: compiled code where it is built, otherwise plain torch."""
    return CSRBuilder() if MISSING else IsplibKernels()


def rows(x: Tensor, index: Tensor) -> Tensor:
    """The rows [n, ...] of x at `index` [n] int64, which are nodes that a sampler has drawn."""
    pieces = torch.arange(0, len(index) + PIECE, PIECE).clamp_(max=len(index))  # for threads to share out
    return IsplibKernels().gather_rows(pieces, index.int(), x, None)


class Backend(base.KernelBackend):
    """Untouched PyG models whose convs run on `IsplibKernels`."""

    name = "isplib"
    kernels = IsplibKernels
    automatic_on = "cpu"
    remark = "our own implementation of that paper's ideas, not the iSpLib package"
    gathers = ("float32", "bf16")

    @property
    def tolerance(self) -> float | None:
        """Eight bits of precision are off by up to 2^-9 in each product, and gradients pass through several."""
        return BF16_TOLERANCE if self.config.gather == "bf16" else None

    @classmethod
    def unavailable(cls) -> list[str]:
        if not _compiled.MISSING:
            return []
        remedy = "install a C compiler such as gcc, then run `pip install -e .`"
        return [f"its kernels are not built ({_compiled.MISSING}); {remedy}"]

    def make_kernels(self) -> IsplibKernels:
        return IsplibKernels(gather=self.config.gather)

    def exception(self, graph: Graph, x: torch.Tensor, width: int) -> str:
        if self.config.gather == "float32" or choices.worth_bf16(graph, x, width):
            return ""
        return "gathers in float32 where bfloat16 would not pay: few channels, few edges or features in the cache"
