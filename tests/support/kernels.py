"""Give tests of kernels those of every instruction set, inputs, and how precise results must be."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib
from gnnbench.ops.kernels import Kernels
from tests.support import graphs

LEVELS = [] if isplib.MISSING else range(isplib.vectors(isplib.isa_level()) + 1)
ISPLIB: dict[str, Kernels] = {f"isplib {isplib.ISA[level]}": isplib.IsplibKernels(isa=level) for level in LEVELS}
KERNELS = {"torch": Kernels(), **ISPLIB}
OURS = [*KERNELS.values()][-1]  # the fastest here
WIDTHS = [1, 3, 16, 41, 63, 128, 602]

over_levels = pytest.mark.parametrize("level", LEVELS)
over_graphs = pytest.mark.parametrize("graph_name", graphs.NAMES)
over_kernels = pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS.keys())
over_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def over_pairs(
    name: str, sizes: Sequence[Any], kernels: Mapping[str, Kernels] = KERNELS, on: Sequence[str] = graphs.NAMES
) -> pytest.MarkDecorator:
    """`kernels`, `graph_name` and `name`: all pairs of the latter two on the last kernels, which are the fastest.

    The others, the same code for other vectors, run every size on one graph, and every graph at one size.
    """
    cases = []
    for kind, graph, size in itertools.product(kernels, on, sizes):
        if kind == [*kernels][-1] or graph == "power law" or size == sizes[len(sizes) // 2]:
            cases.append(pytest.param(kernels[kind], graph, size, id=f"{kind}-{graph}-{size}"))
    return pytest.mark.parametrize(("kernels", "graph_name", name), cases)


def normal(*shape: int, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(device, dtype)


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return normal(*shape, dtype=dtype).requires_grad_()


def double(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if tensor is None else tensor.double() for tensor in tensors]


def check(found: Tensor, truth: Tensor) -> None:
    assert graphs.relative_error(found, truth) < graphs.TOLERANCE[found.dtype]
