"""`torch.nn.functional.dropout` by a hash, where a program asks for other random numbers than torch's."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.messages.arguments import PLAIN
from gnnbench.ops.dropout import PIECE
from gnnbench.ops.features import dropout
from gnnbench.patch.call import Declined, repeated
from gnnbench.patch.engine import Engine
from gnnbench.patch.functions import Function


class Dropout(Function):
    """The stand-in for `dropout`, through which layers call it too."""

    def __init__(self) -> None:
        super().__init__(F.dropout, _dropped)
        code, names = self.original.__code__, {**self.original.__globals__}
        self._own: Any = FunctionType(code, names, "dropout", self.original.__defaults__)
        names["dropout"] = self.original  # by which subclasses of tensors know it

    def enabled_by_default(self) -> bool:
        return False

    def is_repeated(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether a call that draws may be one of two runs of a forward, as one without gradient may."""
        (training,) = args[2:3] or (kwargs.get("training", True),)
        within = torch.is_grad_enabled() or torch.is_inference_mode_enabled()
        return bool(training) and (repeated() or not within)

    def run_original(self, *args: Any, **kwargs: Any) -> Any:
        return self._own(*args, **kwargs)


def _dropped(
    engine: Engine, input: Any = None, p: Any = 0.5, training: Any = True, inplace: Any = False
) -> Tensor:
    if type(input) not in PLAIN or input.layout != torch.strided:
        raise Declined("its input is not a plain tensor")
    if type(p) not in (int, float) or not 0 <= p <= 1:
        raise Declined("p is not a number from 0 to 1")
    if not training or p == 0:
        return input
    engine.policy.reject_small(input.numel(), PIECE)
    kernels, _ = engine.on(input)
    if "dropout" not in kernels.accelerated or input.dtype not in (torch.float32, torch.float64):
        raise Declined(f"{kernels.name} has no dropout of this type")
    if inplace:
        return input.copy_(dropout(kernels, input, p))
    # Not where the forward may run twice, as features would be known only to the second run, which draws the same.
    if engine.policy.many(input) and torch.is_grad_enabled() and not repeated():
        return engine.features.dropped(kernels, input, p)
    return dropout(kernels, input, p)


DROPOUT = Dropout()
