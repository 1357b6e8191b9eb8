"""Batches that a thread makes while others are trained on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Full, Queue
from typing import TypeVar

import torch
from torch import Tensor

from gnnbench.measure import clock
from gnnbench.train.batching._batch import Batch, Batching

T = TypeVar("T")
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
    """Batching that makes batches anew in every epoch, and times what that takes."""

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


def permutation(count: int, seed: int, number: int) -> Tensor:
    """An order of `count` things that depends on seed and epoch alone."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)
    return torch.randperm(count, generator=generator)
