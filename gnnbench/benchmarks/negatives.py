"""Random pairs that are no edges beside those of PyG and DGL: checked against the graph, then timed in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch_geometric.utils import negative_sampling

from gnnbench.backends import isplib
from gnnbench.benchmarks import contest
from gnnbench.benchmarks.contest import CPU, Contestant
from gnnbench.benchmarks.dgl import Dgl
from gnnbench.benchmarks.records import BatchBench, BatchRow
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable, ConfigError, did_you_mean
from gnnbench.measure import clock
from gnnbench.measure.rounds import Budget, timed
from gnnbench.ops import negatives
from gnnbench.ops.kernels import Kernels

OURS = ("isplib", "isplib-corrupt", "reference")
PEERS = ("pyg", "pyg-dense", "dgl")
SIZES = (65536, 1 << 20)


class NegativesBench(BatchBench):
    """Everything known about one benchmark of negatives."""

    op: Literal["negatives"] = "negatives"
    excluded: int = Field(description="pairs that may not be drawn: distinct edges and self-loops")
    threads: int
    rows: list[BatchRow] = Field(
        description="of isplib, which draws both ends, isplib-corrupt only the destination; reference, in plain "
        "torch; pyg and pyg-dense, methods of PyG's negative_sampling; dgl, global_uniform_negative_sampling"
    )


def bench(
    dataset: NodeDataset,
    *,
    out: Path,
    against: Sequence[str] = PEERS,
    sizes: Sequence[int] = SIZES,
    dgl_python: str = "",
    memory_limit: str = "90%",
    budget: Budget = Budget(),
    on_event: Callable[[str], None] = lambda _: None,
) -> NegativesBench:
    """Check and time batches of pairs without edges and self-loops; `out/bench.json` is written after every size.

    Ours has sorted the graph before, as it is for training; PyG is given its `edge_index` anew for every batch.

    Args:
        against: of `PEERS`.
        on_event: hears what is about to start.

    Raises:
        BackendUnavailable: our kernels are not built.
        ConfigError: an unknown peer, or no positive size.
        GnnbenchError: every pair is an edge, memory is exceeded, or `out` cannot be written.
    """
    if reasons := isplib.Backend.unavailable():
        raise BackendUnavailable(f"drawing pairs needs backend isplib: {'; '.join(reasons)}")
    problems = [f"unknown peer {name!r}{did_you_mean(name, PEERS)}" for name in against if name not in PEERS]
    problems += [f"a batch of {size} pairs is none; give 1 or more" for size in sizes if size < 1]
    if problems or not sizes:
        raise ConfigError(*(problems or ["give at least one batch size"]))
    edges = dataset.keys(dataset.edge_index).unique()
    record = NegativesBench(
        **contest.facts(dataset),
        features=dataset.x.size(1),
        excluded=dataset.num_nodes + int((edges % (dataset.num_nodes + 1) != 0).sum()),
        threads=torch.get_num_threads(),
        peers=list(against),
        rows=[BatchRow(batch_size=size, implementation=name) for size in sizes for name in (*OURS, *against)],
    )
    steps = _steps(record, dataset, edges, dgl_python, budget)
    return contest.measured(record, steps, out / "bench.json", memory_limit=memory_limit, on_event=on_event)


def _steps(
    record: NegativesBench, dataset: NodeDataset, edges: Tensor, dgl_python: str, budget: Budget
) -> Iterator[str]:
    """Check and time batches of every size."""
    yield "sorting the edges"
    fast, plain = (dataset.graph(CPU, kernels) for kernels in (isplib.IsplibKernels(), Kernels()))
    dgl = contest.made({"dgl": lambda: Dgl(dgl_python, fast)} if "dgl" in record.peers else {}, record.rows)

    def drawn(name: str, size: int) -> Callable[[], Tensor]:
        """Draw pairs, other ones at every call."""
        seeds = itertools.count()
        of_pyg = {"pyg": "sparse", "pyg-dense": "dense"}
        if name in of_pyg:
            return partial(negative_sampling, dataset.edge_index, dataset.num_nodes, size, of_pyg[name])
        if name == "isplib-corrupt":
            sources = dataset.edge_index[0].repeat(-(-size // dataset.num_edges))[:size]
            return lambda: negatives.corrupt(fast, sources, 1, next(seeds))
        graph = fast if name == "isplib" else plain
        return lambda: negatives.uniform(graph, size, next(seeds))

    def wrong(draw: Callable[[], Tensor], row: BatchRow) -> str:
        """How pairs are not as asked for; empty if they are."""
        pairs = draw()
        keys = dataset.keys(pairs)
        if bool((keys % (dataset.num_nodes + 1) == 0).any()):
            return "a self-loop was drawn"
        if bool(torch.isin(keys, edges).any()):
            return "an edge was drawn"
        return f"only {pairs.size(1)} pairs were drawn" if pairs.size(1) < row.batch_size else ""

    def contestant(row: BatchRow) -> Contestant:
        if row.implementation in dgl:
            return Contestant(dgl["dgl"].time, partial(wrong, partial(_by_dgl, dgl["dgl"], row.batch_size)))
        call = drawn(row.implementation, row.batch_size)
        return Contestant(partial(timed, call, clock.cpu), partial(wrong, call))

    yield from contest.by_size(record, contestant, budget)


def _by_dgl(dgl: Dgl, size: int) -> Tensor:
    dgl.ask("negatives", count=size)
    return dgl.load("output_0").long()
