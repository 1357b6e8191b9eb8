"""Give tests of attention inputs of every family, and how precise results must be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gnnbench.graph import Graph
from gnnbench.ops.families import FAMILIES
from tests.support.kernels import normal

over_families = pytest.mark.parametrize("family", FAMILIES)


def inputs(
    family: str, graph: Graph, heads: int, channels: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, ...]:
    """Leaves for `family`, whose scores are of the order of one; dot's values are wider than its keys."""
    sizes = {"N": graph.num_rows, "M": graph.num_cols, "H": heads, "C": channels, "D": channels + 2}
    tensors = tuple(
        normal(*(sizes[dim] for dim in dims), dtype=dtype, device=graph.device)
        for dims in FAMILIES[family].inputs.values()
    )
    if "C" in FAMILIES[family].inputs["query"]:
        tensors = scaled(family, tensors, channels**-0.5)
    return tuple(tensor.requires_grad_() for tensor in tensors)


def scaled(family: str, tensors: tuple[Tensor, ...], size: float) -> tuple[Tensor, ...]:
    """Return it detached, with scores multiplied by `size`."""
    names = {"gat": ("query", "key"), "gatv2": ("att",)}.get(family, ("query",))
    named = zip(FAMILIES[family].inputs, tensors, strict=True)
    return tuple(tensor.detach() * (size if name in names else 1) for name, tensor in named)


def assert_as_precise(found: Tensor, torchs: Tensor, exact: Tensor) -> None:
    """Compute as plain torch in float32, which may be exact by luck where terms of order one cancel."""
    assert (found - exact).norm() <= 4 * (torchs - exact).norm() + 4e-7 * exact.norm() + 2e-7


class Largest(TorchDispatchMode):
    """Notes the most elements of any floating-point tensor that torch makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                self.elements = max(self.elements, tensor.numel())
        return made
