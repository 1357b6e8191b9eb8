"""Workers of which rank 1 meets what a file in their folder names, once training is under way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from gnnbench.training import run
from gnnbench.training.batching import parts

EPOCH = 3  # in which it happens


def interrupted(loss: Tensor) -> Tensor:
    signal.raise_signal(signal.SIGINT)
    return loss


def hangs(loss: Tensor) -> Tensor:
    time.sleep(1000)
    return loss


def not_a_number(loss: Tensor) -> Tensor:
    return loss * torch.nan


def out_of_memory(loss: Tensor) -> Tensor:
    return loss + torch.empty(1 << 60).sum()


FAULTS: dict[str, Callable[[Tensor], Tensor]] = {
    "interrupted": interrupted,
    "hangs": hangs,
    "not a number": not_a_number,
    "out of memory": out_of_memory,
}
OTHERS = "another configuration"


class Share(run.Share):
    """The work of a worker; the fault's time goes to a file in its folder."""

    def perform(self) -> int:
        if os.environ["RANK"] != "1":
            return super().perform()
        fault = wanted(self.out).read_text()
        calls, whole, resolved = iter(range(1, 1000)), parts.Parts.loss, run.resolved

        def loss(own: parts.Parts, logits: Tensor) -> Tensor:
            result = whole(own, logits)
            if next(calls) != EPOCH:
                return result
            at(self.out).touch()
            return FAULTS[fault](result)

        def other(config: run.Run) -> dict[str, object]:
            at(self.out).touch()
            return {**resolved(config), "train": {}}

        if fault == OTHERS:
            with patch.object(run, "resolved", other), patch.object(run.code, "digest", lambda _: "other"):
                return super().perform()
        with patch.object(parts.Parts, "loss", loss):
            return super().perform()


def wanted(out: Path) -> Path:
    """The file that names it."""
    return out / "wanted"


def at(out: Path) -> Path:
    """The file that is written when it happens."""
    return out / "fault"
