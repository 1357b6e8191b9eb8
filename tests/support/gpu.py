"""The CUDA kernels as tests run them: on a GPU where there is one, elsewhere in Triton's interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gnnbench.backends.cuda import Backend, CudaKernels, _triton
from gnnbench.graph import Graph
from tests.support import graphs

DEVICE = torch.device(CudaKernels.device_type)
KERNELS = CudaKernels(slice_edges=24)  # so that the zoo's hubs are cut
TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def _once(adapt: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Triton's interpreter adapts its language anew for every call of a function, a third of its time."""
    known = set()

    def adapt_once(function: Any) -> Any:
        if function.__module__ not in known:
            known.add(function.__module__)
            adapt(function)
        return SimpleNamespace(restore=lambda: None)

    return adapt_once


def _untraced(run: Callable[..., Any]) -> Callable[..., Any]:
    """Measuring coverage would double what the interpreter takes, whose every step is a call in Python."""

    def run_untraced(*args: Any, **kwargs: Any) -> Any:
        trace = sys.gettrace()
        sys.settrace(None)
        try:
            return run(*args, **kwargs)
        finally:
            sys.settrace(trace)

    return run_untraced


if _triton.INTERPRETED and not _triton.MISSING:
    from triton.runtime import interpreter

    interpreter._patch_lang = _once(interpreter._patch_lang)
    interpreter.GridExecutor.__call__ = _untraced(interpreter.GridExecutor.__call__)

MISSING = "; ".join(Backend.unavailable())
needs_triton = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def graph(name: str) -> Graph:
    """A graph of the zoo."""
    edge_index, rows, cols = graphs.zoo()[name]
    return Graph.from_edge_index(edge_index.to(DEVICE), rows, cols, KERNELS)
