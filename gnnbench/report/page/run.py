"""A run on a page: how long an epoch takes, and what the model learns."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from gnnbench import units
from gnnbench.report import run as report
from gnnbench.report.figures import ended
from gnnbench.report.page.pictures import Picture, Strip, curves, stacks, strips
from gnnbench.report.page.section import Grid, Section, Tone

if TYPE_CHECKING:
    from gnnbench.results.schema import Evaluation, Result, Sample

T = TypeVar("T", "Sample", "Evaluation")


def section(result: Result) -> Section:
    """A run."""
    table = report.table(result)
    tone, verdict = _verdict(result)
    return Section(
        kind="Training",
        title=report.title(result.config, result.dataset, result.backend),
        question="How long does an epoch take, and what does the model learn?",
        verdict=verdict,
        tone=tone,
        advice=result.warnings,
        grids=[
            Grid(replace(table, heading=("figure", "value", "range and conditions"), notes=()), sortable=False)
        ],
        pictures=[*_pictures(result)],
        conditions=[
            "Times are medians over the epochs after warm-up; ranges are 95% bootstrap intervals. Evaluation is "
            "never timed",
            *report.kernels(result.bindings),
            *report.graph(result.dataset_facts),
            *report.machine(result.environment),
            "A single run is held against nothing, so no speedup is given",
        ],
        environment=result.environment,
        config=result.config,
        command=shlex.join(["gnnbench", "train", "run.yaml"]),
    )


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
    phases = {phase: summary.median for phase in report.PHASES if (summary := getattr(result, f"{phase}_s"))}
    if phases:
        yield stacks("What an epoch is made of", "Medians of its phases.", {result.backend: phases})
    repeats = len({sample.repeat for sample in result.samples})
    over = f"The mean of {repeats} repeats." if repeats > 1 else "One run."
    unit, scale = units.scale(result.epoch_s.median)
    seconds = _mean(result.samples, lambda sample: sample.epoch_s / scale)
    yield curves("Time of an epoch", f"{over} Warm-up included.", {"epoch": seconds}, f"epoch, {unit}", zero=True)
    losses = {"training": _mean(result.samples, lambda sample: sample.loss)}
    yield curves("Training loss", over, losses, "loss")
    parts: dict[str, Callable[[Evaluation], float | None]] = {
        "train": lambda one: one.train,
        "val": lambda one: one.val,
        "test": lambda one: one.test,
    }
    quality = {name: points for name, read in parts.items() if (points := _mean(result.evaluations, read))}
    if quality:
        metric = result.metrics.name if result.metrics else "metric"
        yield curves("Quality over epochs", over, quality, metric)
    mib = _mean(result.samples, lambda sample: sample.peak_memory_bytes / units.SIZES["MiB"])
    yield curves("Memory over epochs", f"The highest within each epoch. {over}", {"peak": mib}, "MiB", zero=True)


def _mean(records: Iterable[T], read: Callable[[T], float | None]) -> list[tuple[float, float]]:
    """Over repeats, by epoch; epochs without a value are left out."""
    by_epoch: dict[int, list[float]] = {}
    for record in records:
        if (value := read(record)) is not None:
            by_epoch.setdefault(record.epoch, []).append(value)
    return [(float(epoch), statistics.fmean(values)) for epoch, values in sorted(by_epoch.items())]
