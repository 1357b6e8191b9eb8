"""The record of an inference: a row for each backend, worked out from the processes of all rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Literal

from pydantic import Field

from gnnbench.comparison.parity import BackendParity, Parity
from gnnbench.comparison.record import BASELINES, FASTEST, PEER, Speedup, speedup
from gnnbench.results import schema
from gnnbench.results.schema import Binding, DatasetFacts, Evaluation, OfRun, Record, Summary


class Process(OfRun):
    """One process: passes of one backend, each the outputs of all nodes or graphs."""

    weights: str = Field("", description="hash of the weights; empty where they are those of a seed")
    way: str = Field("", description="how nodes are gone over")
    prepare_s: float | None = Field(None, description="CSR, transpose and plan; once per graph")
    warmup_s: float | None = Field(None, description="the first pass; left out of the figures unless it is alone")
    passes_s: list[float] = Field([], description="each pass")
    outputs: int | None = Field(None, description="rows of the outputs: nodes, or graphs")
    peak_memory_bytes: int | None = Field(None, description="highest of the first pass")
    memory_increase_bytes: int | None = Field(None, description="peak above the level before it")
    scores: Evaluation | None = Field(None, description="metric of each part of the split; None without weights")
    bindings: list[Binding] = Field([], description="which conv ran on which kernels")
    verdict: BackendParity | None = Field(None, description="beside the reference; None where it is that itself")
    warnings: list[str] = Field([], description="doubts about the figures")


class Row(Record):
    """One backend over all rounds; figures are None where it did not finish every round."""

    backend: str
    status: Literal["ok", "oom", "unsupported", "unavailable", "failed", "interrupted", "pending"] = "pending"
    reason: str = Field("", description="one sentence where status is not ok")
    way: str = Field("", description="how nodes are gone over")
    pass_s: Summary | None = Field(None, description="the outputs of all nodes, or graphs")
    round_pass_s: list[float] = Field([], description="median pass of each round")
    outputs_per_s: float | None = Field(None, description="nodes, or graphs, over the median pass")
    speedup: dict[str, Speedup | None] = Field(
        {}, description="by baseline; None where a side did not run or parity is not green"
    )
    peak_memory_bytes: int | None = Field(None, description="highest over rounds")
    memory_increase_bytes: int | None = Field(None, description="highest over rounds")
    memory_ratio: float | None = Field(None, description="peak memory over that of pyg; below 1 is less")
    prepare_s: float | None = Field(None, description="median over rounds")
    scores: Evaluation | None = Field(None, description="metric of each part of the split; None without weights")
    bindings: list[Binding] = Field([], description="which conv ran on which kernels")


class Predictions(Record):
    """The file that was written beside the figures."""

    path: str
    backend: str
    status: schema.Status | Literal["pending"] = "pending"
    reason: str = ""


class Inference(Record):
    """Everything that was found; the passes are in the files of its rounds."""

    schema_version: int = schema.SCHEMA_VERSION
    status: Literal["running", "ok", "interrupted"] = "running"
    reason: str = ""
    mode: schema.Mode
    checkpoint: str = Field(description="file of the weights; empty where they are those of a seed")
    weights: str = Field(description="hash of that file")
    dataset: str = Field("", description="the dataset's label, with what is synthetic")
    dataset_facts: DatasetFacts | None = None
    config: dict[str, Any] = Field(description="the resolved configuration that all backends ran")
    environment: dict[str, Any] = Field({}, description="of the latest process")
    rounds: int
    predictions: Predictions | None = None
    agreement: Parity = Field(Parity(), description="whether outputs are those of the reference")
    rows: list[Row]
    warnings: list[str] = Field([], description="doubts about the figures")

    @property
    def exit_code(self) -> int:
        """3 where parity is red, 1 where nothing ran, predictions failed or it was stopped, otherwise 0."""
        if self.agreement.ok is False:
            return 3
        ended = self.status == "ok" and (self.predictions is None or self.predictions.status == "ok")
        ran = not self.rounds or any(row.status == "ok" for row in self.rows)
        return 0 if ended and ran else 1

    def update(self, processes: Mapping[str, Sequence[Process]]) -> None:
        """Work out all rows from the processes so far, by backend in the order of rounds."""
        known = [each for done in processes.values() for each in done if each.status == "ok"]
        for process in known[-1:]:
            self.describe(process)
        self.rows = [_row(row.backend, processes.get(row.backend, ()), self.rounds) for row in self.rows]
        doubts: dict[str, dict[str, None]] = {}
        for each in known:
            for text in each.warnings:
                doubts.setdefault(text, {})[each.backend] = None
        self.warnings = [f"{', '.join(names)}: {text}" for text, names in doubts.items()]
        for name, done in processes.items():
            verdicts = [each.verdict for each in done if each.verdict is not None]
            if verdicts:
                self.agreement.backends[name] = next((each for each in verdicts if each.ok is False), verdicts[0])
        if self.agreement.backends:
            self.agreement.conclude([row.backend for row in self.rows])
        timed = {row.backend: row for row in self.rows if row.pass_s is not None}
        green = {name for name in timed if name == self.agreement.reference or self._is_green(name)}
        baselines = [name for name in BASELINES if name in green]
        fastest = min(baselines, key=lambda name: _seconds(timed[name]), default="")
        passes = {name: [each.passes_s for each in processes[name]] for name in timed}
        for name, row in timed.items():
            row.speedup = {
                key: speedup(baseline, name, passes) if {name, baseline} <= green else None
                for key, baseline in (("pyg", "pyg"), (FASTEST, fastest), *[(PEER, PEER)] * (PEER in timed))
            }
            if "pyg" in timed and row.peak_memory_bytes and timed["pyg"].peak_memory_bytes:
                row.memory_ratio = row.peak_memory_bytes / timed["pyg"].peak_memory_bytes

    def describe(self, process: Process) -> None:
        """Take dataset and machine from a process that came to its end."""
        self.dataset, self.dataset_facts = process.dataset, process.dataset_facts
        self.environment = process.environment

    def _is_green(self, name: str) -> bool:
        verdict = self.agreement.backends.get(name)
        return verdict is not None and verdict.ok is True


def _row(backend: str, done: Sequence[Process], wanted: int) -> Row:
    if stopped := next((each for each in done if each.status != "ok"), None):
        return Row(backend=backend, status=stopped.status, reason=stopped.reason)
    if not done:
        return Row(backend=backend)
    passes = schema.summary([each.passes_s for each in done])
    assert passes is not None
    last = done[-1]
    return Row(
        backend=backend,
        status="ok" if len(done) >= wanted else "pending",
        way=last.way,
        pass_s=passes,
        round_pass_s=[median(each.passes_s) for each in done],
        outputs_per_s=(last.outputs or 0) / passes.median,
        peak_memory_bytes=max(each.peak_memory_bytes or 0 for each in done),
        memory_increase_bytes=max(each.memory_increase_bytes or 0 for each in done),
        prepare_s=median([each.prepare_s or 0.0 for each in done]),
        scores=last.scores,
        bindings=last.bindings,
    )


def _seconds(row: Row) -> float:
    assert row.pass_s is not None
    return row.pass_s.median
