"""`gnnbench suite gpu`: what is run on a GPU, the most important first, as far as its time reaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gnnbench import backends, config
from gnnbench.backends import cuda
from gnnbench.backends.base import Backend
from gnnbench.backends.cuda import _triton
from gnnbench.benchmarks import ceilings, peers, size_of, workloads
from gnnbench.benchmarks.op_benchmark import OpBenchmark, Reference, fail, refute
from gnnbench.benchmarks.ops import Case
from gnnbench.benchmarks.peers import taken
from gnnbench.benchmarks.records import Row, Suite
from gnnbench.benchmarks.workloads import DIRECTIONS, OURS, RECORDED, TRAINING, Cell, Scale, cells
from gnnbench.comparison.parity import REPLAYED, parting, steps
from gnnbench.comparison.parity.judge import Snapshot, judge, judge_trained
from gnnbench.datasets import NodeDataset, Roots
from gnnbench.errors import BackendUnavailable, ConfigError
from gnnbench.graph import Graph
from gnnbench.measure import clock, code, environment, memory
from gnnbench.measure.memory import Meter
from gnnbench.measure.rounds import Budget, timed
from gnnbench.results import files
from gnnbench.training import cuda_graph, setup

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
        self,
        model: str,
        hidden: int,
        heads: int,
        backend: str,
        dataset: NodeDataset,
        cache: Path,
    ) -> None:
        section = {"name": model, "hidden": hidden} | ({"heads": heads} if heads > 1 else {})
        chosen, own = config.backend_sections(backend)
        raw = {
            "dataset": {"source": "synthetic", "preset": "cora"},
            "model": section,
            **own,
            "backend": chosen,
        }
        self.config = config.validate(raw, "the suite")
        self.dataset, self.cache, self.now = dataset, cache, clock.instants(dataset.x.device)
        self._backend = self._placed()
        built = setup.build(self.config, setup.ModelDims.of(dataset))
        ready = setup.prepare(self.config, built, self._backend, dataset, cache)
        self._trainer = cuda_graph.trainer(built, ready.batching, self.config.train)

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
    work = _Work(scale, out, roots, budget_s, on_event)
    record = work.record
    begun = record.spent_s
    start = clock.cpu()
    record.status = "interrupted"
    work.declare(todo)
    try:
        on_event(record, "measuring what this device can do at best")
        record.ceilings = work.benchmark.ceilings = ceilings.copying(work.device)
        missing = [cell for cell in todo if work.remaining(cell)]
        if scale == "full":
            on_event(record, "generating graphs")
            workloads.prepare(list(dict.fromkeys(cell.graph for cell in missing)), roots)
        for cell in missing:
            if clock.cpu() - start < budget_s:
                work.cell(cell)
            else:
                work.leave(cell)
            record.spent_s = begun + clock.cpu() - start
            work.save()
        left = any(row.status == "not run" for row in record.rows)
        record.status = "out of budget" if left else "ok"
    except KeyboardInterrupt:
        pass
    work.save()
    return record


class _Work:
    """The cells of a suite and what they share; everything they learn goes into `record`."""

    def __init__(
        self,
        scale: Scale,
        out: Path,
        roots: Roots,
        budget_s: float,
        on_event: Callable[[Suite, str], None],
    ) -> None:
        self.scale, self.path, self.roots = scale, out / FILE, roots
        self.budget_s = budget_s
        self.device = torch.device(cuda.CudaKernels.device_type)
        self.record = self._begun()
        self.meter = memory.meter(self.device)
        self.benchmark = OpBenchmark(self.meter, ROUNDS[scale], lambda text: on_event(self.record, text))
        self._rows: dict[tuple[Cell, str, str], Row] = {}
        self._datasets: dict[str, NodeDataset] = {}
        self._graphs: dict[str, Graph] = {}

    def declare(self, todo: Sequence[Cell]) -> None:
        """Find or make the rows of all cells."""
        known = {_key(row): row for row in self.record.rows}
        for cell in todo:
            for direction in cell.directions:
                for name in (*cell.ours, *cell.against):
                    row = Row(
                        op=cell.op,
                        graph=workloads.label(cell.graph),
                        width=cell.width,
                        heads=cell.heads,
                        dtype=cell.dtype,
                        direction=direction,
                        implementation=name,
                        caveat=self.record.caveat,
                    )
                    if _key(row) not in known:
                        self.record.rows.append(row)
                    self._rows[cell, direction, name] = known.setdefault(_key(row), row)

    def remaining(self, cell: Cell) -> bool:
        """Return whether any of it was not run yet."""
        return any(row.status in ("pending", "not run") for row in self._rows_of(cell))

    def leave(self, cell: Cell) -> None:
        """Mark the rows of a cell that the budget does not reach."""
        for row in self._rows_of(cell):
            row.status, row.reason = "not run", f"the budget of {self.budget_s:g} s was spent"

    def save(self) -> None:
        files.save_json(self.record, self.path)

    def cell(self, cell: Cell) -> None:
        """Check and time all implementations of one cell."""
        for row in self._rows_of(cell):
            row.status, row.reason = "pending", ""
        try:
            self.benchmark.say(f"{cell.op} on {cell.graph}: loading")
            (self._epochs if cell.op.startswith(TRAINING) else self._op)(cell)
        except Exception as error:  # of the graph itself, or the truth
            for row in self._rows_of(cell):
                if row.status == "pending":
                    fail(row, error)
        finally:
            self.meter.resting()  # gives back what failures have left

    def _op(self, cell: Cell) -> None:
        case = Case(cell.op, self._graph(cell.graph), cell.width, cell.heads, dtype=getattr(torch, cell.dtype))
        truth = Reference(case)
        ready: dict[str, peers.Implementation] = {}
        for name in (OURS, *cell.against):
            try:
                ready[name] = peers.local(name, case)
            except Exception as error:
                for direction in cell.directions:
                    fail(self._rows[cell, direction, name], error)
        for direction in DIRECTIONS:
            rows = {name: self._rows[cell, direction, name] for name in (OURS, *cell.against)}
            self.benchmark.direction(case, truth, direction, ready, rows, cell.against)

    def _epochs(self, cell: Cell) -> None:
        dataset, model = self._dataset(cell.graph), cell.op.removeprefix(TRAINING)
        rows = {name: self._rows[cell, "epoch", name] for name in (*cell.ours, *cell.against)}
        running: dict[str, Training] = {}
        losses: dict[str, list[float]] = {}
        reference, computed = "", None
        for name in (*cell.against, *cell.ours):
            self.benchmark.say(f"{cell.op} on {cell.graph}: checking {name}")
            eager = name.removesuffix(RECORDED)
            try:
                training = Training(model, cell.width, cell.heads, name, dataset, self.roots.cache)
                snapshot = training.computed(as_reference=computed is None)
                losses[name] = training.begin(REPLAYED if eager + RECORDED in rows else 1)
            except Exception as error:
                fail(rows[name], error)
                continue
            running[name] = training
            if computed is None:
                reference, computed = name, snapshot
            elif not (judged := judge(snapshot, computed, reference)).ok:
                rows[name].status, rows[name].reason = "wrong", f"against {reference}: {judged.reason}"
            else:
                rows[name].error = judged.rel_rms
            if reason := parting(losses[name], losses.get(eager, ())):
                rows[name].status, rows[name].reason = "wrong", reason
        if reference.startswith(OURS):
            for name in cell.ours:
                rows[name].reason = rows[name].reason or "not checked: PyG did not run"
        self.benchmark.say(f"{cell.op} on {cell.graph}: timing")
        right = {name: training for name, training in running.items() if rows[name].status == "pending"}
        self.benchmark.weigh(
            {name: partial(training.memory, self.meter) for name, training in right.items()}, rows
        )
        timed = self.benchmark.timed({name: training.time for name, training in right.items()}, rows, cell.against)
        for name in timed if computed else ():
            assert computed
            try:
                reason = "" if name == reference else right[name].wrong(computed, reference)
            except Exception as error:
                fail(rows[name], error)
                reason = rows[name].reason
            if reason:
                refute(rows, name, f"against {reference}, after it was timed: {reason}", cell.against)

    def _dataset(self, name: str) -> NodeDataset:
        if name not in self._datasets:
            self._datasets[name] = workloads.moved(workloads.load(name, self.scale, self.roots), self.device)
        return self._datasets[name]

    def _graph(self, name: str) -> Graph:
        if name not in self._graphs:
            dataset = self._dataset(name)
            graph = Graph.from_edge_index(dataset.edge_index, dataset.num_nodes, layout=cuda.CudaKernels())
            self._graphs[name], self.record.graphs[workloads.label(name)] = graph, size_of(graph)
        return self._graphs[name]

    def _rows_of(self, cell: Cell) -> list[Row]:
        return [
            self._rows[cell, direction, name]
            for direction in cell.directions
            for name in (*cell.ours, *cell.against)
        ]

    def _begun(self) -> Suite:
        """The record in the folder, or a new one."""
        on_gpu = self.device.type == "cuda"
        device = torch.cuda.get_device_name(self.device) if on_gpu else "cpu"
        if not self.path.exists():
            caveat = "" if on_gpu else CAVEAT
            return Suite(
                scale=self.scale,
                device=device,
                caveat=caveat,
                environment=environment.describe(),
                code=code.digest(),
            )
        suite = files.load(Suite, self.path)
        if (suite.scale, suite.device) != (self.scale, device):
            raise ConfigError(
                f"{self.path}: holds a suite of scale {suite.scale} on {suite.device}, not of {self.scale} on "
                f"{device}; choose another --out"
            )
        if suite.code != code.digest():
            raise ConfigError(
                f"{self.path}: holds a suite of other code than runs now, and their times must not be mixed; "
                "choose another --out"
            )
        return suite


def _key(row: Row) -> tuple[Any, ...]:
    return row.graph, row.op, row.width, row.heads, row.dtype, row.direction, row.implementation
