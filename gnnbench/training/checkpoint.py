"""Checkpoints: everything that a stopped run needs to go on to the numbers it would have reached."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
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


@dataclass
class Best:
    """The weights of the best evaluation so far, by its validation metric."""

    weights: dict[str, Tensor] = field(default_factory=dict)  # a copy of the model's `state_dict`; empty before it
    found: list[Evaluation] = field(default_factory=list)  # that evaluation, if any

    def see(self, evaluation: Evaluation, model: Module) -> None:
        """Keep the weights of `model` if none had a better evaluation."""
        self.found = [schema.best([*self.found, evaluation])]
        if self.found[0] is evaluation:
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}

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


def read(folder: Path, code: str) -> dict[str, Any] | None:
    """The checkpoint in `folder`, on the CPU; None where nothing was written yet.

    Args:
        code: of the epochs to come; the result says so if it is not that of those before.

    Raises:
        GnnbenchError: the file cannot be read, or is broken.
    """
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        state["result"] = result = Result.model_validate_json(state["result"])
        state["best"]
    except (OSError, EOFError, KeyError, ValueError, RuntimeError, pickle.UnpicklingError):
        raise GnnbenchError(
            f"{path}: is not a readable checkpoint; remove it and resume to train from the first epoch"
        ) from None
    if result.code != code and result.samples:
        last = result.samples[-1].epoch
        result.warnings.append(f"epochs up to {last} ran on other code than those after them: measure them again")
    result.code = code
    return state


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
    best.weights, evaluations = state["best"], state["result"].evaluations
    best.found = [schema.best(evaluations)] if evaluations else []
    torch.set_rng_state(state["rng"])
    if state["cuda_rng"]:
        torch.cuda.set_rng_state_all(state["cuda_rng"])


def check_same(stored: dict[str, Any], wanted: dict[str, Any], folder: Path) -> None:
    """Refuse to go on with a run of another configuration.

    Raises:
        ConfigError: naming the keys that differ.
    """
    there, here = dict(schema.flat(stored)), dict(schema.flat(wanted))
    keys = [key for key in sorted(there | here) if there.get(key) != here.get(key)]
    if named := [f"{key} ({there.get(key)!r} there, {here.get(key)!r} here)" for key in keys]:
        raise ConfigError(
            f"{folder}: holds a run of another configuration, which differs in {', '.join(named)}; "
            "resume it with its own configuration, or choose another --out"
        )
