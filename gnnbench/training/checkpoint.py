"""Checkpoints: everything that a stopped run needs to go on to the numbers it would have reached."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.results import files, schema
from gnnbench.results.schema import Evaluation, Result
from gnnbench.training.loop import Trainer

CHECKPOINT = "checkpoint.pt"
WEIGHTS = "best.pt"  # a `state_dict`, of the evaluation with the best validation metric of all repeats
LONGEST_S = 60  # between two of them, but for an epoch that takes longer


class Best:
    """The weights of the best evaluation so far, by its validation metric.

    Attributes:
        weights: a copy of the model's `state_dict`; empty before the first evaluation.
    """

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] = {}
        self._found: list[Evaluation] = []

    def see(self, evaluation: Evaluation, model: Module) -> None:
        """Keep the weights of `model` if none had a better evaluation."""
        self._found = [schema.best([*self._found, evaluation])]
        if self._found[0] is evaluation:
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}

    def restore(self, weights: dict[str, Tensor], evaluations: Sequence[Evaluation]) -> None:
        """Go on from what a checkpoint holds, with the evaluations before it."""
        self.weights, self._found = weights, [schema.best(evaluations)] if evaluations else []

    def export(self, folder: Path) -> None:
        """Write the weights for models of PyG.

        Raises:
            GnnbenchError: the folder cannot be written or the disk is full.
        """
        if self.weights:
            files.save_by(partial(torch.save, self.weights), folder / WEIGHTS)


def save(folder: Path, trainer: Trainer, repeat: int, result: Result, best: Best) -> None:
    """Write the state after an epoch of `repeat`, with what was measured so far.

    PyTorch's generators are the only source of randomness in training, so their states suffice.

    Raises:
        GnnbenchError: the folder cannot be written or the disk is full.
    """
    state = {
        "repeat": repeat,
        "trainer": trainer.state_dict(),
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "result": result.model_dump_json(),
        "best": best.weights,
    }
    files.save_by(partial(torch.save, state), folder / CHECKPOINT)


def read(folder: Path) -> bytes:
    """The checkpoint in `folder` as it was written; empty where nothing was written yet.

    Raises:
        GnnbenchError: the file cannot be read.
    """
    path = folder / CHECKPOINT
    try:
        return path.read_bytes() if path.exists() else b""
    except OSError:
        raise _unreadable(folder) from None


def parsed(content: bytes, folder: Path | None) -> dict[str, Any] | None:
    """The checkpoint that was read in `folder`, on the CPU; None where nothing was written yet.

    Raises:
        GnnbenchError: the file is broken.
    """
    if not content:
        return None
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        state["result"] = Result.model_validate_json(state["result"])
        state["best"]
    except (OSError, EOFError, KeyError, ValueError, RuntimeError, pickle.UnpicklingError):
        raise _unreadable(folder) from None
    return state


def _unreadable(folder: Path | None) -> GnnbenchError:
    path = CHECKPOINT if folder is None else folder / CHECKPOINT
    return GnnbenchError(
        f"{path}: is not a readable checkpoint; remove it and resume to train from the first epoch"
    )


def discard(folder: Path) -> None:
    """Remove the checkpoint and the weights of an earlier run in `folder`.

    Raises:
        GnnbenchError: one cannot be removed.
    """
    for path in (folder / CHECKPOINT, folder / WEIGHTS):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise GnnbenchError(f"{path}: cannot be removed: {error.strerror}; choose another --out") from None


def restore(state: dict[str, Any], trainer: Trainer, best: Best) -> None:
    """Bring a freshly built trainer, its best weights and the random generators to where `save` was called."""
    trainer.load_state_dict(state["trainer"])
    best.restore(state["best"], state["result"].evaluations)
    torch.set_rng_state(state["rng"])
    if state["cuda_rng"]:
        torch.cuda.set_rng_state_all(state["cuda_rng"])


def resumed(result: Result, code: str) -> Result:
    """A result to go on with, which says so if `code` is not the code of its epochs so far."""
    if result.code != code and result.samples:
        last = result.samples[-1].epoch
        result.warnings.append(f"epochs up to {last} ran on other code than those after them: measure them again")
    result.code = code
    return result


def check_same(stored: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Refuse to go on with a run of another configuration.

    Raises:
        ConfigError: naming the keys that differ.
    """
    if keys := _differences(stored, wanted):
        raise ConfigError(
            f"{folder}: holds a run of another configuration, which differs in {', '.join(keys)}; "
            "resume it with its own configuration, or choose another --out"
        )


def _differences(stored: Any, wanted: Any, key: str = "") -> list[str]:
    if isinstance(stored, dict) and isinstance(wanted, dict):
        names = sorted(stored.keys() | wanted.keys())
        nested = (_differences(stored.get(n), wanted.get(n), f"{key}.{n}" if key else n) for n in names)
        return [difference for differences in nested for difference in differences]
    return [] if stored == wanted else [f"{key} ({stored!r} there, {wanted!r} here)"]
