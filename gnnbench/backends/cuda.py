"""NVIDIA GPUs: says what is missing to run there; its Triton kernels are not part of this version."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from gnnbench.backends import base
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable


class Backend(base.Backend):
    """A name that can be asked for and answers with the reasons why it cannot run."""

    name = "cuda"
    takes_rewrites = True

    @classmethod
    def unavailable(cls) -> list[str]:
        reasons = []
        if torch.version.cuda is None:
            reasons.append(f"PyTorch {torch.__version__} was built without CUDA; install a CUDA build of it")
        elif not torch.cuda.is_available():
            reasons.append("no CUDA device or driver was found; `nvidia-smi` must list one")
        if find_spec("triton") is None:
            reasons.append("Triton is not installed; CUDA builds of PyTorch for Linux bring it")
        return [*reasons, "the CUDA kernels are not part of this version of gnnbench"]

    def prepare(self, model: torch.nn.Module, dataset: NodeDataset) -> base.Prepared:
        raise BackendUnavailable(f"backend {self.name!r} is unavailable: {'; '.join(self.unavailable())}")
