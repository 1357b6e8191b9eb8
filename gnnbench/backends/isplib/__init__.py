"""CPU kernels: `IsplibKernels` calls the compiled ones, `Backend` prepares graphs and models for them.

layout collate spmm edge fusedmm attention dropout embedding norm linear   the kernels,
by `cython_kernels/*.pyx`
sample                                       sampled neighbourhoods, likewise
choices edge_choices                         how they can be run, for heuristics and the tuner
machine measurement                          what memory costs here, which choices follow from
ceiling                                      what no kernel over edges can beat
_base _compiled workspace                    what all share, the compiled modules, and memory to work in
"""

from __future__ import annotations

from typing import ClassVar

import torch

from gnnbench.backends import base
from gnnbench.backends.isplib import _compiled, choices
from gnnbench.backends.isplib._compiled import ISA, isa_level, report
from gnnbench.backends.isplib.attention import AttentionKernels
from gnnbench.backends.isplib.collate import CollateKernels
from gnnbench.backends.isplib.dropout import DropoutKernels
from gnnbench.backends.isplib.edge import EdgeKernels
from gnnbench.backends.isplib.edge_choices import ATTENTION
from gnnbench.backends.isplib.embedding import EmbeddingKernels
from gnnbench.backends.isplib.fusedmm import FusedmmKernels
from gnnbench.backends.isplib.layout import LayoutKernels
from gnnbench.backends.isplib.linear import LinearKernels
from gnnbench.backends.isplib.norm import NormKernels
from gnnbench.backends.isplib.sample import Neighbors
from gnnbench.backends.isplib.spmm import SpmmKernels
from gnnbench.graph import Graph

BF16_TOLERANCE = 2e-2
MISSING = _compiled.MISSING  # now that every module was asked for

__all__ = ["ISA", "MISSING", "Backend", "IsplibKernels", "Neighbors", "isa_level", "report"]


class IsplibKernels(
    LayoutKernels,
    CollateKernels,
    SpmmKernels,
    EdgeKernels,
    FusedmmKernels,
    AttentionKernels,
    DropoutKernels,
    EmbeddingKernels,
    NormKernels,
    LinearKernels,
):
    """Cython kernels for float32 and float64 on CPU; results do not depend on the number of threads."""

    name: ClassVar[str] = "isplib"
    accelerated: ClassVar[frozenset[str]] = frozenset(
        {"spmm", "spmm_max", "sddmm", "edge_softmax", "fusedmm", *ATTENTION}
        | {"dropout", "embedding_sum", "batch_norm", "linear"}
    )


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
