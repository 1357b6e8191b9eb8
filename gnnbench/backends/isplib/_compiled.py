"""The compiled modules, if they were built, and the instruction set they run."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from gnnbench.errors import BackendUnavailable, did_you_mean

MISSING = ""  # why a module that was asked for could not be loaded


def _share_openmp() -> None:
    """Let the kernels, which are linked to no OpenMP runtime, find the one that torch has loaded."""
    packages = Path(torch.__file__).parents[1]
    found = [*packages.glob("torch/lib/libgomp*"), *packages.glob("torch.libs/libgomp*"), "libgomp.so.1"]
    with suppress(OSError):  # or none, which the modules then miss
        ctypes.CDLL(str(found[0]), ctypes.RTLD_GLOBAL)


_share_openmp()


def load(name: str) -> Any:
    """The module compiled from `cython_kernels/NAME.pyx`; where it was not built, None, and `MISSING` says why."""
    global MISSING
    try:
        return import_module(f"gnnbench.backends.isplib._{name}")
    except ImportError as error:
        MISSING = str(error)
        return None


ISA = ("baseline", "avx2", "avx512", "amx")
layout = load("layout")


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


def vectors(level: int) -> int:
    """The level of vectors below or at another, for AMX multiplies matrices only."""
    return min(level, ISA.index("avx512"))


def report() -> dict[str, str | int]:
    """Report for `doctor` and results whether the kernels are built, their instruction set, OpenMP and threads."""
    if MISSING:
        return {"built": "no", "reason": MISSING}
    return {
        "built": "yes",
        "isa": ISA[isa_level()],
        "openmp": layout.openmp_version(),
        "threads": torch.get_num_threads(),
    }
