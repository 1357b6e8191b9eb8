"""Batches of graphs beside PyG's DataLoader: the same to the last bit, then timed per graph in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader

from gnnbench import backends
from gnnbench.backends.base import KernelBackend
from gnnbench.benchmarks import contest
from gnnbench.benchmarks.contest import Contestant
from gnnbench.benchmarks.records import BatchBench, BatchRow
from gnnbench.config import BackendConfig
from gnnbench.datasets import AnyDataset, GraphsDataset
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.graph import Graph
from gnnbench.graph.union import Union
from gnnbench.measure import clock
from gnnbench.measure.rounds import Budget, timed

LOADERS = ("pyg", "pyg-list")
CHECKED = 3  # batches of every size before they are timed, and one after
Next = Callable[[], Any]  # the next batch of an endless stream


class CollateBench(BatchBench):
    """Everything known about one benchmark of collation."""

    op: Literal["collate"] = "collate"
    graphs: int
    dtype: str = Field(description="of features")
    rows: list[BatchRow] = Field(
        description="of backends, and of PyG's DataLoader: pyg of an InMemoryDataset, pyg-list of a list"
    )


def bench(
    dataset: AnyDataset,
    *,
    out: Path,
    backend: str = "isplib",
    against: Sequence[str] = ("pyg",),
    sizes: Sequence[int] = contest.SIZES,
    memory_limit: str = "90%",
    budget: Budget = Budget(),
    on_event: Callable[[str], None] = lambda _: None,
) -> CollateBench:
    """Check and time batches of all graphs in shuffled order; `out/bench.json` is written after every batch size.

    A batch of ours has a Graph in rows with its transpose, x, ptr and y, put together by one thread; one of PyG
    has edge_index, x, ptr, batch and y. Edge features are left out on both sides. PyG's datasets have handed out
    every graph before, and kept it.

    Args:
        against: of `LOADERS` and backends with kernels for the CPU.
        on_event: hears what is about to start.

    Raises:
        ConfigError: a single graph, an unknown name, or no positive batch size.
        GnnbenchError: a backend cannot run, memory is exceeded, or `out` cannot be written.
    """
    names = list(dict.fromkeys((backend, *against)))
    _check(backend, names, sizes)
    if not isinstance(dataset, GraphsDataset):
        raise ConfigError(f"{dataset.name} is a single graph; give a dataset of many, such as --graph ogbg-molhiv")
    record = CollateBench(
        **contest.facts(dataset),
        features=dataset.x.size(1),
        backend=backend,
        graphs=dataset.num_graphs,
        dtype=str(dataset.x.dtype).removeprefix("torch."),
        peers=list(against),
        rows=[BatchRow(batch_size=size, implementation=name) for size in sizes for name in names],
    )
    steps = _steps(record, dataset, names, budget)
    return contest.measured(record, steps, out / "bench.json", memory_limit=memory_limit, on_event=on_event)


class Ours:
    """Batches by the kernels of a backend."""

    def __init__(self, name: str, dataset: GraphsDataset) -> None:
        backend = backends.load(BackendConfig(name=name))
        assert isinstance(backend, KernelBackend)
        layout = backend.make_kernels()
        self.dataset = dataset
        self.union = Union.of(dataset.graph_ptr, dataset.edge_ptr, dataset.edge_index, layout)

    def batch(self, ids: Tensor) -> tuple[Graph, Tensor, Tensor, Tensor]:
        """The graph of a batch with what training needs of it: x, ptr and y."""
        y = self.dataset.y
        targets = self.union.gather(ids, y) if self.dataset.per_node else y[ids]
        graph, x, ptr, _ = self.union.collate(ids, self.dataset.x)
        return graph, x, ptr, targets

    def stream(self, batches: Sequence[Tensor]) -> Next:
        """Draw batches of the same graphs again and again."""
        ids = cycle(batches)
        return lambda: self.batch(next(ids))

    def differs(self, ids: Tensor, truth: Batch) -> str:
        """Where a batch is not that of PyG, to the last bit; empty if it is."""
        graph, x, ptr, y = self.batch(ids)
        rows = Graph.from_edge_index(truth.edge_index, truth.num_nodes)
        pairs = {
            "x": (x, truth.x),
            "edge_index": (self.union.edge_index(ids), truth.edge_index),
            "ptr": (ptr, truth.ptr),
            "y": (y, truth.y),
            "rowptr": (graph.rowptr, rows.rowptr),
            "col": (graph.col, rows.col),
            "edge_id": (graph.edge_id, rows.edge_id),
            "the transpose's rowptr": (graph.transpose.rowptr, rows.transpose.rowptr),
            "the transpose's col": (graph.transpose.col, rows.transpose.col),
        }
        wrong = [name for name, pair in pairs.items() if not _same(*pair)]
        return f"{', '.join(wrong)} of a batch differ from PyG's" if wrong else ""


class OfPyg:
    """Batches by PyG's DataLoader."""

    def __init__(self, dataset: GraphsDataset) -> None:
        stored = _Stored(dataset)
        self.graphs: list[Data] = list(stored)
        self._sources = {"pyg": stored, "pyg-list": self.graphs}

    def batch(self, ids: Tensor) -> Batch:
        return Batch.from_data_list([self.graphs[graph] for graph in ids.tolist()])

    def stream(self, name: str, batches: Sequence[Tensor]) -> Next:
        loader = DataLoader(self._sources[name], batch_sampler=[ids.tolist() for ids in batches])
        return partial(next, chain.from_iterable(repeat(loader)))


class _Stored(InMemoryDataset):
    """The graphs as PyG's own datasets keep them."""

    def __init__(self, dataset: GraphsDataset) -> None:
        super().__init__()
        of_y = dataset.graph_ptr if dataset.per_node else torch.arange(dataset.num_graphs + 1)
        self.data = Data(x=dataset.x, edge_index=dataset.edge_index.long(), y=dataset.y)
        self.slices = {"x": dataset.graph_ptr, "edge_index": dataset.edge_ptr, "y": of_y}


def _steps(record: CollateBench, dataset: GraphsDataset, names: Sequence[str], budget: Budget) -> Iterator[str]:
    """Check and time batches of every size."""
    yield "sorting the edges"
    of_pyg = OfPyg(dataset)
    ours = {name: Ours(name, dataset) for name in names if name not in LOADERS}
    order = torch.randperm(dataset.num_graphs, generator=torch.Generator().manual_seed(0))
    for row in record.rows:
        if row.batch_size > dataset.num_graphs:
            row.status, row.reason = "unsupported", f"the dataset has {dataset.num_graphs} graphs only"

    def contestant(row: BatchRow) -> Contestant:
        batches = order[: dataset.num_graphs // row.batch_size * row.batch_size].split(row.batch_size)
        if row.implementation in LOADERS:
            return Contestant(partial(timed, of_pyg.stream(row.implementation, batches), clock.cpu))
        loader = ours[row.implementation]

        def wrong(row: BatchRow) -> str:
            checked = batches[-1:] if row.time_s else batches[:CHECKED]
            return next(filter(None, (loader.differs(ids, of_pyg.batch(ids)) for ids in checked)), "")

        return Contestant(partial(timed, loader.stream(batches), clock.cpu), wrong)

    yield from contest.by_size(record, contestant, budget)


def _same(tensor: Tensor | None, truth: Tensor) -> bool:
    """To the last bit, for labels that are missing are NaN."""
    if tensor is None or tensor.dtype != truth.dtype or tensor.shape != truth.shape:
        return False
    return torch.equal(tensor.reshape(-1).view(torch.uint8), truth.reshape(-1).view(torch.uint8))


def _check(backend: str, names: Sequence[str], sizes: Sequence[int]) -> None:
    kinds = [name for name, kind in backends.with_kernels().items() if kind.kernels.device_type == "cpu"]
    allowed = [*LOADERS, *kinds]
    problems = [f"unknown loader {name!r}{did_you_mean(name, allowed)}" for name in names if name not in allowed]
    if backend in LOADERS:
        problems.append(f"backend {backend!r} has no kernels; allowed: {', '.join(kinds)}")
    problems += [f"a batch of {size} graphs is none; give 1 or more" for size in sizes if size < 1]
    if problems or not sizes:
        raise ConfigError(*(problems or ["give at least one batch size"]))
