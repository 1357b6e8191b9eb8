"""Batches that are drawn at random, the same ones on every backend, whole or the share of a process in them."""

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

    def _places(self, chosen: Tensor, shares: Shares) -> Tensor:
        """Which of `chosen` are of this process, by their places."""
        return torch.arange(len(chosen))[shares.of(len(chosen))]

    @abstractmethod
    def _drawn(self, chosen: Tensor, key: int, places: Tensor | None = None) -> Drawn:
        """Draw for `chosen` of `train`, by random numbers that `key` decides, what those at `places` or all need.

        It is the same for some as for all.
        """

    @abstractmethod
    def _batch(self, drawn: Drawn, chosen: Tensor, places: Tensor | None) -> Batch:
        """The batch of `chosen`, or of those at `places` of a process that has a share in it."""

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        self.edges = 0 if self.config.draws_neighbors else None
        return self._batches(order, seed, number, self.shares)

    def samples(self) -> list[Batch]:
        return [*self._batches(self.shuffled(0, 0)[: SAMPLES * self.config.size], 0, 0)]

    def _batches(self, order: Tensor, seed: int, number: int, shares: Shares | None = None) -> Iterator[Batch]:
        for step, chosen in enumerate(order.split(self.config.size)):
            state = np.random.SeedSequence((seed, number, step)).generate_state(1, np.uint64)
            places = None if shares is None else self._places(chosen, shares)
            drawn = self._drawn(chosen, int(state.view(np.int64)[0]), places)
            self.edges = None if self.edges is None else self.edges + drawn.total
            yield self._batch(drawn, chosen, places)
