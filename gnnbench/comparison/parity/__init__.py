"""The parity gate: does a backend compute what PyG computes, before, during and after it is timed?

This module says what is recorded of it.

    steps        what a backend computes
    judge        compares what two backends computed
    dropout      what dropout must come to
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from gnnbench.config import RECORDED_EPOCH
from gnnbench.results.schema import Record, Status

# Measured between two orders of summation in PyG itself (14 models, a hub of 20 000 edges): RMS errors up to
# 1e-5, worst rows up to 4e-5. One edge missed in 5.7 million (GCN on a graph shaped like Reddit, 12 000 nodes, a
# row of 600 edges) is off by 7e-5 in RMS, which passes, and by 5e-3 in its row, which does not.
TOLERANCE = 1e-4
ROW_TOLERANCE = 3e-4
# Under autocast products keep eight bits. What cancels, such as gradients of scores, moves by more in PyG itself
# (that of GAT's att_dst on Cora by all of its RMS): a difference may be so many times that. Measured on 15 models:
# up to 5 behind batch norms, elsewhere up to 1.5.
AUTOCAST_TOLERANCE, AUTOCASTS = 2e-2, 8.0

REFERENCES = ("pyg", "pyg-sparse", "reference")
REPLAYED = RECORDED_EPOCH + 2  # epochs, of which a training with recorded steps replays the last two
PARTING = 2e-2  # of their losses: rounding grows in a few epochs, a stale step or old random numbers are more
NOTHING = 1e-2  # of the first loss, below which there is nothing left to learn
FIRST = 1e-3  # of the first loss, which is that of equal weights
ROUNDED = 5  # times the distance that one training from other last bits drew away by, which may be little by luck
LOSSES = "losses of all epochs"
EXACT = "tensors too far from the reference: at most twice as far from float64 as its own"
DRIFTING = 0.2  # of the first loss, between the lowest of two whole trainings, which rounding takes apart


class TensorError(Record):
    """How far one tensor is from the reference's."""

    rel_rms: float | None = Field(
        None,
        description="RMS of the difference over RMS of the reference, or over more where rounding alone, or "
        "autocast in the reference itself, moves it far",
    )
    worst_row: float | None = Field(
        None,
        description="largest norm of a row's difference: of a node over its norm, or that of its rounding where "
        "much cancels; of a parameter over its norm or the RMS norm of all rows, whichever is larger",
    )
    worst_row_index: int | None = None
    kinks: int = Field(
        0, description="nodes, or 1 for a parameter, too far off in one step alone: at the kink of a leaky ReLU"
    )
    from_float64: float | None = Field(
        None,
        description="how many times as far from float64 as the reference, as a whole or in the worst row; of "
        "tensors too far from the reference, which agree nevertheless up to 2",
    )
    problem: str = Field("", description="why the tensor is wrong; empty if it agrees")


class RoundParity(Record):
    """One timed process, checked after its last epoch."""

    ok: bool
    reason: str = ""
    worst_tensor: str | None = None
    rel_rms: float | None = Field(None, description="that of the worst tensor")


class BackendParity(Record):
    """One backend against the reference."""

    status: Status = Field(description="whether the backend could run the check at all")
    ok: bool | None = Field(None, description="None where it could not run or there is no reference")
    reason: str = ""
    worst_tensor: str | None = None
    tolerance: float = Field(TOLERANCE, description="what it was judged by: its own where it states one")
    autocasts: float = Field(0.0, description="it may differ by so many times what autocast moves the reference")
    rel_rms: float | None = Field(None, description="that of the worst tensor")
    tensors: dict[str, TensorError] = Field({}, description="by name: of both steps, and what dropout does")
    unchecked: list[str] = Field([], description="what of this backend could not be checked, and why")
    code: str = Field("", description="hash of the code that was judged; empty: not known")
    rounds: list[RoundParity] = Field([], description="the timed processes, each after its last epoch")
    losses: str = Field("", description="where its losses part from the reference's; empty if not, or not known")

    @property
    def exact(self) -> bool:
        """Return whether some of its tensors were held against float64."""
        return any(error.from_float64 is not None for error in self.tensors.values())

    @property
    def green(self) -> bool:
        """Return whether it computed what the reference computes, in every process."""
        return self.ok is True and not self.red

    @property
    def red(self) -> str:
        """One sentence if anything differed; empty otherwise."""
        if self.ok is False:
            return self.reason
        wrong = ((number, verdict) for number, verdict in enumerate(self.rounds, start=1) if not verdict.ok)
        reasons = (f"after the last epoch of round {number}: {verdict.reason}" for number, verdict in wrong)
        return next(reasons, self.losses)


class Parity(Record):
    """The gate: red (`ok` false) where any backend differs, None where no reference could run."""

    ok: bool | None = None
    reference: str | None = Field(None, description="the backend that the others are compared with")
    tolerance: float = TOLERANCE
    row_tolerance: float = ROW_TOLERANCE
    reason: str = Field("", description="one sentence where ok is not true")
    checked: list[str] = Field([], description="what was compared")
    unchecked: list[str] = Field([], description="what this configuration leaves unchecked")
    backends: dict[str, BackendParity] = Field({}, description="those asked for, and the reference")
    rounded: list[float] = Field(
        [],
        description="losses of the reference from weights that differ in their last bits, where those of a "
        "backend parted from its own: so far rounding alone carries them",
    )

    def conclude(self, names: Sequence[str]) -> None:
        """Sum up the verdicts on the backends that were asked for, once any was reached."""
        if self.reference is None:
            if self.backends:
                self.reason = f"parity could not be established: none of {', '.join(REFERENCES)} could run"
            return
        if any(verdict.exact for verdict in self.backends.values()) and EXACT not in self.checked:
            self.checked = [*self.checked, EXACT]
        wrong = [name for name in names if name in self.backends and self.backends[name].red]
        self.ok = not wrong
        self.reason = "; ".join(f"{name}: {self.backends[name].red}" for name in wrong)


def drops(model: Mapping[str, Any]) -> list[str]:
    """The kinds of dropout that a model trains with, as its configuration names them."""
    return [key for key, value in model.items() if key.endswith("dropout") and value]


def checked(model: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the gate compares of a model."""
    yield "logits, every gradient and the gradient at every node, of a step in training"
    yield "the same in evaluation mode from other weights, and once more after the last timed epoch of each round"
    if "attention_dropout" in drops(model):
        yield "attention dropout: none in evaluation, its mean and spread, and the gradient through its own mask"
    if "dropout" in drops(model):
        yield "dropout of features where it is not torch's: its share and scale, and the gradient through its mask"
    if not drops(model):
        yield LOSSES


def unchecked(model: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the gate leaves out of a model."""
    if drops(model):
        yield "losses, as dropout is drawn at random"
    if model["activation"] in ("relu", "leaky_relu") or model["name"] == "gin":
        yield "gradients at the kink of a ReLU, for which SiLU stands in"
    if model.get("aggr") == "max":
        yield "which of several equal neighbours a maximum takes"


def parting(
    losses: Sequence[float],
    expected: Sequence[float],
    other: str = "without cuda_graph",
    share: float = PARTING,
    carried: Sequence[float] = (),
) -> str:
    """Where losses part from those of another training by more than rounding `carried`; empty if they do not."""
    for epoch, (ours, theirs) in enumerate(zip(losses[:REPLAYED], expected, strict=False), start=1):
        allowed = [share * max(abs(theirs), NOTHING * abs(expected[0])), *carried[epoch - 1 : epoch]]
        if not abs(ours - theirs) <= max(allowed):
            return f"the loss of epoch {epoch} is {ours:.4g}, and {theirs:.4g} {other}"
    return ""


def drifting(
    losses: Sequence[float],
    expected: Sequence[float],
    reference: str,
    tolerance: float,
    rounded: Sequence[float] = (),
) -> str:
    """Where losses part from those of the reference in a training without dropout; empty if they do not.

    Rounding grows from epoch to epoch, and faster where a learning rate is high: the first loss is held tightly,
    the next ones loosely, and of all others only the lowest.

    Args:
        rounded: losses of the reference from weights that differ in their last bits, if known.
    """
    apart = [abs(ours - theirs) for ours, theirs in zip(rounded, expected, strict=False)] or [0.0]
    carried = [ROUNDED * each for each in itertools.accumulate(apart, max)]
    if not abs(losses[0] - expected[0]) <= max(max(FIRST, tolerance) * abs(expected[0]), carried[0]):
        return f"the first loss is {losses[0]:.6g}, and {expected[0]:.6g} with {reference}"
    if reason := parting(losses, expected, f"with {reference}", max(PARTING, 3 * tolerance), carried):
        return reason
    lowest, theirs = min(losses), min(expected)
    if not abs(lowest - theirs) <= max(DRIFTING * abs(expected[0]), carried[-1]):
        return f"the lowest loss is {lowest:.4g}, and {theirs:.4g} with {reference}"
    return ""
