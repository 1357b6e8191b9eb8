"""Weights & Biases: a run for every repeat in the project that WANDB_PROJECT names, else gnnbench."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import wandb


class Tracker:
    def __init__(self, folder: Path, name: str, config: dict[str, Any]) -> None:
        project = os.environ.get("WANDB_PROJECT", "gnnbench")
        self.run = wandb.init(project=project, name=name, config=config, dir=str(folder))

    def log(self, values: dict[str, float], epoch: int) -> None:
        self.run.log(values, step=epoch)

    def close(self) -> None:
        self.run.finish()
