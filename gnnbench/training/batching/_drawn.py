"""Batches that are drawn at random, the same ones on every backend; several processes draw them in turn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from gnnbench.training.batching._ahead import SAMPLES, Loader
from gnnbench.training.batching._batch import Batch

if TYPE_CHECKING:
    from gnnbench.training.batching._shares import Shares


class Counted(Protocol):
    """Tensors of numbers that a batch is made of, in named tuples."""

    @property
    def total(self) -> int:
        """How many edges were drawn."""


Drawn = TypeVar("Drawn", bound=Counted)


class DrawnBatches(Loader, Generic[Drawn]):
    """Batches whose edges or negatives are drawn, for some of `train` each.

    What is drawn depends on seed, epoch and the batch's number alone, so that it is the same on every backend, and
    in a run that is resumed.
    """

    @abstractmethod
    def _drawn(self, chosen: Tensor, key: int) -> Drawn:
        """Draw for `chosen` of `train` by random numbers that `key` decides."""

    @abstractmethod
    def _share(self, drawn: Drawn, places: Tensor) -> Drawn:
        """The part of what was drawn that those at `places` need, with the same numbers as all have."""

    @abstractmethod
    def _batch(self, drawn: Drawn, chosen: Tensor, shares: Shares | None) -> Batch:
        """The batch of `chosen`, or of the share of this process in it."""

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        self.edges = 0 if self.config.draws_neighbors else None
        return self._batches(order, seed, number, self.shares)

    def samples(self) -> list[Batch]:
        return [*self._batches(self.shuffled(0, 0)[: SAMPLES * self.config.size], 0, 0)]

    def _batches(self, order: Tensor, seed: int, number: int, shares: Shares | None = None) -> Iterator[Batch]:
        steps = order.split(self.config.size)

        def draw(step: int) -> tuple[Drawn, int]:
            state = np.random.SeedSequence((seed, number, step)).generate_state(1, np.uint64)
            drawn = self._drawn(steps[step], int(state.view(np.int64)[0]))
            return drawn, drawn.total

        def share(whole: tuple[Drawn, int], step: int, own: slice) -> tuple[Drawn, int]:
            return self._share(whole[0], torch.arange(len(steps[step]))[own]), whole[1]

        sizes = [len(chosen) for chosen in steps]
        drawn = map(draw, range(len(steps))) if shares is None else shares.in_turn(sizes, draw, share)
        for chosen, (each, total) in zip(steps, drawn, strict=True):
            self.edges = None if self.edges is None else self.edges + total
            yield self._batch(each, chosen, shares)
