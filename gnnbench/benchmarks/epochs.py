"""Training epochs of whole models, each backend on the device of the dataset, behind the parity gate."""

from __future__ import annotations

from pathlib import Path

import torch

from gnnbench import backends, config
from gnnbench.backends.base import Backend
from gnnbench.benchmarks.peers import taken
from gnnbench.comparison.parity import steps
from gnnbench.comparison.parity.judge import Snapshot, judge_trained
from gnnbench.datasets import NodeDataset
from gnnbench.measure import clock
from gnnbench.measure.memory import Meter
from gnnbench.measure.rounds import timed
from gnnbench.training import cuda_graph, setup


class Training:
    """One model on one backend.

    Args:
        backend: its name, with options of its own.
        dataset: with its tensors where the backend is to run.
        cache: where tuned choices are.

    Raises:
        BackendUnavailable: this machine cannot run the backend.
        UnsupportedOp: the backend cannot run the model.
    """

    def __init__(
        self,
        model: str,
        hidden: int,
        heads: int,
        backend: str,
        dataset: NodeDataset,
        cache: Path,
    ) -> None:
        section = {"name": model, "hidden": hidden} | ({"heads": heads} if heads > 1 else {})
        chosen, own = config.backend_sections(backend)
        raw = {
            "dataset": {"source": "synthetic", "preset": "cora"},
            "model": section,
            **own,
            "backend": chosen,
        }
        self.config = config.validate(raw, "the suite")
        self.dataset, self.cache, self.now = dataset, cache, clock.instants(dataset.x.device)
        self._backend = self._placed()
        built = setup.build(self.config, setup.ModelDims.of(dataset))
        ready = setup.prepare(self.config, built, self._backend, dataset, cache)
        self._trainer = cuda_graph.trainer(built, ready.batching, self.config.train)

    def computed(self, as_reference: bool) -> Snapshot:
        """The tensors that the parity gate compares: logits and gradients of steps without dropout."""
        return steps.computed(self.config, self._placed(), self.dataset, as_reference, self.cache)

    def wrong(self, expected: Snapshot, reference: str) -> str:
        """Where the trained model differs, empty if it does not; it cannot be trained any more."""
        dims = setup.ModelDims.of(self.dataset)
        result = steps.trained(self.config, self._backend, self._trainer.model, self._trainer.batching, dims)
        return judge_trained(result, expected, reference).reason

    def begin(self, epochs: int) -> list[float]:
        """The losses of the first epochs."""
        torch.manual_seed(self.config.train.seed)
        return [self._trainer.check(self._trainer.train()) for _ in range(epochs)]

    def time(self, samples: int, calls: int) -> list[float]:
        """Mean seconds of `calls` epochs, `samples` times."""
        return timed(self._trainer.train, self.now, samples, calls)

    def memory(self, meter: Meter) -> tuple[int, int]:
        """Bytes that an epoch takes on top of what is there, and of the whole device."""
        increase, peak = taken(self._trainer.train, meter)
        return increase + self._trainer.held_bytes, peak + self._trainer.held_bytes

    def _placed(self) -> Backend:
        result = backends.load(self.config.backend)
        result.home = self.dataset.x.device
        return result
