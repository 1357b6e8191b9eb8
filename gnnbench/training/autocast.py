"""Mixed precision: a model with dense products in bfloat16, and with parameters and loss in float32."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor


def bind(model: Any) -> None:
    """Run the forward of `model` under `torch.autocast` from now on; its outputs are float32."""
    model.forward = partial(_forward, model)


def _forward(model: Any, x: Any, *args: Any, **more: Any) -> Tensor:
    # Few weights are used twice in a step, and a copy that is kept would outlive the recording of a CUDA graph.
    with torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False):
        out: Tensor = type(model).forward(model, x, *args, **more)
    return out.float()
