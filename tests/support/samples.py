"""Epochs as a run records them, made up from their seconds."""

from __future__ import annotations

from typing import Any

from gnnbench.results.schema import Sample


def sample(epoch: int, seconds: float, **fields: Any) -> Sample:
    """A quarter of it forward, half backward; the first epoch is warm-up."""
    phases = {"forward_s": seconds / 4, "backward_s": seconds / 2, "optimizer_s": seconds / 4}
    others: dict[str, Any] = {"repeat": 0, "warmup": epoch == 1, "peak_memory_bytes": 1000, "loss": 1 / epoch}
    return Sample(epoch=epoch, epoch_s=seconds, **phases, **others | fields)
