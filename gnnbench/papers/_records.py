"""Records of a reproduction: claims as published, what was measured, and the verdict on each claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import geometric_mean, median
from typing import Any, Literal, get_args

from pydantic import Field

from gnnbench.benchmarks.records import backend_of
from gnnbench.cells import CellRecord
from gnnbench.results.schema import Ratio, Record

Scale = Literal["demo", "small", "paper"]
SCALES: tuple[str, ...] = get_args(Scale)
Hardware = Literal["CPU", "GPU", ""]
Verdict = Literal["reproduced", "exceeded", "not reached", "equal", "different", "not comparable", "not run"]
NEAR = 0.9  # of the published value still counts as reproduced
OVER: dict[str, Callable[[list[float]], float]] = {"median": median, "mean": geometric_mean}


class Claim(Record):
    """One published number, and which of our measurements are compared with it."""

    name: str
    value: float
    unit: Literal["x", "channels"] = Field("x", description="x: times faster or leaner than the baseline")
    source: str = Field(description="where it was published")
    kind: Literal["paper", "README", "blog", "log"]
    quantity: Literal["time", "memory", "best width"] = "time"
    over: Literal["max", "median", "mean"] = Field(
        "max", description="of all graphs, widths and heads; a mean is the geometric one"
    )
    op: str = Field("", description="model, or op, that is measured; empty: all of the cells")
    cells: str = Field("", description="how the keys of the cells begin that measure it; empty: all")
    phase: Literal["epoch", "forward", "backward"] = "epoch"
    ours: str = "isplib"
    baseline: str
    published_op: str = Field("", description="whose cell gives our side under the paper's protocol, if another's")
    hardware: Hardware = Field("", description="what it was published on; empty where a record does not say")
    machine: str = Field("", description="word in the name of the processors that the claim is about; empty: all")
    not_run: str = Field("", description="why it cannot be measured here at all")

    @property
    def measured(self) -> tuple[str, ...]:
        """Return what claims have in common that are compared with the same measurement."""
        cases = self.op, self.cells, self.published_op, self.phase, self.quantity, self.over
        return *cases, self.ours, self.baseline, self.machine, self.not_run


class Paper(Record):
    """Facts of a paper that all tables give."""

    name: str
    title: str
    ours: str = Field("isplib", description="the backend that tables and pictures call ours")
    machine: str = Field(description="what the published numbers were measured on")
    published: str = Field(description="the paper's protocol, as it is imitated here")
    corrected: str = Field(description="the protocol that leaves out what is unfair in it")
    notes: list[str] = Field([], description="what cannot be imitated")


class Measurement(Record):
    """One implementation on one case; figures are None where status is not ok."""

    cell: str
    graph: str = Field(description="the dataset's label, with what is synthetic")
    order: str = Field("none", description="how the nodes were reordered")
    op: str
    phase: Literal["epoch", "forward", "backward"]
    width: int = Field(description="hidden width of a model; channels of all heads together of an op")
    heads: int = 1
    batch: int = Field(0, description="graphs in a batch; 0 on a single graph")
    implementation: str
    device: str = Field("", description="which kernels and what they ran on")
    status: str
    reason: str = ""
    time_s: float | None = Field(None, description="by the corrected protocol")
    published_time_s: float | None = Field(None, description="by the paper's protocol")
    speedup: dict[str, Ratio | None] = Field({}, description="by baseline; corrected protocol")
    parts_s: dict[str, float] = Field({}, description="medians of the phases of an epoch")
    memory_bytes: int | None = Field(None, description="above what was held before: corrected protocol")
    published_memory_bytes: int | None = Field(None, description="of the whole process: the paper's protocol")
    prepare_s: float | None = Field(None, description="once per graph")
    break_even_epochs: int | None = Field(None, description="epochs that pay preparation back against pyg")

    @property
    def case(self) -> tuple[str, str, str, str, int, int, int]:
        """Return what all implementations have in common that are compared with each other."""
        return self.graph, self.order, self.op, self.phase, self.width, self.heads, self.batch


class Estimate(Record):
    """Estimate measured for a claim under one protocol."""

    value: float
    low: float | None = Field(None, description="95% bootstrap interval; of many cases the lowest of all")
    high: float | None = None
    where: str = Field(description="the case, or how many there were")
    ratio: float | None = Field(None, description="over the published value; None for a width")
    verdict: Verdict


class Finding(Record):
    """A claim and what became of it."""

    claim: Claim
    published: Estimate | None = Field(None, description="under the paper's protocol")
    corrected: Estimate | None = Field(None, description="under the corrected protocol")
    verdict: Verdict = Field("not run", description="under the corrected protocol")
    reason: str = Field("", description="why it was not run")


class Reproduction(Record):
    """One reproduction; the raw samples are in the folders of its cells."""

    schema_version: Literal[1] = 1
    status: Literal["running", "ok", "interrupted"] = "running"
    paper: Paper
    scale: Scale
    environment: dict[str, Any] = Field(
        {}, description="of this machine, see `gnnbench.measure.environment.describe`"
    )
    cells: list[CellRecord]
    findings: list[Finding]
    measurements: list[Measurement] = Field([])

    @property
    def exit_code(self) -> int:
        """3 where something was computed wrong, 1 where nothing was measured, otherwise 0."""
        ours = [
            measurement
            for measurement in self.measurements
            if backend_of(measurement.implementation) == self.paper.ours
        ]
        if any(our.status == "wrong" for our in ours):
            return 3
        return 0 if any(measurement.status == "ok" for measurement in self.measurements) else 1


def finding(claim: Claim, measured: Sequence[Measurement], pending: bool) -> Finding:
    """The verdict of `measured` on a claim; `pending` if cells have not run yet."""
    if claim.not_run:
        return Finding(claim=claim, reason=claim.not_run)
    measured = [one for one in measured if one.cell.startswith(claim.cells)]
    devices = {one.device for one in measured}
    if claim.machine and devices and not any(claim.machine in name for name in devices):
        return Finding(claim=claim, reason=f"it is about {claim.machine}, and this machine has another processor")
    if claim.quantity == "best width":
        corrected, published = _best_width(claim, measured), None
    else:
        ran = [one for one in measured if (one.implementation, one.status) == (claim.ours, "ok")]
        comparable = bool(claim.hardware) and all(one.device.partition(":")[0] == claim.hardware for one in ran)
        corrected = _combined(claim, _found(claim, measured, "", claim.op), comparable)
        theirs = _found(claim, measured, "published_", claim.published_op or claim.op)
        published = _combined(claim, theirs, comparable)
    if corrected is None:
        return Finding(claim=claim, published=published, reason=_reason(claim, measured, pending))
    return Finding(claim=claim, published=published, corrected=corrected, verdict=corrected.verdict)


def judge(value: float, low: float, high: float) -> Verdict:
    """`exceeded` if even the low end is above the published value, `reproduced` if the high end is near it.

    Args:
        value: as published.
        low, high: the interval of what was measured.
    """
    if low > value:
        return "exceeded"
    return "reproduced" if high >= NEAR * value else "not reached"


Found = tuple[float, float, float, str]  # value, low and high end, where


def _found(claim: Claim, measured: Sequence[Measurement], protocol: str, our_op: str) -> Iterable[Found]:
    """How many times more the baseline takes on a case, under the protocol that names of figures begin with.

    `our_op` stands for the claim's op on our side.
    """
    name = protocol + ("memory_bytes" if claim.quantity == "memory" else "time_s")
    right = [one for one in measured if (one.phase, one.status) == (claim.phase, "ok")]
    baselines = {
        one.case: one for one in right if one.implementation == claim.baseline and one.op == (claim.op or one.op)
    }
    for ours in right:
        baseline = baselines.get(ours.model_copy(update={"op": claim.op or ours.op}).case)
        if baseline is None or ours.implementation != claim.ours or ours.op != (our_op or ours.op):
            continue
        if name == "time_s":
            if ratio := ours.speedup.get(claim.baseline):
                yield ratio.ratio, ratio.low, ratio.high, where(ours)
        elif (top := getattr(baseline, name)) and (bottom := getattr(ours, name)):
            yield top / bottom, top / bottom, top / bottom, where(ours)


def _combined(claim: Claim, founds: Iterable[Found], comparable: bool) -> Estimate | None:
    """The largest with its interval; or the median or mean, with the lowest and highest of all cases."""
    cases = list(founds)
    if not cases:
        return None
    value, low, high, place = max(cases)
    if claim.over in OVER:
        values = [case[0] for case in cases]
        value, low, high, place = OVER[claim.over](values), min(values), max(values), f"{len(cases)} cases"
        verdict = judge(claim.value, value, value)
    else:
        verdict = judge(claim.value, low, high)
    if not comparable:
        verdict = "not comparable"
    return Estimate(value=value, low=low, high=high, where=place, ratio=value / claim.value, verdict=verdict)


def _best_width(claim: Claim, measured: Sequence[Measurement]) -> Estimate | None:
    """The width of the largest speedup over the baseline."""
    curve = [
        (ratio.ratio, one)
        for one in measured
        if one.op == claim.op and one.implementation == claim.ours and (ratio := one.speedup.get(claim.baseline))
    ]
    if not curve:
        return None
    speedup, best = max(curve, key=lambda found: found[0])
    return Estimate(
        value=best.width,
        where=f"{best.graph}, {speedup:.2f}x there",
        verdict="equal" if best.width == claim.value else "different",
    )


def _reason(claim: Claim, measured: Sequence[Measurement], pending: bool) -> str:
    of_op = [one for one in measured if one.op == (claim.op or one.op)]
    for name in (claim.baseline, claim.ours):
        for one in of_op:
            if one.implementation == name and one.reason:
                return f"{name}: {one.reason}"
    return "its cells have not run yet" if pending else "no cell of this scale measures it"


def where(measurement: Measurement) -> str:
    """The case in words, without its op and phase."""
    parts = [measurement.graph, f"by {measurement.order}" * (measurement.order != "none")]
    if measurement.phase != "epoch":
        parts += [f"width {measurement.width}", f"{measurement.heads} heads" * (measurement.heads > 1)]
    return ", ".join(filter(None, parts))
