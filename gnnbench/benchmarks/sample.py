"""Sampled neighbourhoods beside the samplers of DGL and pyg-lib: checked against the graph, then timed in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from gnnbench.benchmarks import records
from gnnbench.benchmarks.dgl import Dgl
from gnnbench.benchmarks.op_benchmark import race
from gnnbench.benchmarks.records import CPU, BatchBench, BatchRow, Time
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean
from gnnbench.measure import clock
from gnnbench.measure.rounds import Budget, Timed, timed

OURS = "isplib"
PEERS = ("dgl", "pyg-lib")
STAGES = ("sample", "gather", "both")
BATCHES = 16  # of different seeds, which come again and again
Stage = Literal["sample", "gather", "both"]


class SampleRow(BatchRow):
    """One sampler at one batch size; figures are None where status is not ok."""

    batch_size: int = Field(description="seeds in a batch")
    part: Stage = Field(description="sampling, gathering the features of its nodes, or one after the other")
    edges: float | None = Field(None, description="of a batch, mean; DGL samples old nodes again in every hop")
    time_s: Time | None = Field(None, description="of one edge; of a batch where features alone are gathered")


class SampleBench(BatchBench):
    """Everything known about one benchmark of sampling."""

    op: Literal["sample"] = "sample"
    backend: str = OURS
    fanouts: list[int]
    threads: int
    rows: list[SampleRow]


def bench(
    dataset: NodeDataset,
    *,
    out: Path,
    against: Sequence[str] = PEERS,
    fanouts: Sequence[int] = (15, 10, 5),
    sizes: Sequence[int] = records.SIZES,
    dgl_python: str = "",
    memory_limit: str = "90%",
    budget: Budget = Budget(),
    on_event: Callable[[str], None] = lambda _: None,
) -> SampleBench:
    """Check and time batches of random seeds; `out/bench.json` is written after every batch size.

    Args:
        against: of `PEERS`.
        on_event: hears what is about to start.

    Raises:
        BackendUnavailable: our kernels are not built.
        ConfigError: an unknown peer, a fanout below -1, or a batch size that the graph has not.
        GnnbenchError: memory is exceeded, or `out` cannot be written.
    """
    _check(dataset, against, fanouts, sizes)
    names = [OURS, *against]
    record = SampleBench(
        **records.facts(dataset),
        features=dataset.x.size(1),
        fanouts=list(fanouts),
        threads=torch.get_num_threads(),
        peers=list(against),
        rows=[
            SampleRow(batch_size=size, part=stage, implementation=name)
            for size in sizes
            for stage in STAGES
            for name in names
        ],
    )
    makers: Makers = {
        OURS: partial(Ours, dataset, record.fanouts),
        "pyg-lib": partial(OfPyg, dataset, record.fanouts),
        "dgl": partial(OfDgl, dataset, record.fanouts, dgl_python),
    }
    steps = _steps(record, sizes, {name: makers[name] for name in names}, budget)
    return records.measured(record, steps, out=out, memory_limit=memory_limit, on_event=on_event)


class Ours:
    """Batches of seeds by our sampler."""

    def __init__(self, dataset: NodeDataset, fanouts: list[int]) -> None:
        graph = dataset.graph(CPU, isplib.IsplibKernels())
        self.neighbors = isplib.Neighbors(graph.rowptr, graph.col)
        self.x, self.fanouts = dataset.x, fanouts

    def sample(self, seeds: Tensor) -> tuple[Tensor, int]:
        """The nodes of a batch, and the number of its edges."""
        sample = self.neighbors.sample(seeds, self.fanouts, int(seeds[0]))
        return sample.node, sample.row.numel()

    def wrong(self, seeds: Tensor) -> str:
        """How a batch is not a sample of the graph; empty if it is one."""
        node, row, col, edge, _, _ = self.neighbors.sample(seeds, self.fanouts, 0)
        begin, end = (self.neighbors.rowptr[node[col] + more] for more in (0, 1))
        if bool((edge < begin).any() or (edge >= end).any() or (self.neighbors.col[edge] != node[row]).any()):
            return "a batch has an edge that the graph has not"
        return "a batch has an edge twice" if edge.unique().numel() < edge.numel() else ""

    def timed(self, stage: str, batches: Sequence[Tensor]) -> tuple[Timed, float]:
        """Return what can be timed, and the mean number of edges; each thread works on batches of its own."""
        nodes, edges = zip(*map(self.sample, batches), strict=True)
        works: dict[str, Callable[[Tensor, Tensor], Any]] = {
            "sample": lambda seeds, node: self.sample(seeds),
            "gather": lambda seeds, node: self.x.index_select(0, node),
            "both": lambda seeds, node: self.x.index_select(0, self.sample(seeds)[0]),
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

    def __init__(self, dataset: NodeDataset, fanouts: list[int]) -> None:
        import torch_geometric.typing

        if not torch_geometric.typing.WITH_PYG_LIB:
            raise BackendUnavailable("pyg-lib is not installed; see PyG's page on installing it")
        data = Data(edge_index=dataset.edge_index, num_nodes=dataset.num_nodes)
        self.x, self.sampler = dataset.x, NeighborSampler(data, num_neighbors=fanouts)

    def sample(self, seeds: Tensor) -> tuple[Tensor, int]:
        out = self.sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
        return out.node, out.row.numel()

    def wrong(self, seeds: Tensor) -> str:
        return ""


class OfDgl:
    """DGL's sampler in DGL's own process, with int32 ids."""

    def __init__(self, dataset: NodeDataset, fanouts: list[int], python: str) -> None:
        self.dgl = Dgl(python, dataset.graph(CPU))
        self.dgl.save("x", dataset.x)
        self.fanouts = fanouts

    def wrong(self, seeds: Tensor) -> str:
        return ""

    def timed(self, stage: str, batches: Sequence[Tensor]) -> tuple[Timed, float]:
        """As `Ours.timed`; DGL reads its own clock."""
        self.dgl.save("seeds", torch.stack([*batches]).int())
        edges: float = self.dgl.ask("sampling", fanouts=self.fanouts, part=stage)["edges"]

        def measure(samples: int, calls: int) -> list[float]:
            answer = self.dgl.ask("time", direction="forward", samples=samples, calls=calls)
            seconds: list[float] = answer["seconds"]
            return seconds

        return measure, edges


Makers = dict[str, Callable[[], Ours | OfDgl]]


def _steps(record: SampleBench, sizes: Sequence[int], makers: Makers, budget: Budget) -> Iterator[str]:
    """Check and time batches of every size."""
    yield "sorting the edges"
    samplers: dict[str, Ours | OfDgl] = {}
    missing: dict[str, str] = {}
    for name, make in makers.items():
        try:
            samplers[name] = make()
        except BackendUnavailable as error:
            missing[name] = str(error)
    for size in sizes:
        yield f"batches of {size}: checking, then timing"
        generator = torch.Generator().manual_seed(0)
        batches = [torch.randperm(record.nodes, generator=generator)[:size] for _ in range(BATCHES)]
        reasons = {name: next(filter(None, map(sampler.wrong, batches)), "") for name, sampler in samplers.items()}
        for stage in STAGES:
            rows = {row.implementation: row for row in record.rows if (row.batch_size, row.part) == (size, stage)}
            contestants: dict[str, Timed] = {}
            for name, row in rows.items():
                if name in missing:
                    row.status, row.reason = "unavailable", missing[name]
                elif reasons[name]:
                    row.status, row.reason = "wrong", reasons[name]
                else:
                    contestants[name], edges = samplers[name].timed(stage, batches)
                    row.edges = None if stage == "gather" else edges
            race(contestants, rows, record.peers, budget, lambda row: max(row.edges or 1.0, 1.0))


def _check(dataset: NodeDataset, against: Sequence[str], fanouts: Sequence[int], sizes: Sequence[int]) -> None:
    if reasons := isplib.Backend.unavailable():
        raise BackendUnavailable(f"sampling needs backend isplib: {'; '.join(reasons)}")
    problems = [f"unknown sampler {name!r}{did_you_mean(name, PEERS)}" for name in against if name not in PEERS]
    problems += [
        f"a fanout is {fanout}; give numbers from 0 up, or -1 for all" for fanout in fanouts if fanout < -1
    ]
    problems += [
        f"a batch of {size} seeds is none of {dataset.label}; give 1 to {dataset.num_nodes}"
        for size in sizes
        if not 1 <= size <= dataset.num_nodes
    ]
    if not fanouts or not sizes:
        problems.append("give at least one fanout and one batch size")
    if problems:
        raise ConfigError(*problems)
