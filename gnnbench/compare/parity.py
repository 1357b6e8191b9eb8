"""The parity gate: does a backend compute what PyG computes, in every row of the logits and every gradient?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gnnbench.config import RECORDED_EPOCH
from gnnbench.results.schema import Record, Status

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from gnnbench.backends.base import Backend
    from gnnbench.config import RunConfig
    from gnnbench.datasets import NodeDataset, Roots

# Measured between two orders of summation in PyG itself (14 models, a hub of 20 000 edges): RMS errors up to
# 1e-5, worst rows up to 4e-5 of the larger of their own norm (hubs) and the RMS norm of all rows (rows that
# cancel). One edge missed in 5.7 million (GCN on a graph shaped like Reddit, 12 000 nodes, a row of 600 edges)
# is off by 7e-5 in RMS, which passes, and by 5e-3 in its row, which does not.
TOLERANCE = 1e-4
ROW_TOLERANCE = 3e-4
# A gradient that is zero but for rounding, such as that of a bias before a batch norm, differs by up to 2e-6
# of the largest gradient. Rounding is told from a small true gradient by changing the features in their last
# bits: only a gradient that moves by more than a tenth of the tolerance is granted this floor.
JITTER = 1e-6
ROUNDING_FLOOR = 1e-5

REPLAYED = RECORDED_EPOCH + 2  # epochs, of which a training with recorded steps replays the last two
PARTING = 2e-2  # of their losses: rounding grows in a few epochs, a stale step or old random numbers are more

BLOCK_ROWS = 1 << 16


class TensorError(Record):
    """How far one tensor is from the reference's."""

    rel_rms: float | None = Field(None, description="RMS of the difference over RMS of the reference")
    worst_row: float | None = Field(
        None, description="largest norm of a row's difference, over the larger of its norm and the RMS norm"
    )
    worst_row_index: int | None = None
    problem: str = Field("", description="why the tensor is wrong; empty if it agrees")


class BackendParity(Record):
    """One backend against the reference."""

    status: Status = Field(description="whether the backend could run the check at all")
    ok: bool | None = Field(None, description="None where it could not run or there is no reference")
    reason: str = ""
    worst_tensor: str | None = None
    tolerance: float = Field(TOLERANCE, description="what it was judged by: its own where it states one")
    rel_rms: float | None = Field(None, description="that of the worst tensor")
    tensors: dict[str, TensorError] = Field({}, description="by name: logits and every gradient")


class Parity(Record):
    """The gate: red (`ok` false) where any backend differs, None where no reference could run."""

    ok: bool | None = None
    reference: str | None = Field(None, description="the backend that the others are compared with")
    tolerance: float = TOLERANCE
    row_tolerance: float = ROW_TOLERANCE
    reason: str = Field("", description="one sentence where ok is not true")
    backends: dict[str, BackendParity] = Field({}, description="those asked for, and the reference")


def checked(config: dict[str, Any]) -> dict[str, Any]:
    """A resolved configuration as the gate runs it: no dropout, and a smooth activation instead of a ReLU.

    Without dropout backends may draw in any order. At a ReLU's kink rounding alone flips whole gradients: on a
    graph shaped like Reddit one flip puts PyG's own GIN gradient 1.8e-4 from that in float64.
    """
    model = config["model"]
    smooth = {"activation": "silu"} if model["activation"] in ("relu", "leaky_relu") else {}
    return {**config, "model": {**model, **{key: 0.0 for key in model if key.endswith("dropout")}, **smooth}}


def snapshot(config: RunConfig[Any, Any], roots: Roots, path: Path, *, as_reference: bool) -> str:
    """One training step from the configured seed; saves logits and gradients, returns the dataset's label.

    Saved are the logits in training mode, the gradient of the training loss in every parameter, and the
    logits in evaluation mode after it. `as_reference` repeats the step with jittered features to find the
    gradients that hold nothing but rounding.

    Raises:
        GnnbenchError: whatever stops the backend, the dataset or the model.
    """
    import torch

    from gnnbench import backends, datasets
    from gnnbench.measure import memory

    if config.measure.threads:
        torch.set_num_threads(config.measure.threads)
    backend = backends.load(config.backend, config.train)
    with memory.limited(config.measure.memory_limit, backend.device):
        dataset = datasets.load(config.dataset, roots)
        computed, rounding = tensors(config, backend, dataset, as_reference)
    torch.save({"tensors": computed, "rounding": rounding, "tolerance": backend.tolerance or TOLERANCE}, path)
    return dataset.label


def check(found: Path, reference: Path, name: str) -> BackendParity:
    """Compare two files of `snapshot`; `name` is the reference backend's, for sentences.

    Files are memory-mapped and read in blocks of rows, so a large graph needs no second copy in memory.
    """
    import torch

    ours, saved = (torch.load(path, mmap=True, weights_only=True) for path in (found, reference))
    return judge(ours["tensors"], saved["tensors"], saved["rounding"], name, ours["tolerance"])


def judge(
    found: dict[str, Tensor],
    expected: dict[str, Tensor],
    rounding: list[str],
    reference: str = "pyg",
    tolerance: float = TOLERANCE,
) -> BackendParity:
    """Compare tensors of the same names; those in `rounding` may differ by the floor of rounding.

    A `tolerance` that is not the usual one moves that of single rows alike.
    """
    largest = max((_rms(grad) for name, grad in expected.items() if not _is_logits(name)), default=0.0)
    errors = {}
    for name, tensor in expected.items():
        floor = ROUNDING_FLOOR / TOLERANCE * largest if name in rounding and not _is_logits(name) else 0.0
        errors[name] = _error(found.get(name), tensor, floor, reference, tolerance)
    for name in found.keys() - expected.keys():
        errors[name] = TensorError(problem=f"there, but not in {reference}")
    wrong = [name for name, error in errors.items() if error.problem]
    worst = max(wrong or errors, key=lambda name: _badness(errors[name]))
    reason = f"{worst}: {errors[worst].problem}" if wrong else ""
    if len(wrong) > 1:
        reason += f" ({len(wrong)} of {len(errors)} tensors differ)"
    return BackendParity(
        status="ok",
        ok=not wrong,
        tolerance=tolerance,
        reason=reason,
        worst_tensor=worst,
        rel_rms=errors[worst].rel_rms,
        tensors=errors,
    )


def parting(recorded: Sequence[float], eager: Sequence[float]) -> str:
    """Where the losses of a training with recorded steps part from those without; empty if they do not."""
    for epoch, (found, expected) in enumerate(zip(recorded[:REPLAYED], eager, strict=False), start=1):
        if not abs(found - expected) <= PARTING * abs(expected):
            return f"the loss of epoch {epoch} is {found:.4g}, and {expected:.4g} without cuda_graph"
    return ""


def tensors(
    config: RunConfig[Any, Any], backend: Backend, dataset: NodeDataset, as_reference: bool
) -> tuple[dict[str, Tensor], list[str]]:
    """What a step computes, and the names of the gradients that are nothing but rounding."""
    import torch

    computed = _step(config, backend, dataset)
    if not as_reference:
        return computed, []
    noise = torch.rand(dataset.x.shape, generator=torch.Generator().manual_seed(0)).mul_(2).sub_(1)
    jittered = replace(dataset, x=torch.addcmul(dataset.x, dataset.x, noise.to(dataset.x.device), value=JITTER))
    moved = _step(config, backend, jittered)
    return computed, [name for name in computed if _moves(computed[name], moved.get(name))]


def _step(config: RunConfig[Any, Any], backend: Backend, dataset: NodeDataset) -> dict[str, Tensor]:
    import torch

    from gnnbench import models
    from gnnbench.train.loop import Task

    torch.manual_seed(config.train.seed)
    model = models.build(config.model, dataset.x.size(1), dataset.num_classes)
    _smooth(model)
    model.to(backend.device).train()
    task = Task.of(dataset, backend.prepare(model, dataset).adj, backend.device)
    logits = model(task.x, task.adj)
    task.loss(logits).backward()
    tensors = {"logits": logits.detach()}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            tensors[f"gradient of {name}"] = parameter.grad
    model.eval()
    with torch.no_grad():
        tensors["logits in evaluation"] = model(task.x, task.adj)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _smooth(model: Module) -> None:
    """Do inside convs, such as GIN's network, what `checked` does between them."""
    import torch

    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, torch.nn.ReLU):
                setattr(module, name, torch.nn.SiLU())


def _is_logits(name: str) -> bool:
    return name.startswith("logits")


def _moves(tensor: Tensor, moved: Tensor | None) -> bool:
    """Whether jitter in the last bits changes the tensor by more than a tenth of the tolerance."""
    return moved is None or not _rms(tensor - moved) <= 0.1 * TOLERANCE * _rms(tensor)


def _rms(tensor: Tensor) -> float:
    if not tensor.numel():
        return 0.0
    squares = sum(float(block.double().square().sum()) for block in tensor.reshape(-1).split(BLOCK_ROWS))
    return (squares / tensor.numel()) ** 0.5


def _error(found: Tensor | None, expected: Tensor, floor: float, reference: str, tolerance: float) -> TensorError:
    """`floor` is the least RMS per element that differences are measured against."""
    if found is None:
        return TensorError(problem=f"missing, but {reference} has it")
    if found.shape != expected.shape or found.dtype != expected.dtype:
        shapes = [f"{tensor.dtype} {list(tensor.shape)}" for tensor in (found, expected)]
        return TensorError(problem=f"{shapes[0]}, but {shapes[1]} in {reference}")
    scale = max(_rms(expected), floor)
    rows = expected.size(0) if expected.dim() else 1
    width = expected.numel() // rows if rows else 0
    row_scale = scale * width**0.5
    squares, worst, worst_index = 0.0, 0.0, 0
    for start in range(0, rows, BLOCK_ROWS):
        ours, theirs = (t.reshape(rows, -1)[start : start + BLOCK_ROWS] for t in (found, expected))
        for tensor, where in ((theirs, f" of {reference}"), (ours, "")):
            if not bool(tensor.isfinite().all()):
                row = start + int((~tensor.isfinite()).any(dim=1).int().argmax())
                return TensorError(problem=f"NaN or infinity in row {row}{where}")
        difference = (ours.double() - theirs.double()).norm(dim=1)
        squares += float(difference.square().sum())
        against = theirs.double().norm(dim=1).clamp(min=row_scale)
        ratio = (difference / against).nan_to_num(nan=0.0, posinf=1e30)  # nan: zero against zero
        at = int(ratio.argmax())
        if float(ratio[at]) > worst:
            worst, worst_index = float(ratio[at]), start + at
    error = (squares / max(expected.numel(), 1)) ** 0.5
    rel_rms = error / scale if scale else (0.0 if error == 0 else 1e30)
    problem, row_tolerance = "", ROW_TOLERANCE / TOLERANCE * tolerance
    if rel_rms > tolerance:
        problem = f"off by {rel_rms:.1e} of its RMS, more than {tolerance:g}"
    elif worst > row_tolerance:
        problem = f"row {worst_index} off by {worst:.1e} of its norm, more than {row_tolerance:g}"
    return TensorError(rel_rms=rel_rms, worst_row=worst, worst_row_index=worst_index, problem=problem)


def _badness(error: TensorError) -> float:
    if error.rel_rms is None or error.worst_row is None:
        return float("inf")
    return max(error.rel_rms / TOLERANCE, error.worst_row / ROW_TOLERANCE)
