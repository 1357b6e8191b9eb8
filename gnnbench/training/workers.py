"""Measurements of each of several workers, collected from all of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from gnnbench.results.schema import Sample, Worker, counted
from gnnbench.training.batching._batch import Batching
from gnnbench.training.team import Team

TIMES = ("epoch_s", "forward_s", "backward_s", "exchange_s", "optimizer_s")


def figures(team: Team, batching: Batching, samples: Sequence[Sample]) -> list[Worker]:
    """Those of every worker, from the `samples` that it took itself; none of one alone, or without epochs."""
    if not batching.part or not samples:
        return []
    kept = counted(samples)
    times = {name: statistics.median(getattr(sample, name) or 0.0 for sample in kept) for name in TIMES}
    memory = {"peak_memory_bytes": max(sample.peak_memory_bytes for sample in kept)}
    every = team.collected({**batching.part, **memory, **times})
    return [Worker(rank=rank, **figures) for rank, figures in enumerate(every)]
