"""One run as a table and on a page: times, memory, preparation, quality, and what was measured on what."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from gnnbench import units
from gnnbench.report.page import Grid, Section, Tone, conditions, section_of
from gnnbench.report.plots import Picture, Strip, curves, stacks, strips
from gnnbench.report.tables import Cell, Table, ended
from gnnbench.results.schema import PARTS

if TYPE_CHECKING:
    from gnnbench.ops.kernels import Choice
    from gnnbench.results.schema import Binding, ChoiceRecord, DatasetFacts, Evaluation, Result, Sample, Summary

T = TypeVar("T", "Sample", "Evaluation")

EPOCH_HEADING = ("epoch", "loss", "train", "val", "test")
PHASES = ("load", "forward", "backward", "exchange", "optimizer")
OPS = {"stream": "its own messages in chunks", "pairs": "pairs in chunks"}
REWRITES = {
    "transform_first": "transform before aggregate",
    "aggregate_first": "aggregate before transform",
    "fold_norm": "normalisation as row scalings",
    "sparse_features": "products with features without their zeros",
    "dropout": "dropout by a hash",
    "keep_aggregation": "kept aggregation of constant features",
}


def table(result: Result) -> Table:
    """One run: its figures, with conditions and warnings below."""
    tuned = used(result.choices, result.tuning_s)
    notes = [*kernels(result.bindings), *tuned, *graph(result.dataset_facts), *machine(result.environment)]
    if result.status != "ok":
        notes.insert(0, f"Status: {ended(result.status)}: {result.reason}")
    return Table(
        ("", "", ""),
        [*_times(result), *_memory(result), *_workers(result), *_quality(result)],
        title=title(result.config, result.dataset, result.backend),
        notes=[*notes, *(f"Warning: {text}" for text in result.warnings)],
        prose=(0, 2),
    )


def section(result: Result) -> Section:
    """Tell how long an epoch takes, and what the model learns."""
    shown = table(result)
    tone, verdict = _verdict(result)
    return section_of(
        result,
        [shown],
        ["train", "run.yaml"],
        kind="Training",
        question="How long does an epoch take, and what does the model learn?",
        verdict=verdict,
        tone=tone,
        grids=[
            Grid(replace(shown, heading=("figure", "value", "range and conditions"), notes=()), sortable=False)
        ],
        pictures=[*_pictures(result)],
        conditions=[
            "Times are medians over the epochs after warm-up; ranges are 95% bootstrap intervals. Evaluation is "
            "never timed",
            *conditions(shown),
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


def epoch_heading(sample: Sample) -> list[str]:
    """The columns of `epoch_row` for epochs such as this one."""
    return [*EPOCH_HEADING, *_phases(sample), "total", "peak\nmemory"]


def epoch_row(sample: Sample, evaluation: Evaluation | None) -> list[Cell]:
    """One epoch, under `epoch_heading`."""
    quality = (evaluation.train, evaluation.val, evaluation.test) if evaluation else (None, None, None)
    times = (*(getattr(sample, f"{phase}_s") for phase in _phases(sample)), sample.epoch_s)
    return [
        Cell(f"{sample.epoch}{' warm-up' if sample.warmup else ''}"),
        Cell(f"{sample.loss:.4f}"),
        *(Cell("" if value is None else f"{value:.4f}") for value in quality),
        *(Cell("" if value is None else units.seconds(value)) for value in times),
        Cell(units.size(sample.peak_memory_bytes)),
    ]


def records(result: Result) -> list[dict[str, Any]]:
    """Every epoch of a run in numbers, warm-up too, with its evaluation where there was one."""
    keys = {"train": None, "val": None, "test": None}
    evaluations = {
        (evaluation.repeat, evaluation.epoch): evaluation.model_dump() for evaluation in result.evaluations
    }
    return [
        {**sample.model_dump(), **keys, **evaluations.get((sample.repeat, sample.epoch), {})}
        for sample in result.samples
    ]


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


def used(choices: Sequence[ChoiceRecord], tuning_s: float | None, backend: str = "Kernels") -> Iterator[str]:
    """Which tuned choices a run used that differ from the heuristic's; nothing where none was known."""
    if not choices:
        return
    changed = [record for record in choices if record.choice != record.default]
    words = "; ".join(f"{chosen(record)}: {words_of(record.choice)}" for record in changed)
    cost = f", measured earlier in {units.seconds(tuning_s)}" if tuning_s else ""
    count = units.counted(len(choices), "tuned choice")
    yield f"{backend}: {count}{cost}; {words or 'all as the heuristic chooses'}"


def chosen(record: ChoiceRecord) -> str:
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
    if facts.train_links is not None:
        size = f"{units.count(facts.nodes)} nodes, {units.count(facts.edges)} edges of messages"
        vectors = f", {units.size(facts.embedding_bytes)} trained" if facts.embedding_bytes else ""
        links = units.count(facts.train_links)
        yield f"Graph: {size}, {units.count(facts.features)} features{vectors}, {links} training links"
    elif facts.node_types is not None:
        nodes, edges = (units.count(count) for count in (facts.nodes, facts.edges))
        size = f"{nodes} nodes of {facts.node_types} types, {edges} edges of {facts.edge_types} relations"
        vectors = f", {units.size(facts.embedding_bytes)} of vectors trained" if facts.embedding_bytes else ""
        yield f"Graph: {size}{vectors}, {units.count(facts.classes)} classes"
    else:
        names = (*["graphs"] * (facts.graphs is not None), "nodes", "edges", "features", "classes")
        label = "Graph" if facts.graphs is None else "Graphs"
        yield f"{label}: " + ", ".join(f"{units.count(getattr(facts, name))} {name}" for name in names)
    if facts.reorder_s is not None:
        yield f"Nodes reordered by {facts.reorder} in {units.seconds(facts.reorder_s)}, once per graph"
    if facts.made_up:
        yield f"Synthetic, not real data: {', '.join(facts.made_up)}"


def threads(environment: dict[str, Any]) -> str:
    """`"2 threads of 2 cores"`."""
    cores = environment["cpu"]["usable_cores"]
    return units.counted(environment["threads"]["torch"], "thread") + (
        f" of {units.counted(cores, 'core')}" if cores else ""
    )


def _phases(sample: Sample) -> Sequence[str]:
    alone = [phase for phase in ("load", "exchange") if getattr(sample, f"{phase}_s") is None]
    return [phase for phase in PHASES if phase not in alone]


def _times(result: Result) -> Iterator[list[Cell]]:
    for phase in ("epoch", *PHASES):
        summary: Summary | None = getattr(result, f"{phase}_s")
        if summary:
            detail = units.interval(units.seconds, summary.low, summary.high)
            if phase == "epoch":
                of = f"of {units.counted(summary.count, 'epoch')}"
                detail = f"{detail}, 95% interval of the median {of}" if detail else of
            if phase == "load" and result.loading_s:
                detail = f"waited for batches, which took {units.seconds(result.loading_s.median)} to make"
            yield [Cell(phase), Cell(units.seconds(summary.median)), Cell(detail)]
        for part in [part for part, whole in PARTS.items() if whole == phase]:
            if of_part := getattr(result, f"{part}_s"):
                detail = units.interval(units.seconds, of_part.low, of_part.high)
                yield [Cell(f"  {part}"), Cell(units.seconds(of_part.median)), Cell(detail)]
    rates = {"links": result.links_per_s, "graphs": result.graphs_per_s, "edges": result.edges_per_s}
    if shown := [f"{units.count(round(rate))} {what}/s" for what, rate in rates.items() if rate]:
        yield [Cell("throughput"), *map(Cell, shown), *[Cell("")] * (2 - len(shown))]
    if result.prepare_s is not None:
        yield [Cell("preparation"), Cell(units.seconds(result.prepare_s)), Cell("once per graph, in no epoch")]


def _memory(result: Result) -> Iterator[list[Cell]]:
    if result.peak_memory_bytes is None:
        return
    detail = ""
    if result.memory_increase_bytes is not None and result.resting_memory_bytes is not None:
        rest = units.size(result.resting_memory_bytes)
        detail = f"{units.size(result.memory_increase_bytes)} above the {rest} before training"
    yield [Cell("peak memory"), Cell(units.size(result.peak_memory_bytes)), Cell(detail)]
    if result.energy_j is not None:
        yield [Cell("energy"), Cell(f"{result.energy_j:.3g} J"), Cell("of the median epoch, whoever used it")]


def _workers(result: Result) -> Iterator[list[Cell]]:
    for worker in result.workers:
        sizes = f"{units.count(worker.nodes)} nodes, {units.count(worker.edges)} edges"
        others, received = units.count(worker.halo_nodes), units.size(worker.received_bytes)
        halo = f"{others} nodes of others, {received} an epoch"
        if result.config["batch"]["kind"] != "parts":
            halo = f"{units.size(worker.sent_bytes)} sent an epoch; load {units.seconds(worker.load_s)}"
        times = f"exchange {units.seconds(worker.exchange_s)}"
        yield [
            Cell(f"worker {worker.rank}"),
            Cell(units.size(worker.peak_memory_bytes)),
            Cell(f"{sizes}; {halo}; {times}"),
        ]


def _quality(result: Result) -> Iterator[list[Cell]]:
    if not (metrics := result.metrics):
        return
    repeats = len(metrics.per_repeat)
    spread = (
        f"± {metrics.test_std:.4f} over {repeats} repeats" if repeats > 1 and metrics.test_std is not None else ""
    )
    chosen = "at the best validation epoch" if metrics.val is not None else "after the last epoch"
    for split, detail in (("train", chosen), ("val", ""), ("test", spread)):
        if (value := getattr(metrics, split)) is not None:
            yield [Cell(f"{split} {metrics.name}"), Cell(f"{value:.4f}"), Cell(detail)]


def _verdict(result: Result) -> tuple[Tone, list[str]]:
    sentences = []
    if result.epoch_s:
        time = result.epoch_s
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
    counted = [sample.epoch_s for sample in result.samples if not sample.warmup]
    warmup = [sample.epoch_s for sample in result.samples if sample.warmup]
    yield strips(
        "Every epoch",
        "A dot is an epoch, a ring one of warm-up; the line is the median, the band its 95% interval.",
        [Strip(result.backend, counted, warmup, result.epoch_s)],
    )
    phases = {phase: summary.median for phase in PHASES if (summary := getattr(result, f"{phase}_s"))}
    if phases:
        yield stacks("What an epoch is made of", "Medians of its phases.", {result.backend: phases})
    repeats = len({sample.repeat for sample in result.samples})
    over = f"The mean of {repeats} repeats." if repeats > 1 else "One run."
    unit, scale = units.scale(result.epoch_s.median)
    seconds = _over_repeats(result.samples, lambda sample: sample.epoch_s / scale)
    yield curves("Time of an epoch", f"{over} Warm-up included.", {"epoch": seconds}, f"epoch, {unit}", zero=True)
    losses = {"training": _over_repeats(result.samples, lambda sample: sample.loss)}
    yield curves("Training loss", over, losses, "loss")
    parts: dict[str, Callable[[Evaluation], float | None]] = {
        "train": lambda one: one.train,
        "val": lambda one: one.val,
        "test": lambda one: one.test,
    }
    quality = {name: points for name, read in parts.items() if (points := _over_repeats(result.evaluations, read))}
    if quality:
        metric = result.metrics.name if result.metrics else "metric"
        yield curves("Quality over epochs", over, quality, metric)
    mib = _over_repeats(result.samples, lambda sample: sample.peak_memory_bytes / units.SIZES["MiB"])
    yield curves("Memory over epochs", f"The highest within each epoch. {over}", {"peak": mib}, "MiB", zero=True)


def _over_repeats(records: Iterable[T], read: Callable[[T], float | None]) -> list[tuple[float, float]]:
    """Over repeats, by epoch; epochs without a value are left out."""
    by_epoch: dict[int, list[float]] = {}
    for record in records:
        if (value := read(record)) is not None:
            by_epoch.setdefault(record.epoch, []).append(value)
    return [(float(epoch), statistics.fmean(values)) for epoch, values in sorted(by_epoch.items())]
