"""Claims compared with measurements, under both protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import geometric_mean, median

from gnnbench.papers._records import Claim, Estimate, Finding, Measurement, Verdict

NEAR = 0.9  # of the published value still counts as reproduced
OVER: dict[str, Callable[[list[float]], float]] = {"median": median, "mean": geometric_mean}


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
        comparable = is_comparable(claim, measured)
        corrected = _combined(claim, _corrected(claim, measured), comparable)
        published = _combined(claim, _published(claim, measured), comparable)
    if corrected is None:
        return Finding(claim=claim, published=published, reason=_reason(claim, measured, pending))
    return Finding(claim=claim, published=published, corrected=corrected, verdict=corrected.verdict)


def is_comparable(claim: Claim, measured: Sequence[Measurement]) -> bool:
    """Return whether ours ran on the kind of hardware that the claim was published on."""
    ran = [one for one in measured if (one.implementation, one.status) == (claim.ours, "ok")]
    return bool(claim.hardware) and all(one.device.partition(":")[0] == claim.hardware for one in ran)


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


def _corrected(claim: Claim, measured: Sequence[Measurement]) -> Iterable[Found]:
    for ours, baseline in _pairs(claim, measured, claim.op):
        if claim.quantity == "memory":
            if ours.memory_bytes and baseline.memory_bytes:
                yield _point(baseline.memory_bytes / ours.memory_bytes, ours)
        elif ratio := ours.speedup.get(claim.baseline):
            yield ratio.ratio, ratio.low, ratio.high, where(ours)


def _published(claim: Claim, measured: Sequence[Measurement]) -> Iterable[Found]:
    name = "published_memory_bytes" if claim.quantity == "memory" else "published_time_s"
    for ours, baseline in _pairs(claim, measured, claim.published_op or claim.op):
        top, bottom = getattr(baseline, name), getattr(ours, name)
        if top and bottom:
            yield _point(top / bottom, ours)


def _pairs(
    claim: Claim, measured: Sequence[Measurement], our_op: str
) -> Iterable[tuple[Measurement, Measurement]]:
    """Ours and the baseline on the same case, `our_op` standing for the claim's op on our side."""
    right = [one for one in measured if (one.phase, one.status) == (claim.phase, "ok")]
    baselines = {
        one.case: one for one in right if one.implementation == claim.baseline and one.op == (claim.op or one.op)
    }
    for one in right:
        if one.implementation == claim.ours and one.op == (our_op or one.op):
            case = one.model_copy(update={"op": claim.op or one.op}).case
            if case in baselines:
                yield one, baselines[case]


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


def _point(value: float, ours: Measurement) -> Found:
    return value, value, value, where(ours)


def where(measurement: Measurement) -> str:
    """The case in words, without its op and phase."""
    parts = [measurement.graph, f"by {measurement.order}" * (measurement.order != "none")]
    if measurement.phase != "epoch":
        parts += [f"width {measurement.width}", f"{measurement.heads} heads" * (measurement.heads > 1)]
    return ", ".join(filter(None, parts))
