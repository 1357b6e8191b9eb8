"""Compute on `Ranks` models on their shares of batches, held against one process on whole batches."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gnnbench import backends, config, datasets
from gnnbench.datasets import AnyDataset
from gnnbench.training import setup
from gnnbench.training.batching._batch import Batch
from gnnbench.training.loop import Phase, Trainer
from tests.support.batches import graphs_dataset

STEPS = 20
LINKS = {"source": "synthetic_links", "preset": "collab", "scale": 0.002}
DATASETS = {
    "neighbors": {"source": "synthetic", "preset": "cora", "scale": 0.1, "features": 16},
    "types": {"source": "synthetic_types", "scale": 0.0005, "embedding": 8},
    "links": LINKS,
    "link_neighbors": LINKS,
    "graphs": {"source": "synthetic", "preset": "cora"},  # not read
}


class Recorded(Trainer):
    """Keeps the loss of every step."""

    def step(self, batch: Batch, phase: Phase) -> Tensor:
        loss = super().step(batch, phase)
        assert loss.untyped_storage().nbytes() == loss.nbytes  # for all of an epoch are kept
        self.losses = [*getattr(self, "losses", []), loss]
        return loss


def data_of(wanted: config.Run, **changes: Any) -> AnyDataset:
    if wanted.batch.kind == "graphs":
        return graphs_dataset(**changes)
    return datasets.load(wanted.dataset, datasets.roots())


def configured(
    kind: str, backend: str, model: dict[str, Any], batch: dict[str, Any], target: str, workers: int
) -> config.Run:
    raw = {
        "dataset": DATASETS.get(target, DATASETS[kind]),
        "model": {"hidden": 8, "dropout": 0.0, **model},
        "batch": {"kind": kind, **batch},
        "train": {"workers": workers, "epochs": 100},
        "backend": {"name": backend},
    }
    return config.validate(raw, "test")


def learned(
    kind: str, backend: str, model: dict[str, Any], batch: dict[str, Any], target: str
) -> tuple[list[float], list[float], list[dict[str, int]]]:
    """Losses of 20 steps or more on shares, of as many in this process alone, and the figures of each share."""
    losses, figures = [], {}
    for workers in (dist.get_world_size(), 1):
        wanted = configured(kind, backend, model, batch, target, workers)
        changes: dict[str, Any] = {}
        if target == "labels":
            y = torch.tensor([1.0, 0.0, float("nan")]).repeat(22).view(22, 3)
            y[:8] = float("nan")
            changes = {"y": y, "target": "labels"}
        data = data_of(wanted, **changes)
        built = setup.build(wanted, setup.ModelDims.of(data))
        ready = setup.prepare(wanted, built, backends.load(wanted.backend, wanted.train), data)
        trainer = Recorded(built, ready.batching, wanted.train)
        while len(getattr(trainer, "losses", [])) < STEPS:
            trainer.check(trainer.train())
        losses.append(torch.stack(trainer.losses).tolist())
        figures = figures or ready.batching.share
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, figures)
    return losses[0], losses[1], every
