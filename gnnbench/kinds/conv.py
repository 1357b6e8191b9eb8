"""Benchmarks of layers of PyG."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import layers
from gnnbench.kinds import ResultKind
from gnnbench.report import layers as report
from gnnbench.report.page import ops


class LayerBench(ResultKind, layers.LayerBench):
    """A benchmark of layers of PyG; a line of its frame is an implementation of one of them."""

    mark = "layers"
    file = "bench.json"
    report: ClassVar = report
    section = ops.bench
    continues = False


KIND = LayerBench
