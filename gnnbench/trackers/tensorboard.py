"""TensorBoard: event files in the folder `tensorboard` of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class Tracker:
    def __init__(self, folder: Path, name: str, config: dict[str, Any]) -> None:
        self.writer = SummaryWriter(str(folder / "tensorboard" / name))
        rows = "\n".join(f"| {key} | {value} |" for key, value in config.items())
        self.writer.add_text("config", f"| key | value |\n| --- | --- |\n{rows}")

    def log(self, values: dict[str, float], epoch: int) -> None:
        """Write before the next epoch begins, as the writer's own thread would do it while that is timed."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
