"""Sampled neighbourhoods and pairs that are no edges beside those of others: checked, then timed in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NeighborSampler, NodeSamplerInput
from torch_geometric.utils import negative_sampling

from gnnbench.backends import isplib
from gnnbench.backends.isplib.sample import EDGE, NODE
from gnnbench.benchmarks import contest
from gnnbench.benchmarks.peers import Dgl
from gnnbench.benchmarks.records import BatchBench, BatchRow
from gnnbench.datasets import NodeDataset, TypedDataset
from gnnbench.errors import BackendUnavailable
from gnnbench.graph import Graph
from gnnbench.measure import clock
from gnnbench.measure.rounds import Timed, timed
from gnnbench.ops import negatives
from gnnbench.ops.kernels import Kernels
from gnnbench.training.layerwise import neighbors

OURS = "isplib"
SAMPLERS = ("dgl", "pyg-lib")
STAGES = ("sample", "gather", "both")
BATCHES = 16  # of different seeds, which come again and again
Stage = Literal["sample", "gather", "both"]
METHODS = {"pyg": "sparse", "pyg-dense": "dense"}  # of PyG's `negative_sampling`
PEERS, OWN = (*METHODS, "dgl"), (OURS, "isplib-corrupt", "reference")  # that draw pairs
SIZES = (65536, 1 << 20)  # of batches of pairs


class SampleRow(BatchRow):
    """One sampler at one batch size."""

    part: Stage = Field(description="sampling, gathering the features of its nodes, or one after the other")
    edges: float | None = Field(None, description="of a batch, mean; DGL samples old nodes again in every hop")


class SampleBench(BatchBench):
    """Everything known about one benchmark of sampling."""

    op: Literal["sample"] = "sample"
    fanouts: list[int]
    threads: int
    rows: list[SampleRow]


def sample(
    dataset: NodeDataset | TypedDataset,
    *,
    against: Sequence[str] = SAMPLERS,
    fanouts: Sequence[int] = (15, 10, 5),
    sizes: Sequence[int] = contest.SIZES,
    dgl_python: str = "",
    **how: Any,
) -> SampleBench:
    """Check and time batches of random seeds.

    Args:
        dataset: a graph of several types has seeds of the type that is classified, and fanouts for every relation.
        against: of `SAMPLERS`.
        how: `out`, `memory_limit` and `on_event`, as of `contest.batches`.

    Raises:
        BackendUnavailable: our kernels are not built.
        ConfigError: an unknown peer, a fanout below -1, or a batch size that the graph has not.
        GnnbenchError: as `contest.batches`.
    """
    if reasons := isplib.Backend.unavailable():
        raise BackendUnavailable(f"sampling needs backend isplib: {'; '.join(reasons)}")
    problems = contest.unknown("sampler", against, SAMPLERS)
    problems += [
        f"a fanout is {fanout}; give numbers from 0 up, or -1 for all" for fanout in fanouts if fanout < -1
    ]
    problems += ["give at least one fanout"] * (not fanouts)
    contest.check(problems, sizes, f"seeds of {dataset.label}", most=len(dataset.y))
    record = SampleBench(
        **contest.facts(dataset),
        features=sum(x.size(1) for x in _features(dataset).values()),
        fanouts=list(fanouts),
        threads=torch.get_num_threads(),
        peers=list(against),
        rows=[
            SampleRow(batch_size=size, part=stage, implementation=name)
            for size in sizes
            for stage in STAGES
            for name in (OURS, *against)
        ],
    )
    kinds: dict[str, Callable[..., Sampler]]
    kinds = {OURS: Ours, "pyg-lib": OfPyg, "dgl": partial(OfDgl, python=dgl_python)}
    makers = {name: partial(kinds[name], dataset, record.fanouts) for name in (OURS, *against)}
    return contest.batches(record, makers, **how)


class Sampler:
    """Batches of seeds by one implementation."""

    def __init__(self, dataset: NodeDataset | TypedDataset) -> None:
        self.x, self.seeded = _features(dataset), len(dataset.y)

    def contestant(self, row: SampleRow) -> contest.Contestant:
        generator = torch.Generator().manual_seed(0)
        drawn = (torch.randperm(self.seeded, generator=generator) for _ in range(BATCHES))
        batches = [seeds[: row.batch_size] for seeds in drawn]
        time, edges = self.timed(row.part, batches)
        row.edges = None if row.part == "gather" else edges

        def wrong(_: SampleRow) -> str:
            return next(filter(None, map(self.wrong, batches)), "")

        return contest.Contestant(time, wrong, items=max(row.edges or 1.0, 1.0))

    def sample(self, seeds: Tensor) -> tuple[Mapping[str, Tensor], int]:
        """The nodes of a batch by type, and the number of its edges."""
        raise NotImplementedError

    def wrong(self, seeds: Tensor) -> str:
        """How a batch is not a sample of the graph; empty if it is one."""
        return ""

    def gather(self, node: Mapping[str, Tensor]) -> list[Tensor]:
        """The features of nodes, of each type that has any."""
        return [x.index_select(0, node[kind]) for kind, x in self.x.items()]

    def timed(self, stage: str, batches: Sequence[Tensor]) -> tuple[Timed, float]:
        """Return what can be timed, and the mean number of edges; each thread works on batches of its own."""
        nodes, edges = zip(*map(self.sample, batches), strict=True)
        works: dict[str, Callable[[Tensor, Mapping[str, Tensor]], Any]] = {
            "sample": lambda seeds, node: self.sample(seeds),
            "gather": lambda seeds, node: self.gather(node),
            "both": lambda seeds, node: self.gather(self.sample(seeds)[0]),
        }
        threads = ThreadPoolExecutor(torch.get_num_threads(), initializer=partial(torch.set_num_threads, 1))

        def measure(samples: int, calls: int) -> list[float]:
            epochs = timed(
                lambda: [*threads.map(works[stage], batches, nodes)], clock.cpu, samples, -(-calls // len(batches))
            )
            return [seconds / len(batches) for seconds in epochs]

        return measure, sum(edges) / len(edges)


class Ours(Sampler):
    """Batches by our sampler."""

    def __init__(self, dataset: NodeDataset | TypedDataset, fanouts: list[int]) -> None:
        super().__init__(dataset)
        if isinstance(dataset, TypedDataset):
            self.target, self.neighbors = dataset.target, neighbors(dataset)
        else:
            graph = dataset.graph(contest.CPU, isplib.IsplibKernels())
            self.target, self.neighbors = NODE, isplib.Neighbors(graph.rowptr, graph.col).typed
        self.fanouts = dict.fromkeys(self.neighbors.rows, fanouts)

    def sample(self, seeds: Tensor) -> tuple[Mapping[str, Tensor], int]:
        sample = self.neighbors.sample({self.target: seeds}, self.fanouts, int(seeds[0]))
        return sample.node, sample.total

    def wrong(self, seeds: Tensor) -> str:
        sample = self.neighbors.sample({self.target: seeds}, self.fanouts, 0)
        for relation, rows in self.neighbors.rows.items():
            source, _, destination = relation
            begin, end = (rows.rowptr[sample.node[destination][sample.col[relation]] + more] for more in (0, 1))
            edge, given = sample.edge[relation], sample.node[source][sample.row[relation]]
            if bool((edge < begin).any() or (edge >= end).any() or (rows.col[edge] != given).any()):
                return "a batch has an edge that the graph has not"
            if edge.unique().numel() < edge.numel():
                return "a batch has an edge twice"
        return ""


class OfPyg(Sampler):
    """Batches by PyG's sampler on pyg-lib."""

    def __init__(self, dataset: NodeDataset | TypedDataset, fanouts: list[int]) -> None:
        import torch_geometric.typing

        if not torch_geometric.typing.WITH_PYG_LIB:
            raise BackendUnavailable("pyg-lib is not installed; see PyG's page on installing it")
        super().__init__(dataset)
        self.type, data = None, Data(edge_index=dataset.edge_index, num_nodes=dataset.num_nodes)
        if isinstance(dataset, TypedDataset):
            self.type, data = dataset.target, dataset.data
        self.sampler = NeighborSampler(data, num_neighbors=fanouts)

    def sample(self, seeds: Tensor) -> tuple[Mapping[str, Tensor], int]:
        out: Any = self.sampler.sample_from_nodes(NodeSamplerInput(None, seeds, input_type=self.type))
        if self.type is None:
            return {NODE: out.node}, out.row.numel()
        return out.node, sum(row.numel() for row in out.row.values())


class OfDgl(Sampler):
    """Batches by DGL's sampler in DGL's own process, with int32 ids."""

    def __init__(self, dataset: NodeDataset | TypedDataset, fanouts: list[int], python: str) -> None:
        super().__init__(dataset)
        graphs: Mapping[Any, Any] = {EDGE: dataset}
        self.target, self.fanouts = NODE, fanouts
        if isinstance(dataset, TypedDataset):
            graphs, self.target = dataset.relations, dataset.target
        self.dgl = Dgl(python, {relation: edges.graph(contest.CPU) for relation, edges in graphs.items()})
        x = {f"x_{place}": own for place, own in enumerate(self.x.values())}
        self.dgl.ask("features", x, types=[*self.x])

    def timed(self, stage: str, batches: Sequence[Tensor]) -> tuple[Timed, float]:
        """Time as `Sampler.timed`; DGL reads its own clock."""
        wanted = {"fanouts": self.fanouts, "stage": stage, "target": self.target}
        answer = self.dgl.ask("sampling", {"seeds": torch.stack([*batches]).int()}, **wanted)
        return self.dgl.time, answer["edges"]


def _features(dataset: NodeDataset | TypedDataset) -> dict[str, Tensor]:
    """Return those that are given, by type."""
    x = dataset.x if isinstance(dataset, TypedDataset) else {NODE: dataset.x}
    return {kind: own for kind, own in x.items() if own.dim() == 2}


class NegativesBench(BatchBench):
    """Everything known about one benchmark of negatives."""

    op: Literal["negatives"] = "negatives"
    excluded: int = Field(description="pairs that may not be drawn: distinct edges and self-loops")
    threads: int
    rows: list[BatchRow] = Field(
        description="of isplib, which draws both ends, isplib-corrupt only the destination; reference, in plain "
        "torch; pyg and pyg-dense, methods of PyG's negative_sampling; dgl, global_uniform_negative_sampling"
    )


def pairs(
    dataset: NodeDataset,
    *,
    against: Sequence[str] = PEERS,
    sizes: Sequence[int] = SIZES,
    dgl_python: str = "",
    **how: Any,
) -> NegativesBench:
    """Check and time batches of pairs without edges and self-loops.

    Ours has sorted the graph before, as it is for training; PyG is given its `edge_index` anew for every batch.

    Args:
        against: of `PEERS`.
        how: `out`, `memory_limit` and `on_event`, as of `contest.batches`.

    Raises:
        BackendUnavailable: our kernels are not built.
        ConfigError: an unknown peer, or no positive size.
        GnnbenchError: every pair is an edge, or as `contest.batches`.
    """
    if reasons := isplib.Backend.unavailable():
        raise BackendUnavailable(f"drawing pairs needs backend isplib: {'; '.join(reasons)}")
    contest.check(contest.unknown("peer", against, PEERS), sizes, "pairs")
    edges = dataset.keys(dataset.edge_index).unique()
    record = NegativesBench(
        **contest.facts(dataset),
        features=dataset.x.size(1),
        excluded=dataset.num_nodes + int((edges % (dataset.num_nodes + 1) != 0).sum()),
        threads=torch.get_num_threads(),
        peers=list(against),
        rows=[BatchRow(batch_size=size, implementation=name) for size in sizes for name in (*OWN, *against)],
    )
    fast = cache(partial(dataset.graph, contest.CPU, isplib.IsplibKernels()))
    makers = {name: partial(Drawn, name, dataset, edges, fast, dgl_python) for name in (*OWN, *against)}
    return contest.batches(record, makers, **how)


class Drawn:
    """Pairs by one implementation.

    Args:
        edges: [E] int64, the keys of those that may not be drawn.
        fast: the graph in rows of our kernels.
    """

    def __init__(
        self, name: str, dataset: NodeDataset, edges: Tensor, fast: Callable[[], Graph], dgl_python: str
    ) -> None:
        self.name, self.dataset, self.edges = name, dataset, edges
        self.graph = dataset.graph(contest.CPU, Kernels()) if name == "reference" else fast()
        self.dgl = Dgl(dgl_python, self.graph) if name == "dgl" else None

    def contestant(self, row: BatchRow) -> contest.Contestant:
        draw = self.call(row.batch_size)
        time: Timed = self.dgl.time if self.dgl else partial(timed, draw, clock.cpu)
        return contest.Contestant(time, partial(self.wrong, draw), items=row.batch_size)

    def call(self, size: int) -> Callable[[], Tensor]:
        """Draw so many pairs, other ones at every call."""
        seeds = itertools.count()
        if self.dgl:
            return partial(_by_dgl, self.dgl, size)
        if self.name in METHODS:
            ends = self.dataset.edge_index, self.dataset.num_nodes
            return partial(negative_sampling, *ends, size, METHODS[self.name])
        if self.name == "isplib-corrupt":
            sources = self.dataset.edge_index[0].repeat(-(-size // self.dataset.num_edges))[:size]
            return lambda: negatives.corrupt(self.graph, sources, 1, next(seeds))
        return lambda: negatives.uniform(self.graph, size, next(seeds))

    def wrong(self, draw: Callable[[], Tensor], row: BatchRow) -> str:
        """How pairs are not as asked for; empty if they are."""
        pairs = draw()
        keys = self.dataset.keys(pairs)
        if bool((keys % (self.dataset.num_nodes + 1) == 0).any()):
            return "a self-loop was drawn"
        if bool(torch.isin(keys, self.edges).any()):
            return "an edge was drawn"
        return f"only {pairs.size(1)} pairs were drawn" if pairs.size(1) < row.batch_size else ""


def _by_dgl(dgl: Dgl, size: int) -> Tensor:
    dgl.ask("negatives", count=size)
    return dgl.found()[0].long()
