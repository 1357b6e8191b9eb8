"""Batches of sampled neighbourhoods in graphs of several types, the same ones on every backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import Module
from torch.profiler import record_function

from gnnbench.backends import isplib
from gnnbench.backends.base import Backend
from gnnbench.backends.isplib.sample import Relation, TypedSample
from gnnbench.datasets import TypedDataset
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.training.batching._batch import Batch
from gnnbench.training.batching._neighbors import Sampled
from gnnbench.training.batching.full import Full, typed, typed_adjacency
from gnnbench.training.typed_layerwise import TypedLayerwise, neighbors

if TYPE_CHECKING:
    from gnnbench.training.batching.neighbors import Config


class TypedNeighborhoods(Sampled[TypedSample]):
    """Batches of nodes of one type, with what leads to them of every type.

    All types and relations are in every batch, some perhaps empty, so that all parameters have gradients.
    """

    def __init__(self, config: Config, model: Any, dataset: TypedDataset, backend: Backend) -> None:
        super().__init__(config, dataset, backend)
        self.model, self.fanouts = model, by_relation(config.fanouts, dataset)
        self.neighbors = neighbors(dataset)

    @cached_property
    def _whole(self) -> Full:
        return typed(self.model, self.backend, self.dataset)

    def _layers(self, model: Module) -> TypedLayerwise:
        return TypedLayerwise(model, self.dataset, self.backend)

    def _drawn(self, seeds: Tensor, key: int, places: Tensor | None = None) -> TypedSample:
        given, replace = ({self.dataset.target: seeds}, self.fanouts, key), self.config.replace
        with record_function("gnnbench::sample"):  # for the profiler, as this is no op of PyTorch
            if places is None:
                return self.neighbors.sample(*given, replace=replace)
            part = {self.dataset.target: places}
            return self.neighbors.part(*given, part, len(self.model.convs), replace=replace)

    def _gathered(self, sample: TypedSample, y: Tensor) -> Batch:
        device = self.backend.device
        x = {kind: isplib.rows(self.dataset.x[kind], node).to(device) for kind, node in sample.node.items()}
        adj, edge_type = typed_adjacency(self.model, self.backend, self.layout, sample.sizes, sample.edges)
        return self._of(x, adj, y, edge_type)


def by_relation(
    fanouts: Sequence[int] | Mapping[str, Sequence[int]], dataset: TypedDataset
) -> dict[Relation, Sequence[int]]:
    """The fanouts of each relation, of one list for all or of lists by the names of all.

    Raises:
        ConfigError: a name that is no relation's, or a relation without fanouts.
    """
    names = {" ".join(relation): relation for relation in dataset.relations}
    if not isinstance(fanouts, Mapping):
        return dict.fromkeys(dataset.relations, fanouts)
    if unknown := [name for name in fanouts if name not in names]:
        raise ConfigError(
            f"batch.fanouts: {dataset.name} has no relation {unknown[0]!r}{did_you_mean(unknown[0], names)}"
        )
    if missing := [name for name in names if name not in fanouts]:
        raise ConfigError(
            f"batch.fanouts has no numbers for relation {missing[0]!r} of {dataset.name}; give one for each "
            "layer, 0 to draw none of its edges"
        )
    return {relation: fanouts[name] for name, relation in names.items()}
