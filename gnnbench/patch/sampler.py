"""The stand-ins for what PyG's `NeighborSampler` leaves to pyg-lib or torch-sparse."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

import torch
import torch_geometric.typing
from torch_geometric.sampler import NeighborSampler, SamplerOutput
from torch_geometric.sampler.base import SubgraphType

from gnnbench import sample
from gnnbench.backends import isplib
from gnnbench.errors import GraphError, UnsupportedOp
from gnnbench.patch.call import Declined
from gnnbench.patch.engine import Engine
from gnnbench.patch.stand_in import StandIn

BESIDE = "gnnbench's own sampler does not cover"

_neighbors: Any = weakref.WeakKeyDictionary()  # of PyG's samplers: their rows, with memory that batches share


class _Part(StandIn):
    """A method of `NeighborSampler`, by which `NeighborLoader` and `LinkNeighborLoader` sample."""

    name = "sampler"

    def __init__(self) -> None:
        self.original = vars(NeighborSampler)[self.attribute]

    def enabled_by_default(self) -> bool:
        return not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE)

    def owners(self) -> list[Any]:
        return [NeighborSampler]


class Construction(_Part):
    """PyG's own, which warns that pyg-lib is missing and refuses some options without it."""

    attribute = "__init__"

    def __call__(self, engine: Engine, *args: Any, **kwargs: Any) -> None:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*without a 'pyg-lib' installation")
                self.original(*args, **kwargs)
        except ImportError as error:
            raise ImportError(f"{error}; {BESIDE} edge weights or times of edges") from error


class Sampling(_Part):
    """Ours on the rows that PyG sorted.

    Random numbers follow from one of torch's generator for each batch, so that `torch.manual_seed` rules them.
    """

    attribute = "_sample"

    def accelerated(
        self, engine: Engine, sampler: Any, seed: Any, seed_time: Any = None, **options: Any
    ) -> SamplerOutput:
        if reasons := [*isplib.Backend.unavailable(), *_uncovered(sampler, seed, seed_time, options)]:
            raise UnsupportedOp("sampling", reasons)
        fanouts = sample.checked_fanouts(sampler.num_neighbors.get_mapped_values())
        seeds, key = sample.checked_seeds(seed), int(torch.randint(2**63 - 1, ()))
        try:
            neighbors = _neighbors_of(sampler)
            batch = neighbors.sample(seeds, fanouts, key, bool(sampler.replace))
        except GraphError as error:
            raise Declined(str(error)) from error
        out = sample.as_output(batch)
        if sampler.sample_direction == "backward":
            out.row, out.col = out.col, out.row
        return out

    def left(self, engine: Engine, reason: str, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().left(engine, reason, *args, **kwargs)
        except ImportError as error:
            raise ImportError(f"{error}; {BESIDE} this: {reason}") from error


def _uncovered(sampler: Any, seed: Any, seed_time: Any, options: dict[str, Any]) -> list[str]:
    if isinstance(seed, dict):
        return ["heterogeneous graphs"]
    asked = {
        "times": seed_time is not None or sampler.is_temporal,
        "edge weights": sampler.edge_weight is not None,
        "disjoint=True": sampler.disjoint and not sampler.is_temporal,
        "subgraph_type='induced'": sampler.subgraph_type == SubgraphType.induced,
        "further arguments": bool(options),
    }
    return [name for name, is_asked in asked.items() if is_asked]


def _neighbors_of(sampler: Any) -> isplib.Neighbors:
    kept: isplib.Neighbors | None = _neighbors.get(sampler)
    if kept is None or kept.rowptr is not sampler.colptr or kept.col is not sampler.row:
        kept = _neighbors[sampler] = isplib.Neighbors(sampler.colptr, sampler.row)
    return kept


PARTS = (Construction(), Sampling())
