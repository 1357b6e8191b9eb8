"""The one model definition: convs with dropout, norm, activation and residual connections around them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Identity, LayerNorm, Linear, Module, ModuleList

from gnnbench.config import ModelConfig

NORMS: dict[str, Callable[[int], Module]] = {"none": Identity, "batch": BatchNorm1d, "layer": LayerNorm}


class Stack(Module):
    """`config.layers` convs; each but the last is followed by norm, activation and residual connection.

    A family with `LINEAR_ENDS` has convs without weights: a linear layer before them sets their width and
    one after them gives the logits.
    """

    def __init__(self, config: ModelConfig, family: ModuleType, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.activation = getattr(F, config.activation)
        linear_ends = getattr(family, "LINEAR_ENDS", False)
        hidden = config.hidden
        first, last = (hidden, hidden) if linear_ends else (in_channels, out_channels)
        widths = [first, *[hidden] * (config.layers - 1), last]
        self.encode = Linear(in_channels, hidden) if linear_ends else None
        self.convs = ModuleList(
            family.conv(config, *widths[i : i + 2], last=i == config.layers - 1) for i in range(config.layers)
        )
        self.decode = Linear(hidden, out_channels) if linear_ends else None
        self.norms = ModuleList(NORMS[config.norm](width) for width in widths[1:-1])
        self.skips = ModuleList(
            Identity() if width == hidden else Linear(width, hidden, bias=False)
            for width in widths[:-2]
            if config.residual
        )

    @property
    def input_changes(self) -> str:
        """Why the first conv never gets the same features twice in training; empty if it does."""
        if self.encode is not None:
            return "a linear layer comes before the first conv"
        return f"model.dropout={self.dropout:g} changes the features in every epoch" if self.dropout else ""

    def forward(self, x: Tensor, adj: Any) -> Tensor:
        """Logits [N, out_channels] of features x [N, in_channels]."""
        if self.encode is not None:
            x = self.activation(self.encode(self._drop(x)))
        for layer, conv in enumerate(self.convs):
            out = conv(self._drop(x), adj)
            if layer < len(self.norms):
                out = self.activation(self.norms[layer](out))
                if self.skips:
                    out = out + self.skips[layer](x)
            x = out
        return x if self.decode is None else self.decode(self._drop(x))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)
