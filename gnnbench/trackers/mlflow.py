"""MLflow: a run for every repeat, where MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow


class Tracker:
    def __init__(self, folder: Path, name: str, config: dict[str, Any]) -> None:
        mlflow.start_run(run_name=name)
        mlflow.log_params(config)

    def log(self, values: dict[str, float], epoch: int) -> None:
        mlflow.log_metrics(values, step=epoch)

    def close(self) -> None:
        mlflow.end_run()
