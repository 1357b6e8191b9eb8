"""Benchmarks of one op, of layers, and of batches."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import collate, layers, negatives, records, sample
from gnnbench.kinds import ResultKind
from gnnbench.report import batches
from gnnbench.report import bench as of_op
from gnnbench.report import layers as of_layers
from gnnbench.report.page import ops


class _Benchmark(ResultKind):
    file = "bench.json"
    section = ops.bench
    continues = False


class Bench(_Benchmark, records.Bench):
    """A benchmark of one op; a line of its frame is an implementation on one case."""

    mark = "weighted"
    report: ClassVar = of_op


class CollateBench(_Benchmark, collate.CollateBench):
    """A benchmark of batches of graphs; a line of its frame is an implementation on one size."""

    mark = "dtype"
    report: ClassVar = batches


class LayerBench(_Benchmark, layers.LayerBench):
    """A benchmark of layers of PyG; a line of its frame is an implementation of one of them."""

    mark = "layers"
    report: ClassVar = of_layers


class NegativesBench(_Benchmark, negatives.NegativesBench):
    """A benchmark of negatives; a line of its frame is an implementation on one size."""

    mark = "excluded"
    report: ClassVar = batches


class SampleBench(_Benchmark, sample.SampleBench):
    """A benchmark of sampled neighbourhoods; a line of its frame is an implementation on one size."""

    mark = "fanouts"
    report: ClassVar = batches


KIND = Bench
OTHERS = {"collate": CollateBench, "conv": LayerBench, "negatives": NegativesBench, "sample": SampleBench}
