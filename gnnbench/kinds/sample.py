"""Benchmarks of sampled neighbourhoods."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import sample
from gnnbench.kinds import ResultKind
from gnnbench.report import sample as report
from gnnbench.report.page import ops


class SampleBench(ResultKind, sample.SampleBench):
    """A benchmark of sampled neighbourhoods; a line of its frame is an implementation on one size."""

    mark = "fanouts"
    file = "bench.json"
    report: ClassVar = report
    section = ops.bench
    continues = False


KIND = SampleBench
