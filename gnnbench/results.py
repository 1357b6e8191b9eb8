"""The result of a run: its schema, every raw sample, and its JSON, written atomically."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gnnbench.errors import GnnbenchError

SCHEMA_VERSION = 1
Status = Literal["ok", "interrupted", "oom", "unsupported", "unavailable", "failed"]


class Record(BaseModel):
    """A part of a result; unknown keys are refused so that a file of another schema is noticed."""

    model_config = ConfigDict(extra="forbid")


class Sample(Record):
    """One training epoch. Times in seconds, memory in bytes."""

    repeat: int
    epoch: int = Field(description="from 1")
    warmup: bool = Field(description="measured, kept here, and left out of every summary")
    forward_s: float
    backward_s: float
    optimizer_s: float
    epoch_s: float = Field(description="the whole epoch, evaluation excluded")
    peak_memory_bytes: int = Field(
        description="highest memory of the process (CPU) or device (CUDA) in this epoch"
    )
    loss: float


class Evaluation(Record):
    """Metrics after an epoch, taken outside the timed region."""

    repeat: int
    epoch: int
    train: float
    val: float
    test: float


class Summary(Record):
    """A distribution of times in seconds over all epochs that are not warm-up."""

    median: float
    low: float = Field(description="lower end of the 95% bootstrap interval of the median")
    high: float = Field(description="upper end of it")
    mad: float = Field(description="median absolute deviation")
    count: int


class Metrics(Record):
    """Quality at the epoch with the best validation metric (the last one without validation nodes)."""

    name: str
    train: float
    val: float
    test: float
    test_std: float = Field(description="standard deviation over repeats; zero for one")
    per_repeat: list[Evaluation]


class DatasetFacts(Record):
    name: str
    made_up: list[str] = Field(description="what is not real: graph, features, labels, split")
    nodes: int
    edges: int
    features: int
    classes: int


class BindingRecord(Record):
    """Which conv ran on which kernels; see `gnnbench.backends.base.Binding`."""

    module: str
    conv: str
    kernels: dict[str, str]
    rewrites: list[str]


class Result(Record):
    """Everything known about one run; fields that a failed run never reached are None or empty."""

    schema_version: int = SCHEMA_VERSION
    status: Status
    reason: str = Field("", description="one sentence where status is not ok")
    backend: str
    dataset: str = Field(description="the dataset's label, with what is synthetic")
    dataset_facts: DatasetFacts | None = None
    config: dict[str, Any] = Field(description="the resolved configuration")
    environment: dict[str, Any] = {}
    bindings: list[BindingRecord] = []
    prepare_s: float | None = Field(None, description="CSR, transpose and plan; once per graph")
    epoch_s: Summary | None = None
    forward_s: Summary | None = None
    backward_s: Summary | None = None
    optimizer_s: Summary | None = None
    resting_memory_bytes: int | None = Field(
        None, description="before the first epoch, data and model loaded"
    )
    peak_memory_bytes: int | None = Field(None, description="highest epoch that is not warm-up")
    memory_increase_bytes: int | None = Field(None, description="peak above the resting level")
    metrics: Metrics | None = None
    samples: list[Sample] = []
    evaluations: list[Evaluation] = []
    warnings: list[str] = []


def save_json(record: BaseModel, path: Path) -> None:
    """Write `record` to `path` so that a reader sees the old file or the whole new one.

    Raises:
        GnnbenchError: the folder cannot be written or the disk is full.
    """
    save_text(record.model_dump_json(indent=1), path)


def save_text(text: str, path: Path) -> None:
    """Write a text file atomically; errors as `save_json`."""
    save_bytes(text.encode(), path)


def save_bytes(content: bytes, path: Path) -> None:
    """Write a file atomically; errors as `save_json`."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise GnnbenchError(f"{path}: cannot be written: {error.strerror}; choose another --out") from None


def load_result(path: Path) -> Result:
    """Read a result back.

    Raises:
        GnnbenchError: missing, not JSON, or of another schema.
    """
    try:
        return Result.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise GnnbenchError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise GnnbenchError(
            f"{path}: is not a result of schema {SCHEMA_VERSION}: {str(error).splitlines()[0]}"
        ) from None
