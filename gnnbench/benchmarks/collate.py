"""Batches of graphs beside PyG's DataLoader: the same to the last bit, then timed per graph in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import chain, cycle, repeat
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader

from gnnbench import backends
from gnnbench.backends.base import KernelBackend
from gnnbench.benchmarks import contest
from gnnbench.benchmarks.records import BatchBench, BatchRow
from gnnbench.config import BackendConfig
from gnnbench.datasets import AnyDataset, GraphsDataset
from gnnbench.errors import ConfigError
from gnnbench.graph import Graph
from gnnbench.graph.union import Union
from gnnbench.measure import clock
from gnnbench.measure.rounds import timed

LOADERS = ("pyg", "pyg-list")
CHECKED = 3  # batches of every size before they are timed, and one after


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
    backend: str = "isplib",
    against: Sequence[str] = ("pyg",),
    sizes: Sequence[int] = contest.SIZES,
    **how: Any,
) -> CollateBench:
    """Check and time batches of all graphs in shuffled order.

    A batch of ours has a Graph in rows with its transpose, x, ptr and y, put together by one thread; one of PyG
    has edge_index, x, ptr, batch and y. Edge features are left out on both sides. PyG's datasets have handed out
    every graph before, and kept it.

    Args:
        against: of `LOADERS` and backends with kernels for the CPU.
        how: `out`, `memory_limit` and `on_event`, as of `contest.batches`.

    Raises:
        ConfigError: a single graph, an unknown name, or no positive batch size.
        GnnbenchError: as `contest.batches`.
    """
    names = list(dict.fromkeys((backend, *against)))
    kinds = [name for name, kind in backends.with_kernels().items() if kind.kernels.device_type == "cpu"]
    problems = contest.unknown("loader", names, [*LOADERS, *kinds])
    if backend in LOADERS:
        problems.append(f"backend {backend!r} has no kernels; allowed: {', '.join(kinds)}")
    contest.check(problems, sizes, "graphs")
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
    for row in record.rows:
        if row.batch_size > dataset.num_graphs:
            row.status, row.reason = "unsupported", f"the dataset has {dataset.num_graphs} graphs only"
    of_pyg = cache(partial(OfPyg, dataset))
    makers: dict[str, Callable[[], Any]] = {
        name: of_pyg if name in LOADERS else partial(Ours, name, dataset, of_pyg) for name in names
    }
    return contest.batches(record, makers, **how)


class OfPyg:
    """Batches by PyG's DataLoader."""

    def __init__(self, dataset: GraphsDataset) -> None:
        stored = _Stored(dataset)
        self.graphs: list[Data] = list(stored)
        self._sources = {"pyg": stored, "pyg-list": self.graphs}
        self._order = torch.randperm(len(stored), generator=torch.Generator().manual_seed(0))

    def chosen(self, size: int) -> tuple[Tensor, ...]:
        """The graphs of all batches of a size."""
        return self._order[: len(self._order) // size * size].split(size)

    def contestant(self, row: BatchRow) -> contest.Contestant:
        batches = [ids.tolist() for ids in self.chosen(row.batch_size)]
        loader = DataLoader(self._sources[row.implementation], batch_sampler=batches)
        batch = partial(next, chain.from_iterable(repeat(loader)))
        return contest.Contestant(partial(timed, batch, clock.cpu), items=row.batch_size)


class _Stored(InMemoryDataset):
    """The graphs as PyG's own datasets keep them."""

    def __init__(self, dataset: GraphsDataset) -> None:
        super().__init__()
        of_y = dataset.graph_ptr if dataset.per_node else torch.arange(dataset.num_graphs + 1)
        self.data = Data(x=dataset.x, edge_index=dataset.edge_index.long(), y=dataset.y)
        self.slices = {"x": dataset.graph_ptr, "edge_index": dataset.edge_ptr, "y": of_y}


class Ours:
    """Batches by the kernels of a backend, held against those of PyG."""

    def __init__(self, name: str, dataset: GraphsDataset, of_pyg: Callable[[], OfPyg]) -> None:
        backend = backends.load(BackendConfig(name=name))
        assert isinstance(backend, KernelBackend)
        self.dataset, self.of_pyg = dataset, of_pyg()
        self.union = Union(dataset.graph_ptr, dataset.edge_ptr, dataset.edge_index, backend.make_kernels())

    def batch(self, ids: Tensor) -> tuple[Graph, Tensor, Tensor, Tensor]:
        """The graph of a batch with what training needs of it: x, ptr and y."""
        y = self.dataset.y
        targets = self.union.gather(ids, y) if self.dataset.per_node else y[ids]
        graph, x, ptr, _ = self.union.collate(ids, self.dataset.x)
        return graph, x, ptr, targets

    def contestant(self, row: BatchRow) -> contest.Contestant:
        batches = self.of_pyg.chosen(row.batch_size)
        ids = cycle(batches)

        def wrong(row: BatchRow) -> str:
            checked = batches[-1:] if row.time_s else batches[:CHECKED]
            return next(filter(None, map(self.differs, checked)), "")

        return contest.Contestant(
            partial(timed, lambda: self.batch(next(ids)), clock.cpu), wrong, items=row.batch_size
        )

    def differs(self, ids: Tensor) -> str:
        """Where a batch is not that of PyG, to the last bit; empty if it is."""
        graph, x, ptr, y = self.batch(ids)
        truth = Batch.from_data_list([self.of_pyg.graphs[graph] for graph in ids.tolist()])
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


def _same(tensor: Tensor | None, truth: Tensor) -> bool:
    """To the last bit, for labels that are missing are NaN."""
    if tensor is None or tensor.dtype != truth.dtype or tensor.shape != truth.shape:
        return False
    return torch.equal(tensor.reshape(-1).view(torch.uint8), truth.reshape(-1).view(torch.uint8))
