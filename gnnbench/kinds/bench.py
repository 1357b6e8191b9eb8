"""Benchmarks of one op, of layers, and of batches."""

from __future__ import annotations

from typing import ClassVar

from gnnbench.benchmarks import collate, layers, negatives, records, sample
from gnnbench.kinds import ResultKind
from gnnbench.report import bench as report


class _Benchmark(ResultKind):
    file = "bench.json"
    report: ClassVar = report
    continues = False


class Bench(_Benchmark, records.Bench):
    """A benchmark of one op; a line of its frame is an implementation on one case."""

    mark = "weighted"


class CollateBench(_Benchmark, collate.CollateBench):
    """A benchmark of batches of graphs; a line of its frame is an implementation on one size."""

    mark = "dtype"


class LayerBench(_Benchmark, layers.LayerBench):
    """A benchmark of layers of PyG; a line of its frame is an implementation of one of them."""

    mark = "layers"


class NegativesBench(_Benchmark, negatives.NegativesBench):
    """A benchmark of negatives; a line of its frame is an implementation on one size."""

    mark = "excluded"


class SampleBench(_Benchmark, sample.SampleBench):
    """A benchmark of sampled neighbourhoods; a line of its frame is an implementation on one size."""

    mark = "fanouts"


KIND = Bench
OTHERS = {"collate": CollateBench, "conv": LayerBench, "negatives": NegativesBench, "sample": SampleBench}
