"""Comparing what two backends computed, tensor by tensor and row by row."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gnnbench.comparison.parity import (
    AUTOCASTS,
    ROW_TOLERANCE,
    TOLERANCE,
    BackendParity,
    RoundParity,
    TensorError,
)
from gnnbench.results import files

# A gradient that moves with rounding by more than a tenth of the tolerance, such as that of a bias before a batch
# norm, is zero but for rounding, and differs by up to 2e-6 of the largest gradient.
ROUNDING_FLOOR = 1e-5
# How often the reference's own rounding a difference may be: of a whole tensor, and of the worst of many rows.
# Measured on hubs of 18 000 edges behind batch norms, GIN of 5 layers: up to 4, and up to 20.
ROUNDINGS, ROW_ROUNDINGS = 50.0, 100.0
# A row of logits counts for this share of the median row at least, and one of gradients for this share of the RMS,
# as a softmax that is nearly one rounds to 1e-7 of what flows back elsewhere.
ROW_FLOOR = 1e-2
# Share of the nodes, one at least, whose gradient may lie at the kink of a leaky ReLU, where rounding alone flips
# the slope of a score: 4 of 15 000 on batches of dense graphs, 8 layers deep.
KINKED = 1e-3
# How many times the tolerance the gradient of a parameter may be off for the same reason: up to 6.
AT_KINK = 10.0

# How many times as far from float64 as the reference itself a tensor may be that is too far from the reference.
AS_GOOD = 2.0

BLOCK_ROWS = 1 << 16
AT_NODES = "gradient at nodes"
EVALUATION = " in evaluation"


@dataclass
class Snapshot:
    """The tensors that a backend computed, on the CPU.

    They are "logits" [N, C], "gradient at nodes" [N, 8], and "gradient of PARAMETER" of a training step; the same
    with " in evaluation" of a step in evaluation mode from other weights. What only the reference has is empty in
    others: `rounding` has norms of rows [N] of what has a row for every node, otherwise the RMS [].
    """

    tensors: dict[str, Tensor]
    tolerance: float = TOLERANCE  # relative error that the backend is allowed
    rounding: dict[str, Tensor] = field(default_factory=dict)  # of the reference, how far that moves each tensor
    dropout: dict[str, TensorError] = field(default_factory=dict)  # what was measured of it, by name
    unchecked: list[str] = field(default_factory=list)  # sentences, what could not be checked
    kinks: bool = False  # of the reference, whether scores go through leaky ReLUs
    autocast: bool = False  # whether it was computed under autocast
    lowered: dict[str, Tensor] = field(default_factory=dict)  # of the reference, the RMS [] that autocast moves by
    exact: dict[str, Tensor] = field(default_factory=dict)  # of the reference, once a backend was too far from it

    def learn_rounding(self, again: dict[str, Tensor]) -> None:
        """Raise `rounding` to that of the same steps on features that are changed in their last bits."""
        for name, tensor in self.tensors.items():
            both = tensor, again[name]
            moved = _row_norms(*both) if is_of_nodes(name) else torch.tensor(_rms(*both))
            self.rounding[name] = moved.maximum(self.rounding.get(name, moved))

    def learn_autocast(self, again: dict[str, Tensor]) -> None:
        """Set `lowered` from the same steps under autocast."""
        self.lowered = {name: torch.tensor(_rms(tensor, again[name])) for name, tensor in self.tensors.items()}

    def save(self, path: Path) -> None:
        """Write it, to be read by `load`; one that is mapped from there stays as it is."""
        dropout = {name: error.model_dump() for name, error in self.dropout.items()}
        files.save_by(partial(torch.save, {**vars(self), "dropout": dropout}), path)

    @classmethod
    def load(cls, path: Path) -> Snapshot:
        """Read it back; tensors are memory-mapped, so that a large graph needs no second copy in memory."""
        saved: dict[str, Any] = torch.load(path, mmap=True, weights_only=True)
        dropout = {name: TensorError(**error) for name, error in saved["dropout"].items()}
        return cls(**{**saved, "dropout": dropout})


def judge(snapshot: Snapshot, expected: Snapshot, reference: str = "pyg") -> BackendParity:
    """Compare tensors of the same names.

    A `snapshot.tolerance` that is not the usual one moves that of single rows alike; under autocast, which moves
    some rows far, they are not judged. `reference` is the name of the backend of `expected`, for sentences.
    """
    errors, outliers = dict[str, TensorError](), dict[str, set[int]]()
    for name in expected.tensors:
        tensor = snapshot.tensors.get(name)
        errors[name], outliers[name] = _error(name, tensor, expected, reference, snapshot)
    for name in [name for name, error in errors.items() if error.problem] if expected.kinks else ():
        # A fault of the kernels would be seen with other weights too, in the other one of the two steps.
        other = name.removesuffix(EVALUATION) if name.endswith(EVALUATION) else name + EVALUATION
        rows, others = outliers[name], outliers.get(other, set())
        if rows and not rows & others:
            errors[name].kinks, errors[name].problem = len(rows), ""
    for name in [name for name, error in errors.items() if error.problem and name in expected.exact]:
        error, ratio = errors[name], _from_float64(snapshot.tensors.get(name), name, expected)
        error.from_float64 = ratio
        error.problem = error.problem if ratio is None or not ratio <= AS_GOOD else ""
    for name in snapshot.tensors.keys() - expected.tensors.keys():
        errors[name] = TensorError(problem=f"there, but not in {reference}")
    errors |= snapshot.dropout
    unjudged = ["single rows, which autocast moves far where much cancels"] * snapshot.autocast
    wrong = [name for name, error in errors.items() if error.problem]
    worst = max(wrong or errors, key=lambda name: _badness(errors[name]))
    reason = f"{worst}: {errors[worst].problem}" if wrong else ""
    if len(wrong) > 1:
        reason += f" ({len(wrong)} of {len(errors)} tensors differ)"
    return BackendParity(
        status="ok",
        ok=not wrong,
        tolerance=snapshot.tolerance,
        autocasts=AUTOCASTS * snapshot.autocast,
        reason=reason,
        worst_tensor=worst,
        rel_rms=errors[worst].rel_rms,
        tensors=errors,
        unchecked=[*unjudged, *snapshot.unchecked],
    )


def judge_trained(snapshot: Snapshot, expected: Snapshot, reference: str) -> RoundParity:
    """Compare the step in evaluation mode alone, which is all that `snapshot` holds."""
    tensors = {name: tensor for name, tensor in expected.tensors.items() if name.endswith(EVALUATION)}
    judged = judge(snapshot, replace(expected, tensors=tensors), reference)
    return RoundParity(**judged.model_dump(include={*RoundParity.model_fields}))


def is_of_nodes(name: str) -> bool:
    """Return whether a tensor has a row for every node."""
    return name.startswith(("logits", AT_NODES))


def _error(
    name: str, computed: Tensor | None, reference: Snapshot, backend: str, snapshot: Snapshot
) -> tuple[TensorError, set[int]]:
    """How far a tensor is from the reference's, and the rows that are too far, if a kink may have moved them."""
    expected, tolerance = reference.tensors[name], snapshot.tolerance
    if computed is None:
        return TensorError(problem=f"missing, but {backend} has it"), set()
    if computed.shape != expected.shape or computed.dtype != expected.dtype:
        shapes = [f"{tensor.dtype} {list(tensor.shape)}" for tensor in (computed, expected)]
        return TensorError(problem=f"{shapes[0]}, but {shapes[1]} in {backend}"), set()
    scale = max(_rms(expected), _rounding(name, reference))
    if snapshot.autocast and name in reference.lowered:
        scale = max(scale, AUTOCASTS * float(reference.lowered[name]) / tolerance)
    norms, off = _row_norms(expected), _row_norms(computed, expected)
    for each, where in ((norms, f" of {backend}"), (off, "")):
        if not bool((finite := each.isfinite()).all()):
            return TensorError(problem=f"NaN or infinity in row {int((~finite).int().argmax())}{where}"), set()
    against = norms.maximum(_row_floor(name, reference, norms, scale))
    ratio = (off / against).nan_to_num(nan=0.0, posinf=1e30)  # nan: zero against zero
    worst, worst_index = (float(ratio.max()), int(ratio.argmax())) if len(ratio) else (0.0, 0)
    row_tolerance, few = ROW_TOLERANCE / TOLERANCE * tolerance, max(1, int(KINKED * len(ratio)))
    outliers = {*(ratio > row_tolerance).nonzero().flatten()[: few + 1].tolist()}
    rms = float(off.norm()) / max(expected.numel(), 1) ** 0.5
    rel_rms = rms / scale if scale else (0.0 if rms == 0 else 1e30)
    problem = ""
    if rel_rms > tolerance:
        problem = f"off by {rel_rms:.1e} of its RMS, more than {tolerance:g}"
    elif worst > row_tolerance and not snapshot.autocast:
        problem = f"row {worst_index} off by {worst:.1e} of its norm, more than {row_tolerance:g}"
    error = TensorError(rel_rms=rel_rms, worst_row=worst, worst_row_index=worst_index, problem=problem)
    if name.startswith(AT_NODES):
        return error, outliers if rel_rms <= tolerance and len(outliers) <= few else set()
    small = not name.startswith("logits") and _badness(error) <= AT_KINK
    return error, {0} if problem and small else set()  # of parameters, as a whole


def _from_float64(computed: Tensor | None, name: str, reference: Snapshot) -> float | None:
    """How many times as far from float64 as the reference a tensor is, as a whole and in its worst row."""
    theirs, exact = reference.tensors[name], reference.exact[name]
    if computed is None or computed.shape != theirs.shape:
        return None
    ours_off, theirs_off = (_row_norms(each, exact) for each in (computed, theirs))
    pairs = (ours_off.norm(), theirs_off.norm()), (ours_off.max(), theirs_off.max())
    return max(float(ours / off) if off else 1e30 for ours, off in pairs)


def _rounding(name: str, reference: Snapshot) -> float:
    """The RMS that the difference of a tensor is measured against at least, as its own may be rounding alone."""
    if name not in reference.rounding:
        return 0.0
    moved, expected = _rms(reference.rounding[name]), reference.tensors[name]
    if is_of_nodes(name):
        moved /= expected.size(1) ** 0.5
    floor = 0.0
    if not is_of_nodes(name) and moved > 0.1 * TOLERANCE * _rms(expected):
        gradients = (tensor for other, tensor in reference.tensors.items() if not is_of_nodes(other))
        floor = ROUNDING_FLOOR * max(map(_rms, gradients))
    return max(ROUNDINGS * moved, floor) / TOLERANCE


def _row_floor(name: str, reference: Snapshot, norms: Tensor, scale: float) -> Tensor:
    """The norm [N] that the difference of each row, itself of such a norm [N], is measured against at least.

    A row of a parameter is held against all of them. Among nodes, whose RMS a hub can make as large as itself,
    each is held against its own rounding, which is large where what was summed cancels, or the median node's.
    """
    typical = scale * (reference.tensors[name].numel() / max(len(norms), 1)) ** 0.5
    if not is_of_nodes(name):
        return torch.full_like(norms, typical)
    if name.startswith("logits"):
        typical = float(norms.median())
    moved = reference.rounding.get(name, torch.zeros(1)).double().expand_as(norms)
    moved = moved.clamp(min=float(moved.median()) if len(moved) else 0.0)
    return (moved * (ROW_ROUNDINGS / ROW_TOLERANCE)).clamp(min=ROW_FLOOR * typical)


def _row_norms(tensor: Tensor, other: Tensor | None = None) -> Tensor:
    """Norms [N] float64 of the rows of [N, ...], or of their differences from others; blockwise, for memory."""
    blocks = (block.double() for block in torch.atleast_1d(tensor).split(BLOCK_ROWS))
    if other is not None:
        others = torch.atleast_1d(other).split(BLOCK_ROWS)
        blocks = (ours - theirs for ours, theirs in zip(blocks, others, strict=True))
    return torch.cat([block.unsqueeze(-1).flatten(1).norm(dim=1) for block in blocks])


def _rms(tensor: Tensor, other: Tensor | None = None) -> float:
    return float(_row_norms(tensor, other).norm()) / max(tensor.numel(), 1) ** 0.5


def _badness(error: TensorError) -> float:
    if error.rel_rms is None or error.worst_row is None:  # not compared by its numbers
        return float("inf") if error.problem else 0.0
    return max(error.rel_rms / TOLERANCE, error.worst_row / ROW_TOLERANCE)
