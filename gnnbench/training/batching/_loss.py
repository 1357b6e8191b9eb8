"""The loss and the metric of every kind of target."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor


def function(target: str, y: Tensor, smoothing: float = 0.0) -> Callable[[Tensor], Tensor]:
    """The function that gives the mean loss [] of outputs [M, C]; see `GraphsDataset.y` for `y` and `target`.

    Cross-entropy of a class; binary cross-entropy over the labels that are there; the L1 distance of values.

    Args:
        smoothing: share of a class that is spread over all classes.
    """
    if target == "class":
        return lambda outputs: F.cross_entropy(outputs, y, label_smoothing=smoothing)
    if target == "value":
        return lambda outputs: F.l1_loss(outputs, y)
    known = ~y.isnan()
    return lambda outputs: F.binary_cross_entropy_with_logits(outputs[known], y[known])


def count(target: str, y: Tensor) -> int:
    """The number of targets that the mean loss is over."""
    return int((~y.isnan()).sum()) if target == "labels" else y.numel()


def score(metric: Callable[[Tensor, Tensor], float], outputs: Tensor, y: Tensor) -> float | None:
    """The metric of outputs, None where it is not defined."""
    value = metric(outputs, y) if len(outputs) else math.nan
    return value if math.isfinite(value) else None
