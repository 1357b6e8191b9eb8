"""Batches that a thread makes while others are trained on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Full, Queue
from typing import Any, TypeVar

import torch
from torch import Tensor

from gnnbench.measure import clock
from gnnbench.training.batching._batch import Batch, Batching

T = TypeVar("T")
SAMPLES = 3  # batches that backends are compared on
WAIT_S = 0.1  # until a thread whose batches nobody takes any more checks whether to end


def ahead(batches: Iterator[T], depth: int) -> Iterator[T]:
    """The items of `batches`, in order; a thread keeps up to `depth` of them ready, and 0 means no thread.

    An error of `batches` is raised where its batch would have come. The thread ends with this iterator.
    """
    if not depth:
        yield from batches
        return
    ready: Queue[tuple[T | None, BaseException | None]] = Queue(depth)
    abandoned = threading.Event()

    def put(batch: T | None, error: BaseException | None = None) -> bool:
        while not abandoned.is_set():
            try:
                ready.put((batch, error), timeout=WAIT_S)
            except Full:
                continue
            return True
        return False

    def work() -> None:
        torch.set_num_threads(1)  # of this thread: with a team of its own, OpenMP has more threads than cores
        try:
            if all(put(batch) for batch in batches):
                put(None)
        except BaseException as error:
            put(None, error)

    thread = threading.Thread(target=work, name="gnnbench-batches", daemon=True)
    thread.start()
    try:
        while True:
            batch, error = ready.get()
            if error is not None:
                raise error
            if batch is None:
                return
            yield batch
    finally:
        abandoned.set()
        thread.join()


class Loader(Batching):
    """Batching that makes batches anew in every epoch, and times what that takes.

    Args:
        config: of a kind with `size` and `shuffle`.
        train: [M] ids of what is trained on, each once per epoch.
    """

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

    def ahead(self, batches: Iterator[Batch], depth: int) -> Iterator[Batch]:
        """`batches` with `depth` of them made ahead; `loading_s` is then of this epoch."""
        self.loading_s = 0.0
        return ahead(self._timed(batches), depth)

    def _timed(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            start = clock.cpu()
            batch = next(batches, None)
            self.loading_s += clock.cpu() - start
            if batch is None:
                return
            yield batch
