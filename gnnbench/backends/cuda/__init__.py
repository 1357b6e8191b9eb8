"""GPU kernels, in Triton: `CudaKernels` starts them, `Backend` prepares graphs and models for them.

spmm extremum softmax   sums over edges and their scores, extrema and segments, softmax
attention attention_kernels   fused attention, on the host and on the device
families/             what tells one kind of attention from another, a file for each
choices               how a kernel can be run, for heuristics and the tuner
_base _triton         segments of edges, what a program holds, how a kernel is started; and Triton itself
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import version
from typing import TYPE_CHECKING, ClassVar

import torch

from gnnbench import registry
from gnnbench.backends import base
from gnnbench.backends.cuda import _triton
from gnnbench.backends.cuda._base import BaseKernels
from gnnbench.backends.cuda.families import ON_DEVICE

if not TYPE_CHECKING:
    BaseKernels = registry.merged("backends.cuda", BaseKernels)


class CudaKernels(BaseKernels):
    """Triton kernels for float32, float64, bfloat16 and float16; deterministic."""

    name: ClassVar[str] = "cuda"
    families: ClassVar[Collection[str]] = ON_DEVICE


class Backend(base.KernelBackend):
    """Untouched PyG models whose convs run on `CudaKernels`."""

    name = "cuda"
    kernels = CudaKernels
    automatic_on = "cuda"

    @property
    def device(self) -> torch.device:
        """The current GPU, or the CPU for kernels that are interpreted."""
        on_gpu = CudaKernels.device_type == "cuda"
        return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")

    @classmethod
    def unavailable(cls) -> list[str]:
        reasons = []
        if _triton.MISSING:
            reasons.append("Triton is not installed; CUDA builds of PyTorch for Linux bring it")
        if _triton.INTERPRETED:
            why = "" if _triton.MISSING else _triton.uninterpretable(version("triton"), version("numpy"))
            return [*reasons, *([why] if why else [])]
        if torch.version.cuda is None:
            reasons.append(f"PyTorch {torch.__version__} was built without CUDA; install a CUDA build of it")
        elif not torch.cuda.is_available():
            reasons.append("no CUDA device or driver was found; `nvidia-smi` must list one")
        return reasons
