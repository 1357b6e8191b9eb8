"""Workloads of `gnnbench suite gpu`: graphs in the shape of real ones, and its cells, the most important first."""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from gnnbench import datasets
from gnnbench.benchmarks.ops import OPS
from gnnbench.datasets import NodeDataset, Roots, synthetic
from gnnbench.errors import ConfigError, DatasetError, did_you_mean
from gnnbench.ops._workload import Direction

Scale = Literal["full", "tiny"]
BATCH = "batch"
GRAPHS = ("cora", "ogbn-arxiv", BATCH, "reddit", "ogbn-proteins", "ogbn-products")
TINY = {"nodes": 60, "edges": 400, "features": 128, "classes": 4}
# Graphs of a batch: how many, and the fewest and most nodes of one.
MEMBERS: dict[Scale, tuple[int, int, int]] = {"full": (512, 30, 150), "tiny": (3, 4, 8)}
IN_DEGREE, FEATURES, CLASSES = 6, 64, 10
OURS = "cuda"
ATTENTION = ("gatv2_attention", "gat_attention", "dot_attention")
MODELS = ("gatv2", "gat", "transformer", "gcn", "sage", "gin", "agnn")
WITH_HEADS = ("gatv2", "gat", "transformer")
TRAINING = "train-"  # before a model's name
REFERENCES = ("pyg", "pyg-sparse")
RECORDED = ":cuda_graph=true"  # after the name of whose training steps are replayed
RECORDED_ON = ("cora", "ogbn-arxiv", BATCH)  # PyG's; elsewhere starting kernels is no part of an epoch
COMPILED_ON = ("ogbn-arxiv", "cora", BATCH, "reddit")  # compiling takes longer than all else together
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
AGGREGATIONS, OVER_EDGES = ("spmm", "spmm_max"), ("sddmm", "edge_softmax")
NAMES = (*AGGREGATIONS, *OVER_EDGES, *ATTENTION, *(TRAINING + model for model in MODELS))


def load(name: str, scale: Scale, roots: Roots) -> NodeDataset:
    """One of `GRAPHS`.

    Raises:
        DatasetError: too large for the machine.
    """
    return (
        _batch(*MEMBERS[scale]) if name == BATCH else datasets.single(datasets.load(_config(name, scale), roots))
    )


def label(name: str) -> str:
    """Its name in records, so that nobody takes it for the real graph."""
    return f"synthetic {name}" if name != BATCH else "batch of random graphs"


def prepare(names: Sequence[str], roots: Roots) -> None:
    """Generate graphs of full size that are not in the cache, side by side in a process each."""
    specs = [name for name in names if name != BATCH]
    if specs:
        with ProcessPoolExecutor(len(specs), multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_generate, specs, [roots] * len(specs)))


def moved(dataset: NodeDataset, device: torch.device) -> NodeDataset:
    """Move a dataset's tensors to `device`."""
    tensors: dict[str, Any] = {
        name: value.to(device) for name, value in vars(dataset).items() if isinstance(value, Tensor)
    }
    return dataset.changed(**tensors)


def _generate(name: str, roots: Roots) -> None:
    with suppress(DatasetError):  # which is met again when the graph is needed
        datasets.load(_config(name, "full"), roots)


def _config(name: str, scale: Scale) -> synthetic.Config:
    return synthetic.Config(preset=name, **(TINY if scale == "tiny" else {}))


def _batch(count: int, fewest: int, most: int) -> NodeDataset:
    """`count` random graphs without edges between them, as PyG's loader puts them together."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(fewest, most + 1, (count,), generator=generator)
    nodes = int(sizes.sum())
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    size = sizes.repeat_interleave(sizes)
    dst = torch.arange(nodes).repeat_interleave(IN_DEGREE)
    apart = 1 + (torch.rand(dst.numel(), generator=generator, dtype=torch.float64) * (size[dst] - 1)).long()
    src = first[dst] + (dst - first[dst] + apart) % size[dst]  # never dst itself
    labels = torch.randint(CLASSES, (nodes,), generator=generator)
    part = torch.arange(nodes) % 4
    return NodeDataset(
        name=f"batch of {count} random graphs",
        edge_index=torch.stack([src, dst]),
        x=torch.randn(nodes, FEATURES, generator=generator),
        y=labels,
        train_mask=part < 2,
        val_mask=part == 2,
        test_mask=part == 3,
        num_classes=CLASSES,
        made_up=["graph", "features", "labels", "split"],
    )


class Cell(NamedTuple):
    """An op on a graph, or the training of a model, and whom it meets."""

    graph: str
    op: str
    width: int
    heads: int
    dtype: str
    against: tuple[str, ...]

    @property
    def directions(self) -> tuple[str, ...]:
        return ("epoch",) if self.op.startswith(TRAINING) else DIRECTIONS

    @property
    def ours(self) -> tuple[str, ...]:
        return (OURS, OURS + RECORDED) if self.op.startswith(TRAINING) else (OURS,)


def cells(graphs: Collection[str] = (), ops: Collection[str] = (), scale: Scale = "full") -> list[Cell]:
    """The cells to run, the most important first: every op, all models, bfloat16, compiled PyG, other sizes.

    Args:
        graphs, ops: only these; all if empty.

    Raises:
        ConfigError: an unknown name.
    """
    problems = [f"unknown graph {name!r}{did_you_mean(name, GRAPHS)}" for name in graphs if name not in GRAPHS]
    problems += [f"unknown op {name!r}{did_you_mean(name, NAMES)}" for name in ops if name not in NAMES]
    if problems:
        raise ConfigError(*problems)
    result = [cell for cell in _grid() if cell.graph in (graphs or GRAPHS) and cell.op in (ops or NAMES)]
    return list(dict.fromkeys(_shrunk(cell) for cell in result)) if scale == "tiny" else result


def _grid() -> Iterator[Cell]:
    for graph in GRAPHS:
        yield from (_cell(graph, op, 128, 8) for op in (*ATTENTION, *AGGREGATIONS))
    for graph in GRAPHS:
        for model in MODELS:
            heads = 8 if model in WITH_HEADS else 1
            recorded = [name + RECORDED for name in REFERENCES if graph in RECORDED_ON]
            yield Cell(graph, TRAINING + model, 128, heads, "float32", (*REFERENCES, *recorded))
    for graph in GRAPHS:
        yield from (_cell(graph, op, 128, 8, "bfloat16") for op in (*ATTENTION, "spmm"))
    for graph in GRAPHS:
        more = ("pyg-compile",) if graph in COMPILED_ON else ()
        yield from (_cell(graph, op, 64, 8, more=more) for op in (*ATTENTION, *AGGREGATIONS))
    for width, heads in ((256, 4), (32, 1), (512, 8)):
        for graph in GRAPHS:
            yield from (_cell(graph, op, width, heads) for op in (*ATTENTION, *AGGREGATIONS))
    for heads in (8, 1):
        for graph in GRAPHS:
            yield from (_cell(graph, op, heads * 16, heads) for op in OVER_EDGES)


def _cell(graph: str, op: str, width: int, heads: int, dtype: str = "float32", more: tuple[str, ...] = ()) -> Cell:
    kinds = OPS[op]
    heads = heads if kinds.has_heads else 1
    against = ("pyg",) if op in ATTENTION else ("torch-scatter",)
    sparse = ("torch-csr", "cusparse") if op == "spmm" else ()
    return Cell(graph, op, width if kinds.has_width else heads, heads, dtype, (*against, *sparse, *more))


def _shrunk(cell: Cell) -> Cell:
    """Shrink a cell for the interpreter: two heads at most of four channels, and nothing that compiles."""
    heads = min(cell.heads, 2)
    against = tuple(name for name in cell.against if name != "pyg-compile")
    width = 4 * heads if cell.op.startswith(TRAINING) or OPS[cell.op].has_width else heads
    return cell._replace(width=width, heads=heads, against=against)
