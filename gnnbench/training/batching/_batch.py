"""Batch and Batching: the input of a training step, where it comes from, and what outputs are held against."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.measure import clock
from gnnbench.measure.environment import usable_cores
from gnnbench.training.batching._shares import Shares, add_gradients

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.models import Pairs
    from gnnbench.results.schema import Binding
    from gnnbench.tuning.store import Tuned

T = TypeVar("T")
SAMPLES = 3  # batches that backends are compared on


@dataclass(frozen=True)
class Batch:
    """The input of one step, all tensors on its device.

    Attributes:
        x: [N, F] features, or int64 categories, or a dict of these by type; or what a backend puts in their place.
        adj: what the backend hands to the model beside `x`.
        loss: outputs [M, C] -> mean loss [] over the targets.
        targets: how many targets the mean is over.
        segments: what the backend hands to the model's readout; None where outputs are of nodes.
        edge_attr: [E, D] features of edges, in the order of `adj`; None where the model takes none.
        pairs: the pairs of nodes that a decoder scores; None where outputs are of nodes or graphs.
        idle: its rows stand in for the share of a process that has none.
    """

    x: Any
    adj: Any
    loss: Callable[[Tensor], Tensor]
    targets: int
    segments: Any = None
    edge_attr: Tensor | None = None
    pairs: Pairs | None = None
    idle: bool = False

    def outputs(self, model: Module) -> Tensor:
        """The model's outputs, [N, C] of nodes, [B, C] of graphs or [P] of pairs."""
        more = {"segments": self.segments, "edge_attr": self.edge_attr, "pairs": self.pairs}
        out: Tensor = model(self.x, self.adj, **{key: value for key, value in more.items() if value is not None})
        return out


class Batching(ABC):
    """The source of the batch that the next step sees.

    Attributes:
        steps: of an epoch.
        loads: whether training may have to wait for a batch.
        loading_s: seconds that making batches took in the current epoch, in whichever thread.
        edges: of all batches of the current epoch, where they are drawn; otherwise None.
        smoothing: share of a class that losses spread over all classes.
        negatives_s: seconds that drawing negatives took in the current epoch; None where there are none.
        remarks: sentences on what was done in another way than asked for.
        nodes, y, score: the ids [n] of each split, the targets, and the metric of outputs beside them,
            unless `scores` is of something else.
    """

    nodes: Mapping[str, Tensor]
    y: Tensor
    score: Callable[[Tensor, Tensor], float]

    steps = 1
    loads = True
    loading_s = 0.0
    edges: int | None = None
    smoothing = 0.0
    negatives_s: float | None = None
    remarks: Sequence[str] = ()

    @property
    def share(self) -> dict[str, int | None]:
        """Sizes of what this process has of a graph, and its traffic, as `results.schema.Worker` names them."""
        return {}

    @abstractmethod
    def epoch(self, seed: int, number: int) -> Iterator[Batch]:
        """The batches of an epoch: the same ones for equal `seed` and `number`, on every backend."""

    def watch(self, phase: Callable[[str], AbstractContextManager[None]]) -> None:  # noqa: B027
        """Surround by `phase(name)` what takes time of an epoch within its other phases; nothing here."""

    def added(self, model: Module, loss: Tensor) -> Tensor:
        """The loss [] over the targets of all processes, whose gradients `model` then has; here the same."""
        return loss

    def whole(self, x: Tensor) -> Tensor:
        """The rows of all nodes in the dataset's order, from those [n, ...] of this process; here the same."""
        return x

    @abstractmethod
    def outputs(self, model: Module) -> Tensor:
        """Outputs in evaluation, a row for each node or graph in the dataset's order; of links those of nodes."""

    def scores(self, model: Module, outputs: Tensor) -> dict[str, float | None]:
        """The metric of each split; None where it is not defined, as for an empty one."""
        outputs = outputs.to(self.y.device)
        return {split: scored(self.score, outputs[nodes], self.y[nodes]) for split, nodes in self.nodes.items()}

    def metrics(self, model: Module) -> dict[str, float | None]:
        """The scores of the outputs."""
        return self.scores(model, self.outputs(model))

    @abstractmethod
    def samples(self) -> list[Batch]:
        """A few batches to compare backends on, the same ones on every backend."""


@dataclass(frozen=True)
class Setup:
    """A model on its backend and what it trains on, how its convs were bound, and the tuned choices in force."""

    batching: Batching
    bindings: list[Binding]
    tuned: Tuned | None = None
    warnings: list[str] = field(default_factory=list)


def loss_function(target: str, y: Tensor, smoothing: float = 0.0) -> Callable[[Tensor], Tensor]:
    """The function that gives the mean loss [] of outputs [M, C]; see `GraphsDataset.y` for `y` and `target`.

    Cross-entropy of a class; binary cross-entropy over the labels that are there; the L1 distance of values.

    Args:
        smoothing: share of a class that is spread over all classes.
    """
    if target == "class":
        return lambda outputs: F.cross_entropy(outputs, y, label_smoothing=smoothing)
    if target == "value":
        return lambda outputs: F.l1_loss(outputs, y)
    known = ~y.isnan()
    return lambda outputs: F.binary_cross_entropy_with_logits(outputs[known], y[known])


def count_targets(target: str, y: Tensor) -> int:
    """The number of targets that the mean loss is over."""
    return int((~y.isnan()).sum()) if target == "labels" else y.numel()


def scored(metric: Callable[[Tensor, Tensor], float], outputs: Tensor, y: Tensor) -> float | None:
    """The metric of outputs, None where it is not defined."""
    value = metric(outputs, y) if len(outputs) else math.nan
    return value if math.isfinite(value) else None


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

    def shuffled(self, seed: int, number: int) -> Tensor:
        """`train` in an order that depends on seed and epoch alone."""
        generator = torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)
        return self.train[torch.randperm(len(self.train), generator=generator)]

    def epoch(self, seed: int, number: int) -> Iterator[Batch]:
        self.loading_s = 0.0
        alone = self.backend.device.type == "cpu" and usable_cores() == 1  # a thread would only be in the way
        others = self.backend.config.loader != "ours"  # which may have processes of their own
        order = self.shuffled(seed, number) if self.config.shuffle else self.train
        batches = self._timed(self.training(order, seed, number))
        made = ahead(batches, 0 if alone or others else self.config.prefetch)
        return self.shares.followed(made, seed, number) if self.shares else made

    @abstractmethod
    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        """The batches of an epoch that goes through `train` in this order."""

    @property
    def share(self) -> dict[str, int | None]:
        if self.shares is None:
            return {}
        sizes = {"nodes": self.dataset.num_nodes, "halo_nodes": None, "edges": self.shares.edges}
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
