"""Instruction set and threads that the kernels of every family share, and what they decline."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from gnnbench.backends.isplib import _compiled
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Choice, Kernels

TYPES = (torch.float32, torch.float64)


def computes(*tensors: Tensor) -> bool:
    """Return whether compiled kernels take tensors of these types, where and with the signs that they lie."""
    return all(each.dtype in TYPES and each.device.type == "cpu" and not each.is_neg() for each in tensors)


def csr(graph: Graph) -> dict[str, Any]:
    """The fields by which every kernel over edges takes a graph."""
    return {"rowptr": graph.rowptr, "col": graph.col, "rows": graph.num_rows, "cols": graph.num_cols}


class BaseKernels(Kernels):
    """Plain-torch kernels that know how the compiled ones are to be run.

    Args:
        isa: index into `_compiled.ISA`; None for what `_compiled.isa_level` finds.
        threads: None for `torch.get_num_threads()` at every call.
        gather: type that sums and means gather float32 features in, "float32" or "bf16"; sums are in float32.
    """

    types: ClassVar[tuple[torch.dtype, ...]] = TYPES

    def __init__(self, isa: int | None = None, threads: int | None = None, gather: str = "float32") -> None:
        self.level = _compiled.isa_level() if isa is None else isa
        self.isa = _compiled.vectors(self.level)
        self._asked_threads = threads
        self.gather = gather

    @property
    def threads(self) -> int:
        """Threads of the next call."""
        return self._asked_threads or torch.get_num_threads()

    def fallback(self, choice: Choice) -> tuple[Kernels, Choice]:
        """Return those for any processor, run by row without prefetch."""
        threads = choice.get("threads", self.threads)
        return type(self)(isa=0), {"algorithm": "row", "prefetch": 0, "threads": threads}
