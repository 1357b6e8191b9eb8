"""Forwards that run twice: activation checkpointing computes in backward again what it did not keep."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.dropout import _DropoutNd


def draws(conv: Any) -> bool:
    """Return whether a conv drops some of what it computes, other numbers than PyG by the same seed."""
    return getattr(conv, "training", False) and _drops(conv)


def _drops(module: Any) -> bool:
    """Return whether dropout is in a module; walking `modules()` would take four times as long."""
    if module is None:
        return False
    own = vars(module)
    if isinstance(module, _DropoutNd) or own.get("dropout") or getattr(type(module), "dropout", None):
        return True
    children = own["_modules"]
    return "dropout" in children or any(map(_drops, children.values()))


def repeated(conv: Any = None) -> bool:
    """Return whether a call may be the first or second run of a forward, both of which must run the same code.

    A checkpoint with `use_reentrant=False` puts hooks on saved tensors in both runs, and compares these tensors.
    With True, as in PyG's reversible layers, the first run is without gradient, and only draws have to agree.
    """
    if torch._C._current_graph_task_id() != -1:  # in backward
        return True
    if torch.is_grad_enabled():
        return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    return not torch.is_inference_mode_enabled() and draws(conv)
