"""Full-batch training: one epoch, evaluation, early stopping; without a clock, a file or a screen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gnnbench.errors import RunFailed
from gnnbench.results import schema

if TYPE_CHECKING:
    from gnnbench.config import TrainConfig
    from gnnbench.datasets import NodeDataset

Phase = Callable[[str], AbstractContextManager[None]]
OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(frozen=True)
class Task:
    """What a model is trained on, with all tensors on its device and without the edges.

    Attributes:
        x: [N, F] float32.
        adj: what the backend hands to the model beside `x`.
        y: [N] int64 class, or [N, T] float32 of zeros and ones (multi-label).
        nodes: "train", "val" and "test" -> node indices [M] int64; the latter two may be empty.
        score: (logits, y) of some nodes -> metric, higher is better.
    """

    x: Tensor
    adj: Any
    y: Tensor
    nodes: dict[str, Tensor]
    score: Callable[[Tensor, Tensor], float]

    @classmethod
    def of(cls, dataset: NodeDataset, adj: Any, device: torch.device) -> Task:
        """The task of a dataset; keeps no reference to its `edge_index`."""
        masks = {"train": dataset.train_mask, "val": dataset.val_mask, "test": dataset.test_mask}
        nodes = {name: mask.nonzero().flatten().to(device) for name, mask in masks.items()}
        return cls(dataset.x.to(device), adj, dataset.y.to(device), nodes, dataset.score)

    def loss(self, logits: Tensor) -> Tensor:
        """Mean over training nodes of cross-entropy, or of binary cross-entropy over all labels."""
        if self.y.dim() == 1:  # ignoring the other nodes costs less than selecting these, and its gradient
            return F.cross_entropy(logits, self.train_y)
        chosen, y = (tensor.index_select(0, self.nodes["train"]) for tensor in (logits, self.y))
        return F.binary_cross_entropy_with_logits(chosen, y)

    @cached_property
    def train_y(self) -> Tensor:
        """[N] int64: the class of training nodes, elsewhere what `F.cross_entropy` ignores."""
        train = self.nodes["train"]
        return torch.full_like(self.y, -100).index_copy_(0, train, self.y[train])

    def metrics(self, logits: Tensor) -> dict[str, float | None]:
        """The score of each part of the split; None where it is not defined, as for a part without nodes."""
        scores = {
            part: self.score(logits[nodes], self.y[nodes]) if len(nodes) else math.nan
            for part, nodes in self.nodes.items()
        }
        return {part: score if math.isfinite(score) else None for part, score in scores.items()}


class Trainer:
    """A model, its optimizer and the number of epochs done.

    Attributes:
        odd_epochs: how many steps run otherwise than those after them.
        held_bytes: memory of the latest step that its device's allocator does not call allocated.
    """

    odd_epochs = 0
    held_bytes = 0

    def __init__(self, model: torch.nn.Module, task: Task, config: TrainConfig) -> None:
        self.model = model
        self.task = task
        self.config = config
        self.epoch = 0
        self.optimizer = OPTIMIZERS[config.optimizer](_parameter_groups(model, config), lr=config.lr)

    def step(self, phase: Phase = lambda _: nullcontext()) -> Tensor:
        """Train one epoch; returns the loss [], detached. `phase(name)` surrounds each part."""
        self.model.train()
        self.epoch += 1
        with phase("forward"):
            loss = self.task.loss(self.model(self.task.x, self.task.adj))
        with phase("backward"):
            loss.backward()
        with phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach()

    def check(self, loss: Tensor) -> float:
        """The loss as a number.

        Raises:
            RunFailed: it is infinite or not a number.
        """
        value = loss.item()
        if not math.isfinite(value):
            raise RunFailed(
                f"the loss became {value} in epoch {self.epoch}; "
                f"lower train.lr (now {self.config.lr:g}), or check the features for extreme values"
            )
        return value

    @property
    def evaluates(self) -> bool:
        """Whether the epoch just done is one to evaluate after; the last one always is."""
        return self.epoch % self.config.eval_every == 0 or self.epoch == self.config.epochs

    @torch.no_grad()
    def evaluate(self) -> dict[str, float | None]:
        """Train, validation and test metric of the model as it is, without dropout."""
        self.model.eval()
        return self.task.metrics(self.model(self.task.x, self.task.adj))

    def finished(self, evaluations: Sequence[schema.Evaluation]) -> bool:
        """Whether all epochs are done or `patience` is used up, given this repeat's evaluations.

        Patience can end training only right after an evaluation, so that the last epoch is evaluated.
        """
        if self.epoch >= self.config.epochs:
            return True
        if not self.config.patience or not evaluations or evaluations[-1].epoch < self.epoch:
            return False
        return self.epoch - schema.best(evaluations).epoch >= self.config.patience

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def _parameter_groups(model: torch.nn.Module, config: TrainConfig) -> list[dict[str, Any]]:
    """All parameters, with weight decay where `decayed_layers` says (Kipf & Welling: the first conv only)."""
    decayed = list(model.parameters())
    if config.decayed_layers == "first":
        decayed = list(model.get_submodule("convs.0").parameters())
    chosen = {id(parameter) for parameter in decayed}
    others = [parameter for parameter in model.parameters() if id(parameter) not in chosen]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
