"""Batch and Batching: the input of a training step, where it comes from, and what outputs are held against."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn import Module

    from gnnbench.models import Pairs
    from gnnbench.results.schema import Binding
    from gnnbench.tuning.store import Tuned


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
        nodes, y, score: the ids [n] of each part of the split, the targets, and the metric of outputs beside them,
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
    def part(self) -> dict[str, int]:
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
        """The metric of each part of the split; None where it is not defined, as for an empty part."""
        outputs = outputs.to(self.y.device)
        return {part: scored(self.score, outputs[nodes], self.y[nodes]) for part, nodes in self.nodes.items()}

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
