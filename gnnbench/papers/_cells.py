"""Cells of a grid: each is one comparison, one benchmark of an op, or one tuning, kept in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, product
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from gnnbench import backends, benchmarks, cells, comparison, config, datasets
from gnnbench.benchmarks.records import Bench, Time, backend_of, ratio
from gnnbench.cells import Outcome
from gnnbench.comparison.record import LOADER, Comparison, Row
from gnnbench.config import Run
from gnnbench.measure import clock
from gnnbench.papers._records import Measurement
from gnnbench.results import files, schema
from gnnbench.results.schema import Phase, Record, Result
from gnnbench.tuning import search
from gnnbench.tuning.store import Tuned

CPU_KERNELS = "CPU"
C = TypeVar("C", bound="_OfKernels")
EpochPhase = Literal["epoch", "forward"]
PHASES: tuple[Phase, ...] = ("load", "forward", "backward", "optimizer")


class _Cell(Record):
    """Fields of all cells."""

    key: str
    op: str = Field(description="what claims call it")
    dataset: dict[str, Any]

    def measurement(self, **known: Any) -> Measurement:
        """One of this cell."""
        order = str(self.dataset.get("reorder", "none"))
        return Measurement(cell=self.key, op=self.op, order=order, **known)


class Training(_Cell):
    """A model trained on several backends, as `gnnbench compare` does it."""

    kind: Literal["training"] = "training"
    model: dict[str, Any]
    batch: dict[str, Any] = Field({})
    train: dict[str, Any]
    backends: list[str]
    rounds: int
    phases: list[EpochPhase] = Field(["epoch"], description="what claims are made of")
    protocol: Literal["all", "collected"] = Field(
        "all",
        description="the paper's mean: over all epochs, with what is prepared once; or over all but the first, "
        "for which PyG's loader has made the batches beforehand",
    )

    def with_backend(self, name: str, former: str) -> Training:
        """Return the cell with another backend in place of `former`, which keeps its options."""
        renamed = {spec: name + spec.removeprefix(former) for spec in self.backends if backend_of(spec) == former}
        return self.model_copy(update={"backends": [renamed.get(spec, spec) for spec in self.backends]})

    def configs(self, memory_limit: str = "90%") -> list[Run]:
        """The validated run."""
        sections = self.model_dump(include={"dataset", "model", "batch", "train"})
        return [config.validate({**sections, "measure": {"warmup": 1, "memory_limit": memory_limit}}, self.key)]

    def run(self, work: Work, tell: Callable[[str], None]) -> Outcome:
        """Go on where an earlier call ended."""
        [run_config] = self.configs(work.memory_limit)
        comparison.compare(
            comparison.resolve(run_config, self.backends),
            rounds=self.rounds,
            out=work.out,
            roots=work.roots,
            on_event=lambda event: tell(f"{event.backend}, {event.stage}"),
        )
        return Outcome(status="ok")

    def measured(self, out: Path) -> list[Measurement]:
        """One measurement per backend and phase."""
        record = files.load(Comparison, out / "comparison.json")
        green = {name for name, parity in record.parity.backends.items() if parity.green}
        right = [row.backend for row in record.rows if row.status == "ok" and row.backend in green]
        rounds = {name: comparison.stored(out, name) for name in right}
        [section] = self.configs()
        batch = section.batch.size if self.batch else 0
        shared: dict[str, Any] = {"width": section.model.hidden, "batch": batch}
        shared["graph"] = record.dataset + f", batches of {batch}" * (batch > 0)
        shared["device"] = device(record.environment, self.backends)
        result, known = [], dict[str, Any]()
        for row, phase in product(record.rows, self.phases):
            known = {"status": row.status, "reason": row.reason, "implementation": row.backend, "phase": phase}
            if row.backend in rounds:
                known |= self._figures(row, phase, rounds)
            elif row.status == "ok":
                known |= {"status": "wrong", "reason": record.parity.reason}
            result.append(self.measurement(**shared, **known))
        return result

    def _figures(self, row: Row, phase: EpochPhase, rounds: dict[str, list[Result]]) -> dict[str, Any]:
        """Return the figures of a backend, with its speedup over the others in `rounds`."""
        ours, summary = rounds[row.backend], row.epoch_s if phase == "epoch" else row.forward_s
        figures: dict[str, Any] = {
            "time_s": summary.median if summary else None,
            "published_time_s": fmean(self._published(each, row.backend, phase) for each in ours),
            "speedup": {
                name: ratio(schema.times(theirs, phase), schema.times(ours, phase))
                for name, theirs in rounds.items()
                if name != row.backend
            },
        }
        if phase == "epoch":
            times = {phase: [*chain.from_iterable(schema.times(ours, phase))] for phase in PHASES}
            figures["parts_s"] = {phase: median(seconds) for phase, seconds in times.items() if seconds}
            figures |= {"memory_bytes": row.memory_increase_bytes, "published_memory_bytes": row.peak_memory_bytes}
            figures |= {"prepare_s": row.prepare_s, "break_even_epochs": row.break_even_epochs}
        return figures

    def _published(self, result: Result, backend: str, phase: EpochPhase) -> float:
        """Mean seconds of a round as the paper takes them."""
        if self.protocol == "all":
            whole = (result.prepare_s or 0.0) + sum(sample.epoch_s for sample in result.samples)
            return whole / len(result.samples)
        later = result.samples[1:] or result.samples
        if phase == "forward":
            return fmean(sample.forward_s or 0.0 for sample in later)
        return fmean(sample.epoch_s - (sample.load_s or 0.0) * (backend == LOADER) for sample in later)


class _OfKernels(_Cell):
    """Fields of cells on one backend."""

    widths: list[int]
    backend: str = "isplib"

    def with_backend(self: C, name: str, former: str) -> C:
        """Return the cell on another backend, if it is on `former`."""
        return self.model_copy(update={"backend": name}) if self.backend == former else self


class Ops(_OfKernels):
    """An op next to its peers, as `gnnbench bench` does it."""

    kind: Literal["ops"] = "ops"
    batch: int = Field(0, description="graphs of the dataset that are put together; 0: it is a single graph")
    heads: list[int] = Field([1])
    against: list[str]
    backward: bool = True
    protocol: Literal["first", "mean"] = Field("first", description="which sample the paper takes, or all of them")

    @property
    def grid(self) -> benchmarks.Grid:
        """The cases."""
        return benchmarks.Grid(self.op, self.widths, self.heads, self.against, self.backward, backend=self.backend)

    def configs(self) -> list[Run]:
        """A run on the graph, of any model."""
        return [config.validate({"dataset": self.dataset, "model": {"name": "gcn"}}, self.key)]

    def run(self, work: Work, tell: Callable[[str], None]) -> Outcome:
        """Measure; what it takes once is reordering."""
        section = self.configs()[0].dataset
        source = datasets.read(section, work.roots)
        if self.batch and isinstance(source, datasets.GraphsDataset):
            dataset = source.first(self.batch)
        else:
            dataset = datasets.single(source)
        start = clock.cpu()
        dataset = datasets.reordered(dataset, section)
        reorder_s = clock.cpu() - start
        how = work.model_dump(include={"dgl_python", "memory_limit"})
        benchmarks.bench(
            self.grid, dataset, out=work.out, cache=work.roots.cache, on_event=lambda _, what: tell(what), **how
        )
        return Outcome(status="ok", once_s=None if dataset.node_id is None else reorder_s)

    def measured(self, out: Path) -> list[Measurement]:
        """One measurement per row of the benchmark."""
        bench = files.load(Bench, out / "bench.json")
        same = {"width", "heads", "implementation", "status", "reason"}
        return [
            self.measurement(
                **row.model_dump(include=same),
                graph=bench.graph,
                phase=row.direction,
                batch=self.batch,
                device=device(bench.environment, [bench.backend]),
                time_s=row.time_s.median if row.time_s else None,
                published_time_s=self._published(row.time_s) if row.time_s else None,
                speedup=row.ratio,
                memory_bytes=row.memory_increase_bytes,
                published_memory_bytes=row.peak_memory_bytes,
            )
            for row in bench.rows
        ]

    def _published(self, time: Time) -> float:
        return time.samples[0][0] if self.protocol == "first" else fmean(chain.from_iterable(time.samples))


class Tuning(_OfKernels):
    """The tuner on one graph, as `gnnbench tune` does it: for what the models ask, and for a curve over widths."""

    kind: Literal["tuning"] = "tuning"
    op: Literal["spmm"] = "spmm"
    models: list[dict[str, Any]]

    def configs(self) -> list[Run]:
        """A run of every model."""
        return [config.validate({"dataset": self.dataset, "model": model}, self.key) for model in self.models]

    def run(self, work: Work, tell: Callable[[str], None]) -> Outcome:
        """Tune, and keep the choices for every later run."""
        kind, device = search.kernels_of(self.backend)
        kernels = kind()
        configs = self.configs()
        dataset = datasets.single(datasets.load(configs[0].dataset, work.roots))
        graph, label = dataset.graph(device, kernels), dataset.label
        wanted = search.requests(graph, [self.op], self.widths)
        for run_config in configs:
            wanted += search.requests_of(run_config, dataset, kind, device)
        result = search.tune(
            graph, label, wanted, kernels=kernels, on_event=lambda _, one: tell(f"{one.op}, width {one.width}")
        )
        search.keep(result, work.roots.cache, graph)
        files.save_json(result, work.out / "tuned.json")
        return Outcome(status="ok", once_s=result.tuning_s)

    def measured(self, out: Path) -> list[Measurement]:
        """One measurement per width of the curve."""
        tuned = files.load(Tuned, out / "tuned.json")
        gpu, cpu = tuned.machine.get("gpu"), tuned.machine.get("cpu", {}).get("model")
        return [
            self.measurement(
                graph=tuned.graph,
                phase="forward",
                width=record.width,
                implementation=self.backend,
                device=f"GPU: {gpu}" if gpu else f"{CPU_KERNELS}: {cpu}",
                status="ok",
                time_s=record.time_s,
                speedup={"fallback": record.speedup},
            )
            for record in tuned.choices
            if (record.op, record.adjacency, record.dtype) == (self.op, "graph", "float32")
            and record.width in self.widths
        ]


Cell = Annotated[Training | Ops | Tuning, Field(discriminator="kind")]


def device(environment: dict[str, Any], ran: list[str]) -> str:
    """Which kernels of the backends in `ran` ran, and on what; PyG follows them to the GPU."""
    kinds = backends.with_kernels()
    if any(kinds[name].kernels.device_type == "cuda" for name in map(backend_of, ran) if name in kinds):
        gpus = environment.get("gpus") or []  # none where no round ran
        return f"GPU: {gpus[0]['model']}" if gpus else "GPU"
    if "cpu" not in environment:
        return CPU_KERNELS
    return f"{CPU_KERNELS}: {environment['cpu']['model'] or environment['cpu']['architecture']}"


class Work(cells.Work):
    """A cell and where it runs, in a fresh process so that nothing it does can end the reproduction."""

    cell: Cell
    dgl_python: str = ""
    memory_limit: str = "90%"
