"""Checkpoints: everything that a stopped run needs to go on to the numbers it would have reached."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.results import files
from gnnbench.results.schema import Result
from gnnbench.training.loop import Trainer

RESULTS = "results.json"
CHECKPOINT = "checkpoint.pt"
LONGEST_S = 60  # between two of them, but for an epoch that takes longer


def save(folder: Path, trainer: Trainer, repeat: int, result: Result) -> None:
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
    }
    content = io.BytesIO()
    torch.save(state, content)
    files.save_bytes(content.getvalue(), folder / CHECKPOINT)


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
    except (OSError, EOFError, KeyError, ValueError, RuntimeError, pickle.UnpicklingError):
        raise _unreadable(folder) from None
    return state


def _unreadable(folder: Path | None) -> GnnbenchError:
    path = CHECKPOINT if folder is None else folder / CHECKPOINT
    return GnnbenchError(
        f"{path}: is not a readable checkpoint; remove it and resume to train from the first epoch"
    )


def discard(folder: Path) -> None:
    """Remove the checkpoint of an earlier run in `folder`.

    Raises:
        GnnbenchError: it cannot be removed.
    """
    try:
        (folder / CHECKPOINT).unlink(missing_ok=True)
    except OSError as error:
        raise GnnbenchError(
            f"{folder / CHECKPOINT}: cannot be removed: {error.strerror}; choose another --out"
        ) from None


def restore(state: dict[str, Any], trainer: Trainer) -> None:
    """Bring a freshly built trainer and the random generators to where `save` was called."""
    trainer.load_state_dict(state["trainer"])
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
