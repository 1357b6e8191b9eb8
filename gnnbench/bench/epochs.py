"""Training epochs of whole models, each backend on the device of the dataset, behind the parity gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnnbench import backends, config, models
from gnnbench.backends.base import Backend
from gnnbench.bench.peers import taken
from gnnbench.compare import parity
from gnnbench.datasets import NodeDataset
from gnnbench.measure.memory import Meter
from gnnbench.measure.rounds import timed
from gnnbench.train import cuda_graph, run
from gnnbench.train.loop import Task

Tensors = tuple[dict[str, Tensor], list[str]]


class Training:
    """One model on one backend.

    Args:
        backend: its name, with options of its own.
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
        chosen, train = config.backend_sections(backend)
        raw = {
            "dataset": {"source": "synthetic", "preset": "cora"},
            "model": section,
            "train": train,
            "backend": chosen,
        }
        self.config = config.validate(raw, "the suite")
        self.dataset, self.now = dataset, now
        self._backend = self._placed()
        torch.manual_seed(self.config.train.seed)
        built = models.build(self.config.model, dataset.x.size(1), dataset.num_classes)
        built.to(self._backend.device)
        prepared = self._backend.prepare(built, dataset)
        task = Task.of(dataset, prepared.adj, self._backend.device)
        self._trainer = cuda_graph.trainer(built, task, self.config.train)

    def tensors(self, as_reference: bool) -> Tensors:
        """What the parity gate compares: logits and gradients of one step without dropout."""
        smooth = config.validate(parity.checked(run.resolved(self.config)), "the suite")
        return parity.tensors(smooth, self._placed(), self.dataset, as_reference)

    def begin(self, epochs: int) -> list[float]:
        """The losses of the first epochs."""
        torch.manual_seed(self.config.train.seed)
        return [self._trainer.check(self._trainer.step()) for _ in range(epochs)]

    def time(self, samples: int, calls: int) -> list[float]:
        """Mean seconds of `calls` epochs, `samples` times."""
        return timed(self._trainer.step, self.now, samples, calls)

    def memory(self, meter: Meter) -> tuple[int, int]:
        """Bytes that an epoch takes on top of what is there, and of the whole device."""
        increase, peak = taken(self._trainer.step, meter)
        return increase + self._trainer.held_bytes, peak + self._trainer.held_bytes

    def _placed(self) -> Backend:
        found = backends.load(self.config.backend)
        found.home = self.dataset.x.device
        return found
