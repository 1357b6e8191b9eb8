"""Doubts about a measurement: each is one sentence with its evidence and a remedy; pure functions of a Result."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from gnnbench import stats, units
from gnnbench.results.schema import Result, rounds

BUSY_CORES = 0.25  # of other programs, above which they take time from a run that uses every core
SPREAD = 0.1  # median absolute deviation over median
OVERLOAD = 1.25  # of the edges of a worker over the mean, from which on the others wait for it


def warnings(result: Result) -> list[str]:
    """Everything that makes the times of `result` doubtful."""
    return [*_of_machine(result), *_of_workers(result), *_of_times(result)]


def _of_machine(result: Result) -> Iterator[str]:
    cpu, threads = result.environment.get("cpu") or {}, result.environment.get("threads") or {}
    usable, cores, count = cpu.get("usable_cores"), cpu.get("logical_cores"), threads.get("torch")
    busy = result.environment.get("other_programs_busy_cores")
    if count and usable and count > usable:
        yield (
            f"{count} threads share {usable} processor cores, so they wait for each other: "
            f"set measure.threads to {usable} or less"
        )
    runtimes = threads.get("openmp") or []
    if len(runtimes) > 1:
        yield (
            f"{len(runtimes)} OpenMP runtimes are loaded ({', '.join(runtimes)}), and their threads compete: "
            "install packages built with the same one, or set measure.threads to half of the cores"
        )
    if busy and cores and count and busy > BUSY_CORES and busy + count > cores:
        yield (
            f"other programs kept {busy:.1f} of {cores} processor cores busy during this run, which used "
            f"{units.counted(count, 'thread')}: close them, or set measure.threads lower"
        )


def _of_workers(result: Result) -> Iterator[str]:
    if not result.workers or result.workers[0].halo_nodes is None:  # of parts alone
        return
    mean = statistics.fmean(worker.edges for worker in result.workers)
    most = max(result.workers, key=lambda worker: worker.edges)
    if most.edges > OVERLOAD * mean:
        yield (
            f"worker {most.rank} has {most.edges / mean:.1f} times as many edges as the mean, and the others wait "
            "for it: set batch.method to metis, or try another batch.seed"
        )


def _of_times(result: Result) -> Iterator[str]:
    falling = [times for times in rounds(result.samples, "epoch") if stats.falling(times)]
    if falling:
        times = falling[0]
        quarter = len(times) // 4
        first, last = statistics.median(times[:quarter]), statistics.median(times[-quarter:])
        settled = next(i for i, seconds in enumerate(times) if seconds <= 1.05 * last)
        warmup = result.config["measure"]["warmup"]
        yield (
            f"epochs still got faster after the warm-up, from {first:.3g} s to {last:.3g} s: "
            f"set measure.warmup to {warmup + max(settled, quarter)} (now {warmup})"
        )
    if result.epoch_s and result.epoch_s.mad > SPREAD * result.epoch_s.median:
        yield (
            f"epoch times spread by {result.epoch_s.mad / result.epoch_s.median:.0%} of their median "
            f"({result.epoch_s.count} epochs): close other programs, or raise train.epochs"
        )
