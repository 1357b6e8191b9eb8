"""MLflow: a run for every repeat, where MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow


class Tracker:
    """Log the parameters and metrics of a repeat."""

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any]) -> None:
        mlflow.start_run(run_name=name)
        mlflow.log_params(dict(config))

    def log(self, values: Mapping[str, float], epoch: int) -> None:
        mlflow.log_metrics(dict(values), step=epoch)

    def close(self) -> None:
        mlflow.end_run()
