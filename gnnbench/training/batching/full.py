"""An epoch of one step: the whole graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from gnnbench.backends.base import Backend, Edges, Prepared
from gnnbench.config import BatchConfig, Run
from gnnbench.datasets import NodeDataset, TypedDataset
from gnnbench.datasets._kinds import SPLITS, Relation, edge_types, joined
from gnnbench.graph import CSRBuilder
from gnnbench.training.batching._batch import Batch, Batching, Setup

if TYPE_CHECKING:
    from gnnbench.tuning.store import Tuned


class Config(BatchConfig):
    """Nothing to choose."""

    typed = True
    with_workers = "parts"

    kind: str = "full"

    @property
    def repeats(self) -> bool:
        return True


class Full(Batching):
    """One graph, with all tensors on their device and without the edges.

    Args:
        dataset: whose `edge_index` is not kept.
        adj: what the backend hands to the model beside `x`.
        x: what takes the place of the features; None for themselves.
        edge_attr: what the model is given of each edge; None for nothing.

    Attributes:
        reduction: of losses over training nodes.
    """

    loads = False
    reduction = "mean"

    def __init__(
        self,
        dataset: NodeDataset | TypedDataset,
        adj: Any,
        device: torch.device,
        x: Any = None,
        edge_attr: Tensor | None = None,
    ) -> None:
        self.nodes = {split: nodes.to(device) for split, nodes in nodes_of(dataset).items()}
        self.y = dataset.y.to(device)
        self.score = dataset.score
        x = dataset.x.to(device) if x is None else x  # type: ignore[union-attr]
        self.batch = Batch(x, adj, self.loss, len(self.nodes["train"]), edge_attr=edge_attr)

    def epoch(self, seed: int, number: int) -> Iterator[Batch]:
        yield self.batch

    def samples(self) -> list[Batch]:
        return [self.batch]

    def loss(self, logits: Tensor) -> Tensor:
        """Mean over training nodes of cross-entropy, or of binary cross-entropy over all labels."""
        if self.y.dim() == 1:  # ignoring the other nodes costs less than selecting these, and its gradient
            smoothing = self.smoothing
            return F.cross_entropy(logits, self.train_y, reduction=self.reduction, label_smoothing=smoothing)
        chosen, y = (tensor.index_select(0, self.nodes["train"]) for tensor in (logits, self.y))
        return F.binary_cross_entropy_with_logits(chosen, y, reduction=self.reduction)

    @cached_property
    def train_y(self) -> Tensor:
        """[N] int64: the class of training nodes, elsewhere what `F.cross_entropy` ignores."""
        train = self.nodes["train"]
        return torch.full_like(self.y, -100).index_copy_(0, train, self.y[train])

    def outputs(self, model: Module) -> Tensor:
        return self.batch.outputs(model)


def nodes_of(dataset: NodeDataset | TypedDataset) -> dict[str, Tensor]:
    """The nodes [n] int64 of each split."""
    return {split: getattr(dataset, f"{split}_mask").nonzero().flatten() for split in SPLITS}


def prepare(
    config: Run, model: Module, backend: Backend, dataset: NodeDataset | TypedDataset, cache: Path | None
) -> Setup:
    """Raises UnsupportedOp where the backend cannot run this model."""
    if isinstance(dataset, TypedDataset):
        bindings = backend.bind(model)
        return Setup(typed(model, backend, dataset), bindings)
    prepared = backend.prepare(model, dataset)
    batching = Full(dataset, prepared.adj, backend.device, prepared.x)
    return Setup(batching, prepared.bindings, *tuned(prepared, model, backend, cache))


def typed(model: Any, backend: Backend, dataset: TypedDataset) -> Full:
    """A graph of several types, for a model that is bound."""
    adj, edge_type = typed_adjacency(model, backend, backend.layout(), dataset.nodes, dataset.relations)
    backend.warm(model, adj)
    x = {kind: own.to(backend.device) for kind, own in dataset.x.items()}
    return Full(dataset, adj, backend.device, x, edge_type)


def typed_adjacency(
    model: Any,
    backend: Backend,
    layout: CSRBuilder | None,
    nodes: Mapping[str, int],
    relations: Mapping[Relation, Edges],
) -> tuple[Any, Tensor | None]:
    """Return what a model takes of several types: its adjacency, and the relation of every edge where it joins."""
    if not model.joins:
        return {relation: backend.adjacency(edges, layout) for relation, edges in relations.items()}, None
    return backend.adjacency(joined(nodes, relations), layout), edge_types(relations).to(backend.device)


def tuned(
    prepared: Prepared, model: Module, backend: Backend, cache: Path | None
) -> tuple[Tuned | None, list[str]]:
    """Let the kernels of a whole graph run as `gnnbench tune` found best; choices in force, and warnings."""
    if cache is None or prepared.kernels is None or not backend.config.tuned:
        return None, []
    from gnnbench.tuning import store  # which imports ops, and PyG's rows are to load none of ours

    return store.apply(prepared.adj, prepared.kernels, model, cache)
