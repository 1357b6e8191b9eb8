"""Triton, if it is installed, and whether kernels run on a GPU or in its interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    from typing import TypeAlias

    constexpr: TypeAlias = Any
    tensor: TypeAlias = Any
    jit: Callable[[Callable[..., Any]], Any]
    tl: Any
    MISSING: str
else:
    try:
        import triton.language as tl
        from triton import jit
        from triton.language import constexpr, tensor

        MISSING = ""
    except ImportError as error:  # kernels can still be defined, so that this package imports anywhere
        jit, MISSING = (lambda function: function), str(error)
        tl = constexpr = tensor = None

# As `jit` decides for every kernel when it is defined: they then run on CPU tensors, slowly.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def uninterpretable(triton: str, numpy: str) -> str:
    """Why the interpreter of this version of Triton fails with this one of NumPy; empty if it works."""
    older = [tuple(int(part) for part in version.split(".")[:2]) for version in (triton, numpy)]
    if older[0] < (3, 7) and older[1] >= (2, 4):
        return f"the interpreter of Triton {triton} fails with NumPy {numpy}; install numpy<2.4 or triton>=3.7"
    return ""


__all__ = ["INTERPRETED", "MISSING", "constexpr", "jit", "tensor", "tl", "uninterpretable"]
