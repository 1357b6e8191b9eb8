"""Records as verbs write them, made up."""

from __future__ import annotations

from gnnbench.comparison.record import Comparison
from gnnbench.results import files, schema
from gnnbench.results.schema import ChoiceRecord, Ratio, Result
from gnnbench.tuning.store import Tuned
from tests.support.commands import ROOT
from tests.support.compare_runner import run_config
from tests.support.samples import sample

MACHINE = files.load(Comparison, ROOT / "results" / "tolokers_1_gcn.json").environment


def long_run(epochs: int) -> Result:
    samples = [
        sample(epoch, 0.031 + (epoch % 97) * 1e-5, warmup=epoch < 3, peak_memory_bytes=10**9 + epoch)
        for epoch in range(1, epochs + 1)
    ]
    raw = run_config().model_dump(mode="json", serialize_as_any=True)
    result = Result(status="ok", backend="isplib", dataset="zoo", config=raw, samples=samples, environment=MACHINE)
    result.evaluations = [
        schema.Evaluation(repeat=0, epoch=each.epoch, train=0.9, val=0.8, test=None) for each in samples
    ]
    result.epoch_s = schema.Summary(median=0.0314, low=0.031, high=0.032, mad=0.0, count=epochs)
    result.metrics = schema.metrics(result.evaluations, "accuracy")
    return result


def tuned() -> Tuned:
    choices = [
        ChoiceRecord(
            adjacency="graph",
            op="spmm",
            width=width,
            dtype="float32",
            choice={"algorithm": "row", "unroll": unroll},
            default={"algorithm": "row", "unroll": 1},
            time_s=0.01,
            gain=Ratio(ratio=unroll, low=unroll - 0.1, high=unroll + 0.1),
            speedup=Ratio(ratio=4.0, low=3.5, high=4.5),
        )
        for width, unroll in ((16, 1), (32, 2))
    ]
    machine = {"threads": 2, "cpu": {"model": "a processor"}}
    return Tuned(machine=machine, graph="zoo", fingerprint="0", tuning_s=3.0, choices=choices)
