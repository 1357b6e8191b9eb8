"""A model on its backend, put together the same way wherever a step is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import Module

from gnnbench import datasets, models, registry
from gnnbench.backends.base import Backend
from gnnbench.config import Run
from gnnbench.datasets import GraphsDataset, NodeDataset
from gnnbench.training import autocast
from gnnbench.training.batching._batch import Ready


class Ends(NamedTuple):
    """Widths that a model connects: features, outputs and edges, and the encoder of categories."""

    features: int
    outputs: int
    encoder: str = ""
    edges: int = 0

    @classmethod
    def of(cls, dataset: NodeDataset | GraphsDataset) -> Ends:
        if isinstance(dataset, NodeDataset):
            return cls(dataset.x.size(1), dataset.num_classes)
        edges = 0 if dataset.edge_attr is None else dataset.edge_attr.size(1)
        return cls(dataset.x.size(1), dataset.num_outputs, dataset.encoder, edges)


def build(config: Run, ends: Ends, repeat: int = 0) -> Module:
    """The model with its first weights, on CPU; leaves the random generators as training finds them."""
    torch.manual_seed(config.train.seed + repeat)
    model = models.build(config.model, *ends, batched=config.batch.kind != "full")
    if config.train.precision == "bf16":
        autocast.bind(model)
    return model


def read(config: Run, roots: datasets.Roots) -> NodeDataset | GraphsDataset:
    """The dataset as it is, or what a kind of batches reads in its place."""
    own = _of_kind(config, "read")
    return datasets.read(config.dataset, roots) if own is None else own


def tolerance(config: Run) -> float | None:
    """Relative error that a kind of batches owns up to, for parity; None for that of summing in another order."""
    own: float | None = _of_kind(config, "tolerance")
    return own


def prepare(
    config: Run, model: Module, backend: Backend, dataset: NodeDataset | GraphsDataset, cache: Path | None = None
) -> Ready:
    """Everything done once per dataset and model: it is bound on its backend, tuned choices are read from `cache`.

    Raises:
        ConfigError: the batches that `config` asks for cannot be made of this dataset.
        UnsupportedOp: the backend cannot run this model exactly.
    """
    kind = registry.find("training.batching", config.batch.kind)
    ready: Ready = kind.prepare(config, model.to(backend.device), backend, dataset, cache)
    return ready


def _of_kind(config: Run, function: str) -> Any:
    """Call a function of `config` that a kind of batches may have; None without it."""
    return getattr(registry.find("training.batching", config.batch.kind), function, lambda _: None)(config)
