"""The compiled modules, if they were built, and the instruction set they run."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from gnnbench.errors import BackendUnavailable, did_you_mean

try:  # after torch, so that both share one OpenMP runtime
    import gnnbench.backends.isplib._attention as attention
    import gnnbench.backends.isplib._ceiling as ceiling
    import gnnbench.backends.isplib._edge as edge
    import gnnbench.backends.isplib._fusedmm as fusedmm
    import gnnbench.backends.isplib._layout as layout
    import gnnbench.backends.isplib._spmm as spmm

    MISSING = ""
except ImportError as error:
    MISSING = str(error)

ISA = ("baseline", "avx2", "avx512")


def isa_level() -> int:
    """Index into `ISA` of the instruction set in use: the best of this processor, or lower by `GNNBENCH_ISA`.

    Raises:
        BackendUnavailable: `GNNBENCH_ISA` is unknown or more than this processor has.
    """
    highest: int = layout.highest_isa()
    asked = os.environ.get("GNNBENCH_ISA", "") or ISA[highest]
    if asked not in ISA:
        raise BackendUnavailable(f"GNNBENCH_ISA={asked!r} is unknown{did_you_mean(asked, ISA)}")
    if ISA.index(asked) > highest:
        raise BackendUnavailable(
            f"GNNBENCH_ISA={asked!r} is more than this processor has; allowed: {', '.join(ISA[: highest + 1])}"
        )
    return ISA.index(asked)


def report() -> dict[str, str | int]:
    """What `doctor` and results say of the kernels: whether they are built, instruction set, OpenMP, threads."""
    if MISSING:
        return {"built": "no", "reason": MISSING}
    return {
        "built": "yes",
        "isa": ISA[isa_level()],
        "openmp": layout.openmp_version(),
        "threads": torch.get_num_threads(),
    }


def addresses(*tensors: Tensor | None) -> list[int]:
    """Where the elements of contiguous tensors begin, 0 for None: what `attention` may be given for tensors."""
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


__all__ = [
    "ISA",
    "MISSING",
    "addresses",
    "attention",
    "ceiling",
    "edge",
    "fusedmm",
    "isa_level",
    "layout",
    "report",
    "spmm",
]
