"""The cells of `gnnbench suite gpu`, the most important first."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from gnnbench.benchmarks import workloads
from gnnbench.benchmarks.ops import OPS
from gnnbench.benchmarks.workloads import GRAPHS, Scale
from gnnbench.errors import ConfigError, did_you_mean
from gnnbench.ops._workload import Direction

OURS = "cuda"
ATTENTION = ("gatv2_attention", "gat_attention", "dot_attention")
MODELS = ("gatv2", "gat", "transformer", "gcn", "sage", "gin", "agnn")
WITH_HEADS = ("gatv2", "gat", "transformer")
TRAINING = "train-"  # before a model's name
REFERENCES = ("pyg", "pyg-sparse")
RECORDED = ":cuda_graph=true"  # after the name of whose training steps are replayed
RECORDED_ON = ("cora", "ogbn-arxiv", workloads.BATCH)  # PyG's; elsewhere starting kernels is no part of an epoch
COMPILED_ON = ("ogbn-arxiv", "cora", workloads.BATCH, "reddit")  # compiling takes longer than all else together
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")
AGGREGATIONS, OVER_EDGES = ("spmm", "spmm_max"), ("sddmm", "edge_softmax")
NAMES = (*AGGREGATIONS, *OVER_EDGES, *ATTENTION, *(TRAINING + model for model in MODELS))


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
