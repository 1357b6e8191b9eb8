"""A comparison without processes: `Runner` writes what they would."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch

from gnnbench import config, datasets
from gnnbench.comparison import compare, record, resolve
from gnnbench.comparison.parity import RoundParity
from gnnbench.comparison.parity.judge import Snapshot
from gnnbench.comparison.process import Job
from gnnbench.launch import _server
from gnnbench.results import files, schema
from gnnbench.results.schema import Result
from tests.support.samples import sample

ROOTS = datasets.Roots(Path("raw"), Path("cache"))
EPOCHS = 4
SECONDS = {"pyg": 0.8, "pyg-sparse": 0.4, "isplib": 0.1, "reference": 1.6}


def run_config(**backend: Any) -> Any:
    raw = {
        "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.1},
        "model": {"name": "gat", "hidden": 8, "heads": 2, "attention_dropout": 0.5},
        "train": {"epochs": EPOCHS, "repeats": 5, "patience": 3},
        "backend": {"name": "isplib", **backend},
    }
    return config.validate(raw, "test")


FACTS = schema.DatasetFacts(
    name="zoo", synthetic_parts=[], nodes=3, edges=4, features=2, classes=2, metric="accuracy"
)


class Runner:
    """Stands in for processes: writes what they would, remembers every job."""

    def __init__(self, **cells: Callable[[Job], Result]) -> None:
        self.cells = cells
        self.jobs: list[tuple[str, str]] = []
        self.losses = [3.0, 2.0, 1.0, 0.5]
        self.warnings: list[str] = []
        self.wrong = self.wrong_in_the_end = ""
        self.environment: dict[str, Any] = {"packages": {"torch": "1"}}

    def __call__(self, job: Job) -> Result:
        name = job.config["backend"]["name"]
        self.jobs.append((job.task, name))
        job.out.mkdir(parents=True, exist_ok=True)
        result = self.cells.get(name.replace("-", "_"), self.good)(job)
        files.save_json(result, job.result_path)
        return result

    def good(self, job: Job) -> Result:
        name = job.config["backend"]["name"]
        if job.task not in ("train", "rounding"):
            logits = torch.arange(6.0).reshape(3, 2) + (name == self.wrong and job.task != "exact")
            Snapshot({"logits": logits, "gradient": logits}).save(job.tensors_path)
            return Result(status="ok", backend=name, dataset="zoo", config=job.config, code=job.code)
        if job.reference:
            assert job.reference[0].exists()
            wrong = name == self.wrong_in_the_end
            verdict = RoundParity(ok=not wrong, reason="logits in evaluation: off by 5e-01" * wrong)
            files.save_json(verdict, job.verdict_path)
        seconds = SECONDS.get(name, 1.0)
        samples = [
            sample(epoch, seconds * (100 if epoch == 1 else 1), peak_memory_bytes=int(seconds * 1000), loss=loss)
            for epoch, loss in enumerate(self.losses, start=1)
        ]
        result = Result(
            status="ok", backend=name, dataset="zoo", config=job.config, samples=samples, code=job.code
        )
        result.prepare_s, result.resting_memory_bytes = seconds * 10 * (name != "pyg"), 50
        result.environment = self.environment
        result.evaluations = [schema.Evaluation(repeat=0, epoch=1, train=0.9, val=0.8, test=0.7)]
        result.warnings = list(self.warnings)
        result.dataset_facts = FACTS
        result.refresh()
        return result


def cell(status: Any, task: str = "train") -> Callable[[Job], Result]:
    def make(job: Job) -> Result:
        return job.failed(status, f"is {status}") if job.task == task else Runner().good(job)

    return make


def compared(out: Path, runner: Runner, *names: str, rounds: int = 3, **options: Any) -> record.Comparison:
    names = names or ("pyg", "pyg-sparse", "isplib")
    config = options.pop("config", None) or run_config()
    if epochs := options.pop("epochs", 0):
        config = config.model_copy(update={"train": config.train.model_copy(update={"epochs": epochs})})
    run = resolve(config, names)
    return compare(run, rounds=rounds, out=out, roots=ROOTS, execute=runner, **options)


def row(found: record.Comparison, name: str) -> record.Row:
    return next(row for row in found.rows if row.backend == name)


def jobs_of(pid: int) -> list[psutil.Process]:
    """The processes that a comparison runs its jobs in: children of the one that forks them."""
    jobs = []
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            jobs += child.children() if _server.__name__ in child.cmdline() else []
    return jobs
