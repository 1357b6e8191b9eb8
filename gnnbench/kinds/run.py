"""Runs of `gnnbench train`: tables, progress and a page; and how any result says what was measured on what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from gnnbench import units
from gnnbench.kinds import ResultKind
from gnnbench.measure import clock
from gnnbench.report.live import View
from gnnbench.report.page import Grid, Section, Tone, section_of
from gnnbench.report.plots import Picture, Strip, Strips, curves, stacks
from gnnbench.report.tables import Cells, Table, ended, facts, time_cell
from gnnbench.results import files
from gnnbench.results.schema import OUTER, Binding, ChoiceRecord, DatasetFacts, Evaluation, Result, Sample, Summary
from gnnbench.stats import grouped

if TYPE_CHECKING:
    from gnnbench.ops.kernels import Choice
    from gnnbench.training.run import Event
    from gnnbench.tuning.search import Request

T = TypeVar("T", Sample, Evaluation)

SHOWN_EPOCHS = 10
REDRAW_S = 0.1
STEP_REDRAW_S = 0.5  # within an epoch, whose clock is stopped meanwhile
SPLITS = ("train", "val", "test")
PHASES = ("load", "forward", "backward", "exchange", "optimizer")
SOMETIMES = ("load", "exchange")  # phases that are left out where there are none
OPS = {"stream": "its own messages in chunks", "pairs": "pairs in chunks"}
REWRITES = {
    "transform_first": "transform before aggregate",
    "aggregate_first": "aggregate before transform",
    "fold_norm": "normalisation as row scalings",
    "sparse_features": "products with features without their zeros",
    "dropout": "dropout by a hash",
    "keep_aggregation": "kept aggregation of constant features",
}


class TrainView(View):
    """The latest epochs, redrawn a few times a second at most; within an epoch its clock is stopped meanwhile."""

    _drawn_at = 0.0

    def __enter__(self) -> Any:
        self.say("loading the dataset")
        return self

    def __call__(self, event: Event) -> None:
        result, now = event.result, clock.cpu()
        if event.kind == "message":
            self.say(event.message)
        elif event.kind == "dataset_loaded":
            self.say(result.dataset, *graph(result.dataset_facts))
        elif event.kind == "prepared" and result.prepare_s is not None:
            self.say(f"prepared for {result.backend} in {units.seconds(result.prepare_s)}")
        elif event.kind == "step" and now - self._drawn_at >= STEP_REDRAW_S:
            self._draw(result, f", step {event.steps} of {event.of}")
        elif event.kind == "epoch" and now - self._drawn_at >= REDRAW_S:
            self._draw(result)

    def _draw(self, result: Result, step: str = "") -> None:
        train, samples = result.config["train"], result.samples[-SHOWN_EPOCHS:]
        repeat, epoch = (samples[-1].repeat, samples[-1].epoch) if samples else (0, 0)
        about = title(result.config, result.dataset, result.backend)
        line = f"{about}: epoch {epoch + bool(step)} of {train['epochs']}"
        line += f", repeat {repeat + 1} of {train['repeats']}" * (train["repeats"] > 1)
        known = {(each.repeat, each.epoch): each for each in result.evaluations[-SHOWN_EPOCHS:]}
        rows = (_epoch(sample, known.get((sample.repeat, sample.epoch))) for sample in samples)
        self.draw(line + step, Table.of(rows), newest=True)
        self._drawn_at = clock.cpu()


class Run(ResultKind, Result):
    """A run; a line of its frame is an epoch."""

    mark = "samples"
    file = files.RUN
    view = TrainView

    def records(self) -> list[dict[str, Any]]:
        """Every epoch in numbers, warm-up too, with its evaluation where there was one."""
        evaluations = {(each.repeat, each.epoch): each.model_dump() for each in self.evaluations}
        return [
            {**each.model_dump(), **dict.fromkeys(SPLITS), **evaluations.get((each.repeat, each.epoch), {})}
            for each in self.samples
        ]


def table(result: Result) -> Table:
    """One run: its figures, with conditions and warnings below."""
    tuned = used(result.choices, result.tuning_s)
    stopped = [f"Status: {ended(result.status)}: {result.reason}"] if result.status != "ok" else []
    return facts(
        [*_times(result), *_memory(result), *_workers(result), *_quality(result)],
        title=title(result.config, result.dataset, result.backend),
        notes=[*stopped, *kernels(result.bindings), *tuned, *circumstances(result)],
    )


def section(result: Result) -> Section:
    """Tell how long an epoch takes, and what the model learns."""
    shown = table(result)
    tone, verdict = _verdict(result)
    figures = replace(shown, heading=("figure", "value", "range and conditions"), notes=())
    return section_of(
        result,
        [shown],
        ["train", "run.yaml"],
        kind="Training",
        question="How long does an epoch take, and what does the model learn?",
        verdict=verdict,
        tone=tone,
        grids=[Grid(figures, sortable=False)],
        pictures=[*_pictures(result)],
        conditions=[
            "Times are medians over the epochs after warm-up; ranges are 95% bootstrap intervals. Evaluation is "
            "never timed",
            *shown.notes,
            "A single run is held against nothing, so no speedup is given",
        ],
    )


def title(config: dict[str, Any], dataset: str, backend: str = "") -> str:
    """Model, dataset with what is synthetic, backend, and bfloat16 where products are in it."""
    model = config["model"]
    kind = model.get("conv") or "-".join([model["name"], *filter(None, [model.get("aggr")])])
    name = f"{kind} ({units.counted(model['layers'], 'layer')}, {model['hidden']} hidden)"
    precision = "products in bfloat16" if config.get("train", {}).get("precision") == "bf16" else ""
    return ", ".join(filter(None, [f"{name} on {dataset or config['dataset']['source']}", backend, precision]))


def circumstances(record: Any) -> Iterator[str]:
    """Tell the graph and the machine of a result, and what makes its figures doubtful."""
    yield from graph(record.dataset_facts)
    yield from machine(record.environment)
    yield from (f"Warning: {text}" for text in record.warnings)


def kernels(bindings: Sequence[Binding], backend: str = "Kernels") -> Iterator[str]:
    """Which convs ran on which kernels, by which exact rewrites; nothing for untouched PyG."""
    same = Counter(
        (
            binding.conv,
            ", ".join(f"{OPS.get(op, op)} by {kernel}" for op, kernel in binding.kernels.items()),
            ", ".join(REWRITES.get(rewrite, rewrite) for rewrite in binding.rewrites),
            "".join(f"; no {REWRITES.get(name, name)}, as {reason}" for name, reason in binding.declined.items()),
        )
        for binding in bindings
    )
    for (conv, ops, rewrites, declined), times in same.items():
        exact = f"; exact rewrites: {rewrites}" if rewrites else ""
        yield f"{backend}: {times} x {conv}: {ops}{exact}{declined}"


def machine(environment: dict[str, Any]) -> Iterator[str]:
    """Processor, threads and versions in one line; none if the run ended before they were known."""
    if "cpu" not in environment:
        return
    cpu, packages = environment["cpu"], environment["packages"]
    found = cpu["isa"] or []
    isa = [name for name in ("avx512f", "avx2", "sve", "neon") if name in found][:1]
    parts = [
        cpu["model"] or cpu["architecture"],
        *isa,
        *["AMX"] * ("amx_bf16" in found),
        threads(environment),
        *["warm allocator"] * (environment.get("allocator") == "warm"),
        *(gpu["model"] for gpu in environment["gpus"]),
        f"torch {packages['torch']}",
        f"PyG {packages['torch_geometric']}",
        f"gnnbench {packages['gnnbench']}",
    ]
    yield f"Machine: {', '.join(parts)}"


def threads(environment: dict[str, Any]) -> str:
    """`"2 threads of 2 cores"`."""
    cores = environment["cpu"]["usable_cores"]
    of_cores = f" of {units.counted(cores, 'core')}" if cores else ""
    return units.counted(environment["threads"]["torch"], "thread") + of_cores


def used(choices: Sequence[ChoiceRecord], tuning_s: float | None, backend: str = "Kernels") -> Iterator[str]:
    """Which tuned choices a run used that differ from the heuristic's; nothing where none was known."""
    if not choices:
        return
    changed = [record for record in choices if record.choice != record.default]
    words = "; ".join(f"{chosen(record)}: {words_of(record.choice)}" for record in changed)
    cost = f", measured earlier in {units.seconds(tuning_s)}" if tuning_s else ""
    count = units.counted(len(choices), "tuned choice")
    yield f"{backend}: {count}{cost}; {words or 'all as the heuristic chooses'}"


def chosen(record: ChoiceRecord | Request) -> str:
    """The op, width and heads that a choice is of."""
    of_transpose = " of the transpose" if record.adjacency == "transpose" else ""
    heads = f", {record.heads} heads" if record.heads > 1 else ""
    return f"{record.op}{of_transpose}, {record.width}{heads}"


def words_of(choice: Choice) -> str:
    """Return a choice in words."""
    algorithm = [str(value) for name, value in choice.items() if name == "algorithm"]
    return ", ".join(algorithm + [f"{name} {value}" for name, value in choice.items() if name != "algorithm"])


def graph(facts: DatasetFacts | None) -> Iterator[str]:
    """Size of the graph and what of it is synthetic; none if the run ended before they were known."""
    if not facts:
        return
    trained = units.size(facts.embedding_bytes) if facts.embedding_bytes else ""
    if facts.train_links is not None:
        size = f"{facts.nodes:,} nodes, {facts.edges:,} edges of messages, {facts.features:,} features"
        yield f"Graph: {size}" + f", {trained} trained" * bool(trained) + f", {facts.train_links:,} training links"
    elif facts.node_types is not None:
        size = f"{facts.nodes:,} nodes of {facts.node_types} types, "
        size += f"{facts.edges:,} edges of {facts.edge_types} relations"
        yield f"Graph: {size}" + f", {trained} of vectors trained" * bool(trained) + f", {facts.classes:,} classes"
    else:
        names = (*["graphs"] * (facts.graphs is not None), "nodes", "edges", "features", "classes")
        label = "Graph" if facts.graphs is None else "Graphs"
        yield f"{label}: " + ", ".join(f"{getattr(facts, name):,} {name}" for name in names)
    if facts.reorder_s is not None:
        yield f"Nodes reordered by {facts.reorder} in {units.seconds(facts.reorder_s)}, once per graph"
    if facts.synthetic_parts:
        yield f"Synthetic, not real data: {', '.join(facts.synthetic_parts)}"


def _epoch(sample: Sample, evaluation: Evaluation | None) -> Cells:
    quality = {split: getattr(evaluation, split, None) for split in SPLITS}
    times = {phase: getattr(sample, f"{phase}_s") for phase in PHASES}
    shown = {phase: time for phase, time in times.items() if time is not None or phase not in SOMETIMES}
    return {
        "epoch": f"{sample.epoch}{' warm-up' if sample.warmup else ''}",
        "loss": f"{sample.loss:.4f}",
        **{split: "" if value is None else f"{value:.4f}" for split, value in quality.items()},
        **{phase: "" if time is None else units.seconds(time) for phase, time in shown.items()},
        "total": units.seconds(sample.epoch_s),
        "peak\nmemory": units.size(sample.peak_memory_bytes),
    }


def _times(result: Result) -> Iterator[tuple[str, str, str]]:
    for phase in ("epoch", *PHASES):
        names = {phase: phase} | {inner: f"  {inner}" for inner, outer in OUTER.items() if outer == phase}
        for name, label in names.items():
            if not (summary := getattr(result, f"{name}_s")):
                continue
            value, detail = time_cell(summary)
            if name == "epoch":
                of = f"of {units.counted(summary.count, 'epoch')}"
                detail = f"{detail}, 95% interval of the median {of}" if detail else of
            if name == "load" and result.loading_s:
                detail = f"waited for batches, which took {units.seconds(result.loading_s.median)} to make"
            yield label, value, detail
    rates = {"links": result.links_per_s, "graphs": result.graphs_per_s, "edges": result.edges_per_s}
    if shown := [f"{units.count(round(rate))} {what}/s" for what, rate in rates.items() if rate]:
        yield "throughput", shown[0], "".join(shown[1:])
    if result.prepare_s is not None:
        yield "preparation", units.seconds(result.prepare_s), "once per graph, in no epoch"


def _memory(result: Result) -> Iterator[tuple[str, str, str]]:
    if result.peak_memory_bytes is None:
        return
    detail = ""
    if result.memory_increase_bytes is not None and result.resting_memory_bytes is not None:
        rest = units.size(result.resting_memory_bytes)
        detail = f"{units.size(result.memory_increase_bytes)} above the {rest} before training"
    yield "peak memory", units.size(result.peak_memory_bytes), detail
    if result.energy_j is not None:
        yield "energy", f"{result.energy_j:.3g} J", "of the median epoch, whoever used it"


def _workers(result: Result) -> Iterator[tuple[str, str, str]]:
    for worker in result.workers:
        traffic = f"{units.size(worker.sent_bytes)} sent an epoch; load {units.seconds(worker.load_s)}"
        if worker.halo_nodes is not None:
            traffic = f"{worker.halo_nodes:,} nodes of others, {units.size(worker.received_bytes)} an epoch"
        exchange = units.seconds(worker.exchange_s)
        detail = f"{worker.nodes:,} nodes, {worker.edges:,} edges; {traffic}; exchange {exchange}"
        yield f"worker {worker.rank}", units.size(worker.peak_memory_bytes), detail


def _quality(result: Result) -> Iterator[tuple[str, str, str]]:
    if not (metrics := result.metrics):
        return
    repeats, spread = len(metrics.per_repeat), ""
    if repeats > 1 and metrics.test_std is not None:
        spread = f"± {metrics.test_std:.4f} over {repeats} repeats"
    chosen = "at the best validation epoch" if metrics.val is not None else "after the last epoch"
    for split, detail in zip(SPLITS, (chosen, "", spread), strict=True):
        if (value := getattr(metrics, split)) is not None:
            yield f"{split} {metrics.name}", f"{value:.4f}", detail


def _verdict(result: Result) -> tuple[Tone, list[str]]:
    sentences = []
    if time := result.epoch_s:
        interval = units.interval(units.seconds, time.low, time.high, " (95% interval {})")
        sentences.append(f"An epoch on {result.backend} takes {units.seconds(time.median)}{interval}.")
    if result.metrics and result.metrics.test is not None:
        sentences.append(f"Test {result.metrics.name}: {result.metrics.test:.4f}.")
    if result.status == "ok":
        return "plain", sentences or ["Nothing was measured."]
    why = f": {result.reason}" if result.reason else ""
    return "bad", [f"The run ended as {ended(result.status)}{why}.", *sentences]


def _pictures(result: Result) -> Iterator[Picture]:
    if not result.samples or not result.epoch_s:
        return
    samples = result.samples
    dots = "A dot is an epoch, a ring one of warm-up; the line is the median, the band its 95% interval."
    yield Picture("Every epoch", dots, Strips([strip(result.backend, samples, result.epoch_s)]))
    if phases := {phase: summary.median for phase in PHASES if (summary := getattr(result, f"{phase}_s"))}:
        yield Picture("What an epoch is made of", "Medians of its phases.", stacks({result.backend: phases}))
    repeats = len({sample.repeat for sample in samples})
    over = f"The mean of {repeats} repeats." if repeats > 1 else "One run."
    unit, scale = units.scale(result.epoch_s.median)
    seconds = {"epoch": over_repeats(samples, lambda sample: sample.epoch_s / scale)}
    yield Picture("Time of an epoch", f"{over} Warm-up included.", curves(seconds, f"epoch, {unit}", zero=True))
    losses = {"training": over_repeats(samples, lambda sample: sample.loss)}
    yield Picture("Training loss", over, curves(losses, "loss"))
    quality = {split: over_repeats(result.evaluations, attrgetter(split)) for split in SPLITS}
    if known := {split: points for split, points in quality.items() if points}:
        metric = result.metrics.name if result.metrics else "metric"
        yield Picture("Quality over epochs", over, curves(known, metric))
    mib = {"peak": over_repeats(samples, lambda sample: sample.peak_memory_bytes / units.SIZES["MiB"])}
    highest = f"The highest within each epoch. {over}"
    yield Picture("Memory over epochs", highest, curves(mib, "MiB", zero=True))


def strip(label: str, samples: Sequence[Sample], summary: Summary) -> Strip:
    """The epochs of a backend as dots, those of warm-up apart."""
    counted, warmup = ([each.epoch_s for each in samples if each.warmup is apart] for apart in (False, True))
    return Strip(label, counted, warmup, summary)


def over_repeats(records: Iterable[T], read: Callable[[T], float | None]) -> list[tuple[float, float]]:
    """Over repeats, by epoch; epochs without a value are left out."""
    known = ((record.epoch, value) for record in records if (value := read(record)) is not None)
    by_epoch = grouped(known, itemgetter(0))
    return [(float(epoch), fmean(value for _, value in found)) for epoch, found in sorted(by_epoch.items())]
