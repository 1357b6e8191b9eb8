"""The stand-ins for what PyG's `NeighborSampler` leaves to pyg-lib or torch-sparse."""

from __future__ import annotations

import operator
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, NeighborSampler, SamplerOutput
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.sampler.utils import remap_keys

from gnnbench import sample
from gnnbench.backends import isplib
from gnnbench.backends.isplib.batch import Rows
from gnnbench.backends.isplib.sample import EDGE, NODE, TypedNeighbors
from gnnbench.errors import ConfigError, GraphError, UnsupportedOp
from gnnbench.patch.call import Declined
from gnnbench.patch.engine import Engine
from gnnbench.patch.stand_in import StandIn

READ = ("colptr", "row", "colptr_dict", "row_dict", "node_time", "edge_time", "edge_weight")

_neighbors: Any = weakref.WeakKeyDictionary()  # of PyG's samplers: what was read, and rows that batches share


class _Part(StandIn):
    """A method of `NeighborSampler`, by which `NeighborLoader` and `LinkNeighborLoader` sample."""

    name, owner = "sampler", NeighborSampler

    def __init__(self) -> None:
        self.original = vars(NeighborSampler)[self.attribute]

    def enabled_by_default(self) -> bool:
        return not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE)


class Construction(_Part):
    """PyG's own, which warns that pyg-lib is missing and refuses edge weights and times of edges without it."""

    attribute = "__init__"

    def __call__(self, engine: Engine, *args: Any, **kwargs: Any) -> None:
        with warnings.catch_warnings(), _with_all_options(self.enabled_by_default()):
            warnings.filterwarnings("ignore", ".*without a 'pyg-lib' installation")
            self.original(*args, **kwargs)


class Sampling(_Part):
    """Ours on the rows that PyG sorted.

    Random numbers follow from one of torch's generator for each batch, so that `torch.manual_seed` rules them.
    """

    attribute = "_sample"

    def accelerated(
        self, engine: Engine, sampler: Any, seed: Any, seed_time: Any = None, **options: Any
    ) -> SamplerOutput | HeteroSamplerOutput:
        if reasons := [*isplib.Backend.unavailable(), *(["further arguments"] * bool(options))]:
            raise UnsupportedOp("sampling", reasons)
        induced = sampler.subgraph_type == SubgraphType.induced
        if induced and sampler.disjoint:  # in PyG's words
            raise ValueError(
                "'disjoint' sampling not supported for neighbor sampling with `subgraph_type='induced'`"
            )
        seeds = {type_: sample.checked_seeds(ids) for type_, ids in _by_type(seed).items()}
        key = int(torch.randint(2**63 - 1, ()))
        try:
            batch = _neighbors_of(sampler).sample(
                seeds,
                _fanouts(sampler),
                key,
                replace=bool(sampler.replace),
                disjoint=sampler.disjoint,
                limit=_limit(sampler, seeds, seed_time),
                last=_takes_last(sampler),
                induced=induced,
            )
        except GraphError as error:
            raise Declined(str(error)) from error
        return _output(sampler, batch._asdict(), typed=isinstance(seed, dict), counts=not induced)

    def left(self, engine: Engine, reason: str, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().left(engine, reason, *args, **kwargs)
        except ImportError as error:
            raise ImportError(f"{error}; gnnbench's own sampler does not cover this: {reason}") from error


@contextmanager
def _with_all_options(wanted: bool) -> Iterator[None]:
    """Have PyG construct samplers with weights and times of edges, as if pyg-lib were there to draw by them."""
    flags = ("WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")
    before = {flag: getattr(torch_geometric.typing, flag) for flag in flags if wanted}
    try:
        vars(torch_geometric.typing).update(dict.fromkeys(before, True))
        yield
    finally:
        vars(torch_geometric.typing).update(before)


def _by_type(values: Any) -> dict[Any, Any]:
    """Return values by type or relation, those of the only one too; none for None."""
    if values is None:
        return {}
    return values if isinstance(values, dict) else {NODE: values}


def _relations(sampler: Any) -> dict[Any, str]:
    """The names that a sampler has for its relations."""
    if not sampler.is_hetero:
        return {EDGE: NODE}
    return {relation: sampler.to_rel_type[relation] for relation in sampler.edge_types}


def _neighbors_of(sampler: Any) -> TypedNeighbors:
    read = [getattr(sampler, name, None) for name in READ]
    kept, neighbors = _neighbors.get(sampler, ([], None))
    if not kept or not all(map(operator.is_, kept, read)):
        neighbors = _read(sampler)
        _neighbors[sampler] = read, neighbors
    return neighbors


def _read(sampler: Any) -> TypedNeighbors:
    """The rows that PyG sorted, by time where there is one: an edge has its own, or that of its source."""
    typed = sampler.is_hetero
    rowptr = sampler.colptr_dict if typed else {NODE: sampler.colptr}
    col = sampler.row_dict if typed else {NODE: sampler.row}
    num_nodes = dict(sampler.num_nodes) if typed else {NODE: sampler.colptr.numel() - 1}
    if unknown := [type_ for type_, size in num_nodes.items() if size is None]:
        raise ConfigError(f"node type {unknown[0]!r} has neither features nor num_nodes, so that it has no size")
    node_time = {
        type_: _times(each, num_nodes[type_], type_) for type_, each in _by_type(sampler.node_time).items()
    }
    rows = {}
    for relation, name in _relations(sampler).items():
        source, sources, edges = relation[0], col[name], col[name].numel()
        time, weight = (_by_type(values).get(name) for values in (sampler.edge_time, sampler.edge_weight))
        if time is not None:
            time = _times(time, edges, relation)
        elif source in node_time:
            time = node_time[source][sources]
        if time is not None and not torch.isin((time[1:] < time[:-1]).nonzero().flatten() + 1, rowptr[name]).all():
            raise ConfigError(
                "the edges of a node are not sorted by time, as is_sorted=True or a SparseTensor says"
            )
        rows[relation] = Rows(
            rowptr[name].contiguous(),
            sources.contiguous(),
            num_cols=num_nodes.get(source),
            weight=None if weight is None else _weights(weight, edges),
            time=time,
        )
    return TypedNeighbors(num_nodes, rows)


def _times(time: Tensor, size: int, of: Any) -> Tensor:
    named = f" of {of!r}" if of else ""
    if time.is_floating_point() or time.shape != (size,):
        raise ConfigError(
            f"times{named} are {time.dtype} of shape {list(time.shape)}, but must be {size} whole numbers"
        )
    return time.to("cpu", torch.int64).contiguous()


def _weights(weight: Tensor, edges: int) -> Tensor:
    weight = weight.detach().to("cpu", torch.float64).contiguous()
    if weight.shape != (edges,) or not bool((weight.isfinite() & (weight >= 0)).all()):
        raise ConfigError(
            f"edge weights are of shape {list(weight.shape)}, but must be {edges} numbers from 0 up, each finite"
        )
    return weight


def _fanouts(sampler: Any) -> dict[Any, list[int]]:
    if not sampler.is_hetero:
        return {EDGE: sample.checked_fanouts(sampler.num_neighbors.get_mapped_values())}
    given = sampler.num_neighbors.get_mapped_values(sampler.edge_types)
    return {relation: sample.checked_fanouts(given[name]) for relation, name in _relations(sampler).items()}


def _takes_last(sampler: Any) -> bool:
    if sampler.temporal_strategy not in ("uniform", "last"):
        raise ConfigError(f"temporal_strategy is {sampler.temporal_strategy!r}; allowed: 'uniform', 'last'")
    return bool(sampler.temporal_strategy == "last")


def _limit(sampler: Any, seeds: Mapping[str, Tensor], seed_time: Any) -> Tensor | None:
    """Return the time of every seed, after which no edge may be; its own where none is given."""
    if not sampler.is_temporal:
        return None
    given, own = _by_type(seed_time), _by_type(sampler.node_time)
    if missing := [type_ for type_ in seeds if type_ not in (given or own)]:
        named = f" of type {missing[0]!r}" if missing[0] else ""
        raise ConfigError(f"seeds{named} have no time; give input_time, or edge_label_time for links")
    if given:
        return torch.cat([_times(given[type_], len(ids), type_) for type_, ids in seeds.items()])
    return torch.cat([own[type_].cpu()[ids.clamp(0, len(own[type_]) - 1)].long() for type_, ids in seeds.items()])


def _output(
    sampler: Any, batch: dict[str, Any], *, typed: bool, counts: bool
) -> SamplerOutput | HeteroSamplerOutput:
    backward = sampler.sample_direction == "backward"
    if not typed:
        batch = {name: next(iter(of.values())) if isinstance(of, dict) else None for name, of in batch.items()}
    elif backward:
        edges = ("row", "col", "edge", "num_edges")
        batch |= {name: remap_keys(batch[name], sampler.to_restored_edge_type) for name in edges}
    ends = (batch["col"], batch["row"]) if backward else (batch["row"], batch["col"])
    numbers = (batch["num_nodes"], batch["num_edges"]) if counts else (None, None)
    kind = HeteroSamplerOutput if typed else SamplerOutput
    return kind(batch["node"], *ends, batch["edge"], batch["tree"], *numbers)


STAND_INS = (Construction(), Sampling())
