"""Training epochs of whole models, each backend on the device of the dataset, behind the parity gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnnbench import backends, config, models, parity, run
from gnnbench.backends.base import Backend
from gnnbench.bench.peers import taken
from gnnbench.bench.rounds import timed
from gnnbench.datasets import NodeDataset
from gnnbench.memory import Meter
from gnnbench.train import Task, Trainer

Tensors = tuple[dict[str, Tensor], list[str]]


class Training:
    """One model on one backend.

    Args:
        dataset: with its tensors where the backend is to run.
        now: a clock as `timed` takes it.

    Raises:
        BackendUnavailable: this machine cannot run the backend.
        UnsupportedOp: the backend cannot run the model.
    """

    def __init__(
        self, model: str, hidden: int, heads: int, backend: str, dataset: NodeDataset, now: Callable[[], Any]
    ) -> None:
        section = {"name": model, "hidden": hidden} | ({"heads": heads} if heads > 1 else {})
        raw = {
            "dataset": {"source": "synthetic", "preset": "cora"},
            "model": section,
            "backend": {"name": backend},
        }
        self.config = config.validate(raw, "the suite")
        self.dataset, self.now = dataset, now
        self._backend = self._placed()
        torch.manual_seed(self.config.train.seed)
        built = models.build(self.config.model, dataset.x.size(1), dataset.num_classes)
        built.to(self._backend.device)
        prepared = self._backend.prepare(built, dataset)
        task = Task.of(dataset, prepared.adj, self._backend.device)
        self.step: Callable[[], Any] = Trainer(built, task, self.config.train).step

    def tensors(self, as_reference: bool) -> Tensors:
        """What the parity gate compares: logits and gradients of one step without dropout."""
        smooth = config.validate(parity.checked(run.resolved(self.config)), "the suite")
        return parity.tensors(smooth, self._placed(), self.dataset, as_reference)

    def time(self, samples: int, calls: int) -> list[float]:
        """Mean seconds of `calls` epochs, `samples` times."""
        return timed(self.step, self.now, samples, calls)

    def memory(self, meter: Meter) -> tuple[int, int]:
        """Bytes that an epoch takes on top of what is there, and of the whole device."""
        return taken(self.step, meter)

    def _placed(self) -> Backend:
        found = backends.load(self.config.backend)
        found.home = self.dataset.x.device
        return found
