"""Dropout by a hash, so that a backward pass draws again what no one has kept."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

WORD = 2**32 - 1
PIECE = 4096  # numbers whose places share what the seed makes of them, as in `cython_kernels/dropout.h`
GOLDEN = 0x9E3779B9  # 2^32 over the golden ratio


class Dropout(NamedTuple):
    """Which numbers to drop; every backend drops the same ones.

    Attributes:
        p: the dropped share, from 0 to 1.
        seed: [1] int64, of which both 32-bit words count.
        first: how many numbers, or edges, stand before these, where other processes have them.
    """

    p: float
    seed: Tensor
    first: int = 0

    @property
    def threshold(self) -> int:
        """Numbers whose hash is smaller are dropped."""
        return min(int(self.p * 2**32), WORD)

    @property
    def scale(self) -> float:
        """The factor of the numbers that stay; zero where p = 1, which drops all."""
        return 1 / (1 - self.p) if self.p < 1 else 0.0

    def words(self) -> tuple[int, int]:
        """The lower and the higher half of the seed."""
        seed = int(self.seed)
        return seed & WORD, seed >> 32 & WORD

    def _words(self) -> tuple[Tensor, Tensor]:
        return self.seed & WORD, self.seed >> 32 & WORD

    def multiplier(self, num_edges: int, heads: int) -> Tensor:
        """[E, H] float64 of attention weights: zero for what is dropped, `scale` for the rest.

        Edges are in the order of `graph.col`.
        """
        low, high = self._words()
        edge = (self.first + torch.arange(num_edges, device=self.seed.device)).unsqueeze(1) & WORD
        head = torch.arange(heads, device=self.seed.device)
        return self._multiplier(((_mixed(edge ^ low) + head) & WORD) ^ high)

    def multiplier_of(self, x: Tensor) -> Tensor:
        """Return the multipliers of any tensor, in its shape, by where its numbers are."""
        low, high = self._words()
        place = self.first + torch.arange(x.numel(), device=self.seed.device).view(x.shape)
        piece = _mixed(place // PIECE ^ low)
        return self._multiplier((place % PIECE * GOLDEN + piece & WORD) ^ _mixed(piece ^ high))

    def _multiplier(self, word: Tensor) -> Tensor:
        return (_mixed(word) >= self.threshold).double() * self.scale


def _mixed(x: Tensor) -> Tensor:
    """Wellons' finaliser `lowbias32` of 32-bit words held in int64."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & WORD
    x = ((x ^ (x >> 15)) * 0x846CA68B) & WORD
    return x ^ (x >> 16)


def drawn_seed(p: float, device: torch.device) -> Tensor | None:
    """A seed of torch's generator; None, and nothing drawn, if nothing is to be dropped."""
    return torch.randint(2**63 - 1, (1,), device=device) if p > 0 else None
