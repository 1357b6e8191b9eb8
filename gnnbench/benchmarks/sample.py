"""Sampled neighbourhoods beside the samplers of DGL and pyg-lib: checked against the graph, then timed in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.sampler import NeighborSampler, NodeSamplerInput

from gnnbench.backends import isplib
from gnnbench.backends.isplib.sample import EDGE, NODE
from gnnbench.benchmarks import contest
from gnnbench.benchmarks.contest import CPU, Contestant
from gnnbench.benchmarks.dgl import Dgl
from gnnbench.benchmarks.records import BatchBench, BatchRow
from gnnbench.datasets import NodeDataset, TypedDataset
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean
from gnnbench.measure import clock
from gnnbench.measure.rounds import Budget, Timed, timed
from gnnbench.training.layerwise import neighbors

OURS = "isplib"
PEERS = ("dgl", "pyg-lib")
STAGES = ("sample", "gather", "both")
BATCHES = 16  # of different seeds, which come again and again
Stage = Literal["sample", "gather", "both"]


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


def bench(
    dataset: NodeDataset | TypedDataset,
    *,
    out: Path,
    against: Sequence[str] = PEERS,
    fanouts: Sequence[int] = (15, 10, 5),
    sizes: Sequence[int] = contest.SIZES,
    dgl_python: str = "",
    memory_limit: str = "90%",
    budget: Budget = Budget(),
    on_event: Callable[[str], None] = lambda _: None,
) -> SampleBench:
    """Check and time batches of random seeds; `out/bench.json` is written after every batch size.

    Args:
        dataset: a graph of several types has seeds of the type that is classified, and fanouts for every relation.
        against: of `PEERS`.
        on_event: hears what is about to start.

    Raises:
        BackendUnavailable: our kernels are not built.
        ConfigError: an unknown peer, a fanout below -1, or a batch size that the graph has not.
        GnnbenchError: memory is exceeded, or `out` cannot be written.
    """
    _check(dataset, against, fanouts, sizes)
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
    steps = _steps(record, dataset, dgl_python, budget)
    return contest.measured(record, steps, out / "bench.json", memory_limit=memory_limit, on_event=on_event)


class Ours:
    """Batches of seeds by our sampler."""

    def __init__(self, dataset: NodeDataset | TypedDataset, fanouts: list[int]) -> None:
        self.x = _features(dataset)
        if isinstance(dataset, TypedDataset):
            self.target, self.neighbors = dataset.target, neighbors(dataset)
        else:
            graph = dataset.graph(CPU, isplib.IsplibKernels())
            self.target, self.neighbors = NODE, isplib.Neighbors(graph.rowptr, graph.col).typed
        self.fanouts = dict.fromkeys(self.neighbors.rows, fanouts)

    def sample(self, seeds: Tensor) -> tuple[Mapping[str, Tensor], int]:
        """The nodes of a batch by type, and the number of its edges."""
        sample = self.neighbors.sample({self.target: seeds}, self.fanouts, int(seeds[0]))
        return sample.node, sample.total

    def wrong(self, seeds: Tensor) -> str:
        """How a batch is not a sample of the graph; empty if it is one."""
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


class OfPyg(Ours):
    """PyG's sampler on pyg-lib."""

    def __init__(self, dataset: NodeDataset | TypedDataset, fanouts: list[int]) -> None:
        import torch_geometric.typing

        if not torch_geometric.typing.WITH_PYG_LIB:
            raise BackendUnavailable("pyg-lib is not installed; see PyG's page on installing it")
        self.x, self.type, data = _features(dataset), None, getattr(dataset, "data", None)
        if isinstance(dataset, TypedDataset):
            self.type = dataset.target
        else:
            data = Data(edge_index=dataset.edge_index, num_nodes=dataset.num_nodes)
        self.sampler = NeighborSampler(data, num_neighbors=fanouts)

    def sample(self, seeds: Tensor) -> tuple[Mapping[str, Tensor], int]:
        out: Any = self.sampler.sample_from_nodes(NodeSamplerInput(None, seeds, input_type=self.type))
        if self.type is None:
            return {NODE: out.node}, out.row.numel()
        return out.node, sum(row.numel() for row in out.row.values())


class OfDgl:
    """DGL's sampler in DGL's own process, with int32 ids."""

    def __init__(self, dataset: NodeDataset | TypedDataset, fanouts: list[int], python: str) -> None:
        if isinstance(dataset, TypedDataset):
            graphs = {relation: edges.graph(CPU) for relation, edges in dataset.relations.items()}
            self.target = dataset.target
        else:
            graphs, self.target = {EDGE: dataset.graph(CPU)}, NODE
        self.dgl = Dgl(python, graphs)
        self.types, self.fanouts = [*_features(dataset)], fanouts
        for place, x in enumerate(_features(dataset).values()):
            self.dgl.save(f"x_{place}", x)

    def timed(self, stage: str, batches: Sequence[Tensor]) -> tuple[Timed, float]:
        """As `Ours.timed`; DGL reads its own clock."""
        self.dgl.save("seeds", torch.stack([*batches]).int())
        wanted = {"fanouts": self.fanouts, "part": stage, "target": self.target, "types": self.types}
        edges: float = self.dgl.ask("sampling", **wanted)["edges"]
        return self.dgl.time, edges


def _steps(
    record: SampleBench, dataset: NodeDataset | TypedDataset, dgl_python: str, budget: Budget
) -> Iterator[str]:
    """Check and time batches of every size."""
    yield "sorting the edges"
    makers: dict[str, Callable[[], Any]] = {
        OURS: partial(Ours, dataset, record.fanouts),
        "pyg-lib": partial(OfPyg, dataset, record.fanouts),
        "dgl": partial(OfDgl, dataset, record.fanouts, dgl_python),
    }
    samplers = contest.made({name: makers[name] for name in (OURS, *record.peers)}, record.rows)

    def contestant(row: SampleRow) -> Contestant:
        generator = torch.Generator().manual_seed(0)
        drawn = (torch.randperm(_seeded(dataset), generator=generator) for _ in range(BATCHES))
        batches = [seeds[: row.batch_size] for seeds in drawn]
        sampler = samplers[row.implementation]
        time, edges = sampler.timed(row.part, batches)
        row.edges = None if row.part == "gather" else edges
        wrong = sampler.wrong if row.implementation == OURS else lambda _: ""
        return Contestant(time, lambda _: next(filter(None, map(wrong, batches)), ""))

    yield from contest.by_size(record, contestant, budget, lambda row: max(row.edges or 1.0, 1.0))


def _features(dataset: NodeDataset | TypedDataset) -> dict[str, Tensor]:
    """Return those that are given, by type."""
    x = dataset.x if isinstance(dataset, TypedDataset) else {NODE: dataset.x}
    return {kind: own for kind, own in x.items() if own.dim() == 2}


def _seeded(dataset: NodeDataset | TypedDataset) -> int:
    """Return how many nodes a batch can start from."""
    return dataset.nodes[dataset.target] if isinstance(dataset, TypedDataset) else dataset.num_nodes


def _check(
    dataset: NodeDataset | TypedDataset, against: Sequence[str], fanouts: Sequence[int], sizes: Sequence[int]
) -> None:
    if reasons := isplib.Backend.unavailable():
        raise BackendUnavailable(f"sampling needs backend isplib: {'; '.join(reasons)}")
    problems = [f"unknown sampler {name!r}{did_you_mean(name, PEERS)}" for name in against if name not in PEERS]
    problems += [
        f"a fanout is {fanout}; give numbers from 0 up, or -1 for all" for fanout in fanouts if fanout < -1
    ]
    problems += [
        f"a batch of {size} seeds is none of {dataset.label}; give 1 to {_seeded(dataset)}"
        for size in sizes
        if not 1 <= size <= _seeded(dataset)
    ]
    if not fanouts or not sizes:
        problems.append("give at least one fanout and one batch size")
    if problems:
        raise ConfigError(*problems)
