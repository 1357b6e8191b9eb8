"""A model on its backend, put together the same way wherever a step is taken."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module

from gnnbench import models
from gnnbench.backends.base import Backend
from gnnbench.config import RunConfig
from gnnbench.datasets import NodeDataset
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from gnnbench.tune.store import Tuned


@dataclass(frozen=True)
class Ready:
    """What a model is called with beside its features, how its convs were bound, and the choices in force."""

    adj: Any
    bindings: list[Binding]
    tuned: Tuned | None = None
    warnings: list[str] = field(default_factory=list)


def build(config: RunConfig[Any, Any], features: int, classes: int, repeat: int = 0) -> Module:
    """The model with its first weights, on CPU; leaves the random generators as training finds them."""
    torch.manual_seed(config.train.seed + repeat)
    return models.build(config.model, features, classes)


def prepare(model: Module, backend: Backend, dataset: NodeDataset, cache: Path | None = None) -> Ready:
    """Everything done once per graph and model: `model` bound on its backend, and tuned choices read from `cache`.

    Raises:
        UnsupportedOp: the backend cannot run this model exactly.
    """
    prepared = backend.prepare(model.to(backend.device), dataset)
    if cache is None or prepared.kernels is None or not backend.config.tuned:
        return Ready(prepared.adj, prepared.bindings)
    from gnnbench.tune import store  # which imports ops, and PyG's rows are to load none of ours

    return Ready(prepared.adj, prepared.bindings, *store.apply(prepared.adj, prepared.kernels, model, cache))
