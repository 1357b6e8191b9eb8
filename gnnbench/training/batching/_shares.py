"""Steps whose targets several processes share out, each of which has the whole graph, or all graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import compress
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_flatten, tree_unflatten

from gnnbench.graph.part import Sums, communicating
from gnnbench.training.batching._batch import Batch

T = TypeVar("T")


class Shares(Sums):
    """The share of this process in each step.

    Args:
        timeout: for the answer of another process.

    Attributes:
        scale: of the gradients that this process adds: 1 in training; elsewhere all have the same batch.
        weight: of its rows in the moments of batch norms: likewise, but 0 where they stand in for an empty share.
        edges: of its batches in the current epoch.
        summed_bytes: gradients, and moments of batch norms, that it added in the current epoch.
        drawn_bytes: what it drew for others in this epoch, and what these drew for it.
    """

    def __init__(self, timeout: timedelta) -> None:
        super().__init__()
        # Of its own, as batches are drawn in a thread while gradients travel.
        self.group = dist.new_group(backend="gloo", timeout=timeout)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.weight = self.scale = 1 / self.size
        self.edges = self.summed_bytes = 0
        self.drawn_bytes: tuple[int, ...] = 0, 0  # sent and received

    def summed(self, x: Tensor) -> Tensor:
        self.summed_bytes += x.nbytes
        return super().summed(x)

    def of(self, targets: int, rank: int | None = None) -> slice:
        """Which of the targets are of a process, by default this one, in a row; one stands in for none."""
        rank = self.rank if rank is None else rank
        begin, end = (targets * each // self.size for each in (rank, rank + 1))
        return slice(begin, end) if begin < end else slice(0, 1)

    def in_turn(
        self, sizes: Sequence[int], draw: Callable[[int], T], share: Callable[[T, int, slice], T]
    ) -> Iterator[T]:
        """The share of this process in each step, every one of which is drawn by one process for all.

        Args:
            sizes: targets of each step, the same ones in every process.
            draw: the number of a step -> all of it, in tensors of int64 and numbers, all of 32 bits.
            share: this, the step's number and some of its targets -> what these need.
        """
        together = len(sizes) // self.size * self.size
        for first in range(0, together, self.size):
            step = first + self.rank
            drawn = draw(step)
            yield from self._swapped([share(drawn, step, self.of(sizes[step], rank)) for rank in range(self.size)])
        for step in range(together, len(sizes)):  # too few for each to draw one: each draws all
            yield share(draw(step), step, self.of(sizes[step]))

    def _swapped(self, trees: list[T]) -> Iterator[T]:
        """Send `trees[rank]` to every process, and yield those that they sent, by rank."""
        flat, (_, spec) = [tree_flatten(tree)[0] for tree in trees], tree_flatten(trees[self.rank])
        own = flat[self.rank]
        travel = [isinstance(leaf, Tensor | int) for leaf in own]  # others are the same everywhere
        rows = [[torch.as_tensor(leaf).flatten() for leaf in compress(leaves, travel)] for leaves in flat]
        sent = torch.tensor([[len(leaf) for leaf in row] for row in rows])
        received = torch.empty_like(sent)
        message = torch.cat([leaf for row in rows for leaf in row]).int()
        with communicating():
            dist.all_to_all_single(received, sent, group=self.group)
            sizes = received.sum(1).tolist()
            arrived = message.new_empty(sum(sizes))
            dist.all_to_all_single(arrived, message, sizes, sent.sum(1).tolist(), group=self.group)
        kept = message.itemsize * int(sent[self.rank].sum())
        so_far = zip(self.drawn_bytes, (message, arrived), strict=True)
        self.drawn_bytes = tuple(bytes_ + each.nbytes - kept for bytes_, each in so_far)
        for lengths, row in zip(received.tolist(), arrived.long().split(sizes), strict=True):
            parts = iter(row.split(lengths))
            leaves = [_alike(next(parts), leaf) if goes else leaf for leaf, goes in zip(own, travel, strict=True)]
            yield tree_unflatten(leaves, spec)

    def weighted(self, batch: Batch, mine: int, targets: int, examples: int) -> Batch:
        """The batch of this process with its share of the loss.

        Args:
            batch: with the mean loss over `mine` targets.
            targets: of all processes.
            examples: nodes, graphs or links of all processes, which `of` split.
        """
        idle = examples * (self.rank + 1) // self.size == examples * self.rank // self.size
        share = 0.0 if idle else mine / max(targets, 1)

        def loss(outputs: Tensor) -> Tensor:  # of no targets the mean is not a number
            return batch.loss(outputs) * share if share else outputs.sum() * 0.0

        return replace(batch, loss=loss, targets=targets, idle=idle)

    def followed(self, batches: Iterator[Batch], seed: int, number: int) -> Iterator[Batch]:
        """The batches of an epoch as they are trained on, with dropout of this process's own."""
        self.edges, self.summed_bytes, self.drawn_bytes, self.scale = 0, 0, (0, 0), 1.0
        state = np.random.SeedSequence((seed, number, self.rank)).generate_state(1, np.uint64)
        torch.manual_seed(int(state.view(np.int64)[0]))
        try:
            for batch in batches:
                self.weight = float(not batch.idle)
                yield batch
        finally:
            self.weight = self.scale = 1 / self.size

    def added(self, model: Module, loss: Tensor) -> Tensor:
        """The loss [] over the targets of all processes, whose gradients `model` then has."""
        return add_gradients(model, loss, self, self.scale)


def _alike(content: Tensor, leaf: Any) -> Any:
    """Give what arrived the shape of `leaf`, but for its last dimension; or make it a number, as `leaf` is."""
    return content.view(*leaf.shape[:-1], -1) if isinstance(leaf, Tensor) else int(content)


def add_gradients(model: Module, loss: Tensor, sums: Sums, scale: float = 1.0) -> Tensor:
    """Sum loss and gradients, times `scale`, over all processes, in one message; returns the loss.

    A parameter has a gradient on all processes or on none.
    """
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    message = torch.cat([loss.view(1), *(each.flatten() for each in gradients)])
    total = sums.summed(message if scale == 1 else message * scale)
    loss, *of_all = total.split([1, *(each.numel() for each in gradients)])
    for gradient, each in zip(gradients, of_all, strict=True):
        gradient.copy_(each.view_as(gradient))
    return loss.squeeze(0).clone()  # kept to the end of the epoch, as the message need not be
