"""`gnnbench suite gpu`: what is run on a GPU, the most important first, as far as its time reaches."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from gnnbench import backends, config, datasets
from gnnbench.backends import cuda
from gnnbench.backends.base import Backend
from gnnbench.backends.cuda import _triton
from gnnbench.benchmarks import OpBenchmark, peers, size_of
from gnnbench.benchmarks.contest import Contestant, fail, measured, race, unknown
from gnnbench.benchmarks.ops import DIRECTIONS, OPS, Case, copying
from gnnbench.benchmarks.peers import taken
from gnnbench.benchmarks.records import Row, Suite
from gnnbench.comparison.parity import REPLAYED, parting, steps
from gnnbench.comparison.parity.judge import Snapshot, judge, judge_trained
from gnnbench.datasets import NodeDataset, Roots, synthetic
from gnnbench.errors import BackendUnavailable, ConfigError, DatasetError
from gnnbench.graph import Graph
from gnnbench.measure import clock, code, memory
from gnnbench.measure.memory import Meter
from gnnbench.measure.rounds import Budget, timed
from gnnbench.results import files
from gnnbench.training import loop, setup

Scale = Literal["full", "tiny"]
FILE = "suite.json"
CAVEAT = "interpreted on the CPU: the times mean nothing"
ROUNDS: dict[Scale, Budget] = {
    "full": Budget(rounds=3, least_s=0.05, most_s=1.0),
    "tiny": Budget(rounds=1, least_s=0.0),
}
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
    if problems := unknown("graph", graphs, GRAPHS) + unknown("op", ops, NAMES):
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


class Training:
    """One model on one backend, by its name with options, on a dataset whose tensors are where it is to run.

    Raises:
        BackendUnavailable: this machine cannot run the backend.
        UnsupportedOp: the backend cannot run the model.
    """

    def __init__(
        self, model: str, hidden: int, heads: int, backend: str, dataset: NodeDataset, cache: Path
    ) -> None:
        section = {"name": model, "hidden": hidden} | ({"heads": heads} if heads > 1 else {})
        chosen, own = config.backend_sections(backend)
        placeholder = {"source": "synthetic", "preset": "cora"}
        raw = {"dataset": placeholder, "model": section, **own, "backend": chosen}
        self.config = config.validate(raw, "the suite")
        self.dataset, self.cache, self.now = dataset, cache, clock.instants(dataset.x.device)
        self._backend = self._placed()
        built = setup.build(self.config, setup.ModelDims.of(dataset))
        ready = setup.prepare(self.config, built, self._backend, dataset, cache)
        self._trainer = loop.trainer(built, ready.batching, self.config.train)

    def computed(self, as_reference: bool) -> Snapshot:
        """The tensors that the parity gate compares: logits and gradients of steps without dropout."""
        return steps.computed(self.config, self._placed(), self.dataset, as_reference, self.cache)

    def wrong(self, expected: Snapshot, reference: str) -> str:
        """Where the trained model differs, empty if it does not; it cannot be trained any more."""
        dims = setup.ModelDims.of(self.dataset)
        result = steps.trained(self.config, self._backend, self._trainer.model, self._trainer.batching, dims)
        return judge_trained(result, expected, reference).reason

    def begin(self, epochs: int) -> list[float]:
        """The losses of the first epochs."""
        torch.manual_seed(self.config.train.seed)
        return [self._trainer.check(self._trainer.train()) for _ in range(epochs)]

    def time(self, samples: int, calls: int) -> list[float]:
        """Mean seconds of `calls` epochs, `samples` times."""
        return timed(self._trainer.train, self.now, samples, calls)

    def memory(self, meter: Meter) -> tuple[int, int]:
        """Bytes that an epoch takes on top of what is there, and of the whole device."""
        increase, peak = taken(self._trainer.train, meter)
        return increase + self._trainer.held_bytes, peak + self._trainer.held_bytes

    def _placed(self) -> Backend:
        result = backends.load(self.config.backend)
        result.home = self.dataset.x.device
        return result


def run(
    todo: Sequence[Cell],
    *,
    scale: Scale,
    out: Path,
    roots: Roots,
    budget_s: float,
    on_event: Callable[[Suite, str], None] = lambda *_: None,
) -> Suite:
    """Check and time `todo`; what `out/suite.json` has already is not run again.

    The file is written after every cell. What fails becomes a row with its status and reason; so does what is
    left when the budget is spent, which another call goes on with. A stop keeps what was measured.

    Raises:
        BackendUnavailable: there is neither a GPU nor an interpreter.
        ConfigError: full size without a GPU, or `out` holds a suite of another device, scale or code.
        GnnbenchError: `out` cannot be written.
    """
    if reasons := cuda.Backend.unavailable():
        raise BackendUnavailable("; ".join(reasons))
    if _triton.INTERPRETED and scale == "full":
        raise ConfigError("--scale full needs a GPU; in Triton's interpreter it would take days, so give tiny")
    device = torch.device(cuda.CudaKernels.device_type)
    record = _begun(out / FILE, scale, device)
    hear = partial(on_event, record)
    work = _Work(record, device, scale, roots, OpBenchmark(memory.meter(device), hear, ROUNDS[scale]))
    return measured(record, work.steps(todo, budget_s), out / FILE, on_event=hear, memory_limit="")


def _begun(path: Path, scale: Scale, device: torch.device) -> Suite:
    """The record in a file, or a new one."""
    model = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    if not path.exists():
        return Suite(scale=scale, device=model, caveat="" if device.type == "cuda" else CAVEAT)
    suite = files.load(Suite, path)
    if (suite.scale, suite.device) != (scale, model):
        other = f"scale {suite.scale} on {suite.device}, not of {scale} on {model}"
    elif suite.code != code.digest():
        other = "other code than runs now, and their times must not be mixed"
    else:
        return suite
    raise ConfigError(f"{path}: holds a suite of {other}; choose another --out")


@dataclass
class _Work:
    """The cells of a suite and what they share; everything they learn goes into `record`."""

    record: Suite
    device: torch.device
    scale: Scale
    roots: Roots
    benchmark: OpBenchmark

    def __post_init__(self) -> None:
        self.dataset, self.graph = cache(self._dataset), cache(self._graph)

    def steps(self, todo: Sequence[Cell], budget_s: float) -> Iterator[str]:
        """Check and time one cell after the other, as far as the budget reaches."""
        begun, start = self.record.spent_s, clock.cpu()
        known = {_key(row): row for row in self.record.rows}
        rows = {cell: [known.setdefault(_key(row), row) for row in self._rows(cell)] for cell in todo}
        self.record.rows = list(known.values())
        yield "measuring what this device can do at best"
        self.record.ceilings = self.benchmark.ceilings = copying(self.device)
        missing = [cell for cell in todo if any(row.status in ("pending", "not run") for row in rows[cell])]
        if self.scale == "full":
            yield "generating graphs"
            prepare(list(dict.fromkeys(cell.graph for cell in missing)), self.roots)
        for cell in missing:
            spent = clock.cpu() - start >= budget_s
            for row in rows[cell]:
                row.status = "not run" if spent else "pending"
                row.reason = f"the budget of {budget_s:g} s was spent" if spent else ""
            if not spent:
                yield f"{cell.op} on {cell.graph}: loading"
                self._run(cell, rows[cell])
            self.record.spent_s = begun + clock.cpu() - start

    def _rows(self, cell: Cell) -> Iterator[Row]:
        known: dict[str, Any] = {name: getattr(cell, name) for name in ("op", "width", "heads", "dtype")}
        known |= {"graph": label(cell.graph), "caveat": self.record.caveat}
        for direction in cell.directions:
            for name in (*cell.ours, *cell.against):
                yield Row(**known, direction=direction, implementation=name)

    def _run(self, cell: Cell, rows: list[Row]) -> None:
        """Check and time all implementations of one cell."""
        try:
            (self._epochs if cell.op.startswith(TRAINING) else self._op)(cell, rows)
        except Exception as error:  # of the graph itself, or the truth
            for row in rows:
                if row.status == "pending":
                    fail(row, error)
        finally:
            self.benchmark.meter.resting()  # gives back what failures have left

    def _op(self, cell: Cell, rows: list[Row]) -> None:
        case = Case(cell.op, self.graph(cell.graph), cell.width, cell.heads, dtype=getattr(torch, cell.dtype))
        makers = {name: partial(peers.local, name, case) for name in (OURS, *cell.against)}
        self.benchmark.run(case, makers, rows, cell.against)

    def _epochs(self, cell: Cell, of_cell: list[Row]) -> None:
        dataset, model = self.dataset(cell.graph), cell.op.removeprefix(TRAINING)
        rows = {row.implementation: row for row in of_cell}
        trainings: dict[str, Training] = {}
        losses: dict[str, list[float]] = {}
        computed: dict[str, Snapshot] = {}  # by the first that could run, which is the reference

        def wrong(name: str, row: Row) -> str:
            if row.time_s:
                [(reference, expected)] = computed.items()
                reason = "" if name == reference else trainings[name].wrong(expected, reference)
                return reason and f"against {reference}: {reason}"
            training = Training(model, cell.width, cell.heads, name, dataset, self.roots.cache)
            snapshot = training.computed(as_reference=not computed)
            eager = name.removesuffix(RECORDED)
            losses[name] = training.begin(REPLAYED if eager + RECORDED in rows else 1)
            trainings[name] = training
            computed.update({} if computed else {name: snapshot})
            [(reference, expected)] = computed.items()
            if reference.startswith(OURS):
                row.reason = "not checked: PyG did not run"
            reason = ""
            if name != reference:
                judged = judge(snapshot, expected, reference)
                row.error = judged.rel_rms if judged.ok else None
                reason = "" if judged.ok else f"against {reference}: {judged.reason}"
            return parting(losses[name], losses.get(eager, ())) or reason

        def contestant(name: str) -> Contestant:
            return Contestant(
                lambda samples, calls: trainings[name].time(samples, calls),
                partial(wrong, name),
                lambda: trainings[name].memory(self.benchmark.meter),
            )

        contestants = {name: contestant(name) for name in (*cell.against, *cell.ours)}
        how, where = self.benchmark, f"{cell.op} on {cell.graph}"
        race(contestants, rows, cell.against, how.say, where, how.budget)

    def _dataset(self, name: str) -> NodeDataset:
        dataset = load(name, self.scale, self.roots)
        tensors = {key: each for key, each in vars(dataset).items() if isinstance(each, Tensor)}
        return dataset.changed(**{key: each.to(self.device) for key, each in tensors.items()})

    def _graph(self, name: str) -> Graph:
        dataset = self.dataset(name)
        graph = Graph.from_edge_index(dataset.edge_index, dataset.num_nodes, layout=cuda.CudaKernels())
        self.record.graphs[label(name)] = size_of(graph)
        return graph


def _key(row: Row) -> tuple[Any, ...]:
    return row.graph, row.op, row.width, row.heads, row.dtype, row.direction, row.implementation


def load(name: str, scale: Scale, roots: Roots) -> NodeDataset:
    """One of `GRAPHS`.

    Raises:
        DatasetError: too large for the machine.
    """
    return (
        _batch(*MEMBERS[scale]) if name == BATCH else datasets.single(datasets.load(_config(name, scale), roots))
    )


def label(name: str) -> str:
    """Name it in records, so that nobody takes it for the real graph."""
    return f"synthetic {name}" if name != BATCH else "batch of random graphs"


def prepare(names: Sequence[str], roots: Roots) -> None:
    """Generate graphs of full size that are not in the cache, side by side in a process each."""
    specs = [name for name in names if name != BATCH]
    if specs:
        with ProcessPoolExecutor(len(specs), multiprocessing.get_context("spawn")) as pool:
            list(pool.map(_generate, specs, [roots] * len(specs)))


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
    split = torch.arange(nodes) % 4
    return NodeDataset(
        name=f"batch of {count} random graphs",
        edge_index=torch.stack([src, dst]),
        x=torch.randn(nodes, FEATURES, generator=generator),
        y=labels,
        train_mask=split < 2,
        val_mask=split == 2,
        test_mask=split == 3,
        num_classes=CLASSES,
        synthetic_parts=["graph", "features", "labels", "split"],
    )
