"""Other values for a rehearsal: zeros and ones may hide that a function looks across destinations."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from gnnbench.ops.kernels import Kernels
from gnnbench.ops.stream import Chunk, Operands, Shares

LARGE = 1 << 24  # bytes of a parameter that is not copied


class VariedShares(Shares):
    """The shares of a chunk in operands of other values, the same in every chunk.

    Args:
        scales: the largest number of each operand.
    """

    def __init__(self, kernels: Kernels, chunk: Chunk, operands: Operands, scales: list[float]) -> None:
        super().__init__(kernels, chunk, operands)
        self.scales = scales

    def gather(self, positions: tuple[int, ...]) -> Tensor:
        (position,) = positions
        share, chunk, place = super().gather(positions), self.chunk, self.places[position]
        if place == "destination":
            return _varied(share, chunk.index + chunk.rows.start, self.scales[position])
        ids = {"source": chunk.col, "edge": chunk.edge_id}.get(place)
        return _varied(share, ids, self.scales[position])


def scales(shares: Shares) -> list[float]:
    """The largest number of a chunk's share in each operand."""
    return [_scale(shares.of(k)) if place != "parameter" else 1.0 for k, place in enumerate(shares.places)]


def with_other_parameters(conv: Module) -> Module:
    """Copy a layer with other parameters, but for large ones, which it shares."""
    memo: dict[int, Any] = {
        id(each): each if each.nbytes > LARGE else Parameter(_varied(each.detach(), None, _scale(each)))
        for each in conv.parameters()
    }
    return copy.deepcopy(conv, memo)


def _scale(values: Tensor) -> float:
    return float(values.detach().double().abs().amax()) or 1.0 if _is_real(values) else 1.0


def _is_real(values: Tensor) -> bool:
    return values.is_floating_point() and values.numel() > 0


def _varied(values: Tensor, ids: Tensor | None, scale: float) -> Tensor:
    """Other values of about the same size, of which none is zero; the same in all rows of one of `ids`."""
    if not _is_real(values):
        return values
    flat = values.double().reshape(len(values) if values.dim() else 1, -1)
    ids = torch.arange(len(flat), device=values.device) if ids is None else ids
    column = torch.arange(flat.size(1), device=values.device)
    noise = ((ids.double().unsqueeze(1) * 12.9898 + column * 78.233 + 1).sin() * 43758.5453).frac().abs()
    return (flat * (noise + 0.5) + noise * (0.1 * scale)).view(values.shape).to(values.dtype)
