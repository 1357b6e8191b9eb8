"""`gnnbench suite gpu`: what is run on a GPU, the most important first, as far as its time reaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from gnnbench import backends, config
from gnnbench.backends import cuda
from gnnbench.backends.base import Backend
from gnnbench.backends.cuda import _triton
from gnnbench.benchmarks import ceilings, peers, size_of, workloads
from gnnbench.benchmarks.contest import Contestant, fail, measured, race
from gnnbench.benchmarks.op_benchmark import OpBenchmark
from gnnbench.benchmarks.ops import Case
from gnnbench.benchmarks.peers import taken
from gnnbench.benchmarks.records import Row, Suite
from gnnbench.benchmarks.workloads import OURS, RECORDED, TRAINING, Cell, Scale, cells
from gnnbench.comparison.parity import REPLAYED, parting, steps
from gnnbench.comparison.parity.judge import Snapshot, judge, judge_trained
from gnnbench.datasets import NodeDataset, Roots
from gnnbench.errors import BackendUnavailable, ConfigError
from gnnbench.graph import Graph
from gnnbench.measure import clock, code, memory
from gnnbench.measure.memory import Meter
from gnnbench.measure.rounds import Budget, timed
from gnnbench.results import files
from gnnbench.training import loop, setup

__all__ = ["Cell", "cells", "run"]

FILE = "suite.json"
CAVEAT = "interpreted on the CPU: the times mean nothing"
ROUNDS: dict[Scale, Budget] = {
    "full": Budget(rounds=3, least_s=0.05, most_s=1.0),
    "tiny": Budget(rounds=1, least_s=0.0),
}


class Training:
    """One model on one backend.

    Args:
        backend: its name, with options of its own.
        dataset: with its tensors where the backend is to run.
        cache: where tuned choices are.

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
    work = _Work(record, device, scale, roots, OpBenchmark(memory.meter(device), ROUNDS[scale], hear))
    return measured(record, work.steps(todo, budget_s), out / FILE, on_event=hear)


def _begun(path: Path, scale: Scale, device: torch.device) -> Suite:
    """The record in a file, or a new one."""
    model = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    if not path.exists():
        return Suite(scale=scale, device=model, caveat="" if device.type == "cuda" else CAVEAT)
    suite = files.load(Suite, path)
    if (suite.scale, suite.device) != (scale, model):
        raise ConfigError(
            f"{path}: holds a suite of scale {suite.scale} on {suite.device}, not of {scale} on {model}; choose "
            "another --out"
        )
    if suite.code != code.digest():
        raise ConfigError(
            f"{path}: holds a suite of other code than runs now, and their times must not be mixed; choose "
            "another --out"
        )
    return suite


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
        self.record.ceilings = self.benchmark.ceilings = ceilings.copying(self.device)
        missing = [cell for cell in todo if any(row.status in ("pending", "not run") for row in rows[cell])]
        if self.scale == "full":
            yield "generating graphs"
            workloads.prepare(list(dict.fromkeys(cell.graph for cell in missing)), self.roots)
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
        for direction in cell.directions:
            for name in (*cell.ours, *cell.against):
                yield Row(
                    op=cell.op,
                    graph=workloads.label(cell.graph),
                    width=cell.width,
                    heads=cell.heads,
                    dtype=cell.dtype,
                    direction=direction,
                    implementation=name,
                    caveat=self.record.caveat,
                )

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
        label, benchmark = f"{cell.op} on {cell.graph}", self.benchmark
        race(contestants, rows, cell.against, benchmark.budget, benchmark.say, label)

    def _dataset(self, name: str) -> NodeDataset:
        return workloads.moved(workloads.load(name, self.scale, self.roots), self.device)

    def _graph(self, name: str) -> Graph:
        dataset = self.dataset(name)
        graph = Graph.from_edge_index(dataset.edge_index, dataset.num_nodes, layout=cuda.CudaKernels())
        self.record.graphs[workloads.label(name)] = size_of(graph)
        return graph


def _key(row: Row) -> tuple[Any, ...]:
    return row.graph, row.op, row.width, row.heads, row.dtype, row.direction, row.implementation
