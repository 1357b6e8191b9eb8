"""A step is some links and negatives, scored on an encoding of the whole graph; the same on every backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor
from torch.nn import Module
from torch.profiler import record_function

from gnnbench.backends import isplib
from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Sample
from gnnbench.config import BatchConfig, Count, Positive, Run
from gnnbench.datasets import LinksDataset
from gnnbench.graph import Graph
from gnnbench.measure import clock
from gnnbench.models import Pairs
from gnnbench.ops import negatives
from gnnbench.training.batching import full
from gnnbench.training.batching._batch import Batch, DrawnBatches, Setup, scored

CPU = torch.device("cpu")
SCORED = 1 << 18  # pairs at once in evaluation
TRAIN = 2**64 - 1  # a seed that no training has, of the training links that are evaluated


class LinksConfig(BatchConfig):
    """The keys of every kind of batches of links."""

    links = True
    undivided = "links"
    data_parallel = True

    size: Positive = Field(65536, description="training links in a batch; the last one of an epoch may have fewer")
    negatives: Positive = Field(1, description="pairs that are no links, drawn for each link")
    sampling: Literal["uniform", "corrupt"] = Field(
        "uniform", description="of negatives: both ends; or another destination for the source of each link"
    )
    exclude_edges: bool = Field(True, description="leave edges of the graph, and loops, out of negatives")
    drop_target_links: bool = Field(False, description="take the links of a batch out of its graph of messages")
    shuffle: bool = Field(True, description="draw another order in every epoch")


class Config(LinksConfig):
    """How links are put into batches."""

    kind: str = "links"
    prefetch: Count = Field(0, description="batches that a thread makes ahead; 0: none, and no thread")

    @property
    def repeats(self) -> bool:
        return not self.drop_target_links


class DrawnPairs(NamedTuple):
    """Links and, after them, their negatives; their ends as places in a sample, where there is one."""

    pairs: Pairs
    sample: Sample | None = None

    @property
    def total(self) -> int:
        """How many edges were drawn."""
        return self.sample.total if self.sample else 0


class Links(DrawnBatches):
    """Batches of training links, each link once per epoch, with negatives drawn anew.

    Args:
        adj: what the backend hands to the model beside `x`, for the whole graph.
        x: what takes the place of the features; None for themselves.
    """

    def __init__(
        self, config: LinksConfig, dataset: LinksDataset, backend: Backend, adj: Any, x: Any = None
    ) -> None:
        self.links = dataset.positives["train"]
        super().__init__(config, torch.arange(self.links.size(1)))
        self.dataset, self.backend, self.adj = dataset, backend, adj
        self.x = dataset.x.to(backend.device) if x is None else x
        self.phase: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
        sorted_already = isinstance(adj, Graph) and adj.rowptr.is_cpu
        self.graph: Graph = adj if sorted_already else dataset.graph(CPU, isplib.cpu_layout())
        self.layout = backend.layout()

    def watch(self, phase: Callable[[str], AbstractContextManager[None]]) -> None:
        super().watch(phase)
        self.phase = phase

    def training(self, order: Tensor, seed: int, number: int) -> Iterator[Batch]:
        self.negatives_s = 0.0
        return super().training(order, seed, number)

    def outputs(self, model: Module) -> Tensor:
        z: Tensor = model(self.x, self.adj)
        return z

    def scores(self, model: Module, outputs: Tensor) -> dict[str, float | None]:
        return {split: self._score(model, outputs, split) for split in self.dataset.positives}

    def _drawn(self, chosen: Tensor, key: int, places: Tensor | None = None) -> DrawnPairs:
        pairs = self._pairs(chosen, key)
        return DrawnPairs(pairs if places is None else self._own(pairs, places))

    def _own(self, pairs: Pairs, places: Tensor) -> Pairs:
        """The links at some places, and their negatives."""
        each = self.config.negatives
        links = pairs.nodes.size(1) // (1 + each)
        of_places = links + places.unsqueeze(1) * each + torch.arange(each)
        own = torch.cat([places, of_places.flatten()])
        return Pairs(pairs.nodes[:, own], None if pairs.relation is None else pairs.relation[own])

    def _batch(self, drawn: DrawnPairs, chosen: Tensor, places: Tensor | None) -> Batch:
        """A batch whose first pairs are its links."""
        device, pairs = self.backend.device, drawn.pairs
        links = pairs.nodes.size(1) // (1 + self.config.negatives)
        x, adj, edges = self._inputs(drawn, chosen)

        def loss(scores: Tensor) -> Tensor:
            with self.phase("loss"):
                return F.softplus(-scores[:links]).mean() + F.softplus(scores[links:]).mean()

        relation = None if pairs.relation is None else pairs.relation.to(device)
        asked = Pairs(pairs.nodes.to(device), relation, lambda name: self.phase(name))
        batch = Batch(x, adj, loss, links, pairs=asked)
        if places is None or self.shares is None:
            return batch
        self.shares.edges += edges
        return self.shares.weighted(batch, links, len(chosen), len(chosen))

    def _inputs(self, drawn: DrawnPairs, chosen: Tensor) -> tuple[Any, Any, int]:
        """Return features, adjacency and number of edges of the graph that a batch is scored on.

        Where it is to be without the links of the batch, edges in their other direction are left out too.
        """
        if not self.config.drop_target_links:
            return self.x, self.adj, self.dataset.edge_index.size(1)
        links, (keys, own) = self.links[:, chosen], self._keys
        asked = self.dataset.keys(torch.cat([links, links.flip(0)], 1))
        place = torch.searchsorted(keys, asked).clamp_(max=len(keys) - 1)
        kept = torch.ones(len(keys), dtype=torch.bool)
        kept[place[keys[place] == asked]] = False
        edges = replace(self.dataset, edge_index=self.dataset.edge_index[:, kept[own]])
        return self.x, self.backend.adjacency(edges, self.layout), edges.edge_index.size(1)

    @cached_property
    def _keys(self) -> tuple[Tensor, Tensor]:
        """The keys of edges, ascending, and for each edge where its own is."""
        return self.dataset.keys(self.dataset.edge_index).unique(return_inverse=True)

    def _pairs(self, chosen: Tensor, key: int) -> Pairs:
        """Links and, after them, their negatives, with the types of the links."""
        links, config = self.links[:, chosen], self.config
        start = clock.cpu()
        with record_function("gnnbench::negatives"):  # for the profiler, as this is no op of PyTorch
            each, exclude = config.negatives, config.exclude_edges
            if config.sampling == "corrupt":
                drawn = negatives.corrupt(self.graph, links[0], each, key, exclude=exclude)
            else:
                drawn = negatives.uniform(self.graph, each * len(chosen), key, exclude=exclude)
        self.negatives_s = (self.negatives_s or 0.0) + clock.cpu() - start
        relation = None
        if self.dataset.relations is not None:
            own = self.dataset.relations["train"][chosen]
            relation = torch.cat([own, own.repeat_interleave(config.negatives)])
        return Pairs(torch.cat([links, drawn], 1), relation)

    def _score(self, model: Any, z: Tensor, split: str) -> float | None:
        """The metric of a split; of training of as many links as are for validation, beside their negatives."""
        data, against = self.dataset, "val" if split == "train" else split
        if not (count := data.positives[against].size(1)):
            return None
        links, relation = data.positives[split], data.relations[split] if data.relations else None
        drawn = data.negatives[against]
        if split == "train":
            chosen = self.shuffled(TRAIN, 0)[:count]
            links, relation = links[:, chosen], None if relation is None else relation[chosen]
            drawn = drawn[: len(chosen)] if data.ranked else drawn
        ours = self._scores(model, z, links, relation)
        if data.ranked:
            each = drawn.size(1)
            pairs = torch.stack([links[0].repeat_interleave(each), drawn.flatten()])
            of_pairs = None if relation is None else relation.repeat_interleave(each)
            theirs = self._scores(model, z, pairs, of_pairs).view(-1, each)
        else:
            theirs = self._scores(model, z, drawn, None)
        return scored(data.score, ours, theirs)

    def _scores(self, model: Any, z: Tensor, pairs: Tensor, relation: Tensor | None) -> Tensor:
        """Scores [P] of pairs [2, P], on the CPU."""
        device, scores = z.device, []
        types = [None] * -(-pairs.size(1) // SCORED) if relation is None else relation.split(SCORED)
        for some, kinds in zip(pairs.split(SCORED, 1), types, strict=True):
            asked = Pairs(some.to(device), None if kinds is None else kinds.to(device))
            scores.append(model.decoder(z, asked).float().cpu())
        return torch.cat(scores)


def prepare(config: Run, model: Module, backend: Backend, dataset: LinksDataset, cache: Path | None) -> Setup:
    """Raises UnsupportedOp where the backend cannot run this model."""
    if config.batch.drop_target_links:
        bindings = backend.bind(model)
        return Setup(Links(config.batch, dataset, backend, backend.adjacency(dataset, backend.layout())), bindings)
    prepared = backend.prepare(model, dataset)
    batching = Links(config.batch, dataset, backend, prepared.adj, prepared.x)
    return Setup(batching, prepared.bindings, *full.tuned(prepared, model, backend, cache))
