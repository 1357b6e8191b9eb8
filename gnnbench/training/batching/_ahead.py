"""Batches that a thread makes while others are trained on, whole or the share of a process in them."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from gnnbench.backends.base import Backend
from gnnbench.measure import clock
from gnnbench.measure.environment import usable_cores
from gnnbench.training.batching._batch import Batch, Batching
from gnnbench.training.batching._shares import Shares, add_gradients

T = TypeVar("T")
SAMPLES = 3  # batches that backends are compared on


def ahead(batches: Iterator[T], depth: int) -> Iterator[T]:
    """The items of `batches`, in order; a thread keeps `depth` of them ready, and 0 means no thread.

    An error of `batches` is raised where its batch would have come. The thread ends with this iterator.
    """
    if not depth:
        yield from batches
        return
    # With a team of its own in the thread, OpenMP would have more threads than cores.
    pool = ThreadPoolExecutor(1, "gnnbench-batches", torch.set_num_threads, (1,))
    try:
        made = deque(pool.submit(next, batches, None) for _ in range(depth + 1))
        while (batch := made.popleft().result()) is not None:
            made.append(pool.submit(next, batches, None))
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)


class Loader(Batching):
    """Batching that makes batches anew in every epoch, and times what that takes.

    Args:
        config: of a kind with `size` and `shuffle`.
        train: [M] ids of what is trained on, each once per epoch.

    Attributes:
        shares: what of each step is of this process; None of one alone.
    """

    dataset: Any
    backend: Backend
    shares: Shares | None = None

    def __init__(self, config: Any, train: Tensor) -> None:
        self.config, self.train = config, train
        self.steps = -(-len(train) // config.size)

    def order(self, seed: int, number: int) -> Tensor:
        """`train` as epoch `number` goes through it."""
        return self.shuffled(seed, number) if self.config.shuffle else self.train

    def shuffled(self, seed: int, number: int) -> Tensor:
        """`train` in an order that depends on seed and epoch alone."""
        generator = torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)
        return self.train[torch.randperm(len(self.train), generator=generator)]

    def epoch(self, seed: int, number: int) -> Iterator[Batch]:
        self.loading_s = 0.0
        alone = self.backend.device.type == "cpu" and usable_cores() == 1  # a thread would only be in the way
        others = self.backend.config.loader != "ours"  # which may have processes of their own
        batches = self._timed(self.training(self.order(seed, number), seed, number))
        made = ahead(batches, 0 if alone or others else self.config.prefetch)
        return self.shares.followed(made, seed, number) if self.shares else made

    @abstractmethod
    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        """The batches of an epoch that goes through `train` in this order."""

    @property
    def part(self) -> dict[str, int]:
        if self.shares is None:
            return {}
        sizes = {"nodes": self.dataset.num_nodes, "halo_nodes": 0, "edges": self.shares.edges}
        return {**sizes, "sent_bytes": self.shares.summed_bytes, "received_bytes": self.shares.summed_bytes}

    def watch(self, phase: Callable[[str], AbstractContextManager[None]]) -> None:
        if self.shares:
            self.shares.phase = phase

    def added(self, model: Module, loss: Tensor) -> Tensor:
        return add_gradients(model, loss, self.shares, self.shares.scale) if self.shares else loss

    def _timed(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            start = clock.cpu()
            batch = next(batches, None)
            self.loading_s += clock.cpu() - start
            if batch is None:
                return
            yield batch


class DrawnBatches(Loader):
    """Batches whose edges or negatives are drawn, for some of `train` each.

    What is drawn depends on seed, epoch and the batch's number alone, so that it is the same on every backend, and
    in a run that is resumed.
    """

    def _places(self, chosen: Tensor, shares: Shares) -> Tensor:
        """Which of `chosen` are of this process, by their places."""
        return torch.arange(len(chosen))[shares.of(len(chosen))]

    @abstractmethod
    def _drawn(self, chosen: Tensor, key: int, places: Tensor | None = None) -> Any:
        """Draw for `chosen` of `train`, by random numbers that `key` decides, what those at `places` or all need.

        It is the same for some as for all, and has the number of its edges as `total`.
        """

    @abstractmethod
    def _batch(self, drawn: Any, chosen: Tensor, places: Tensor | None) -> Batch:
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
