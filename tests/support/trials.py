"""Trials of a sweep without processes: what they would write, from their configurations."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from gnnbench import datasets, sweeps
from gnnbench.cells import Outcome, Work
from gnnbench.results import files
from gnnbench.results.schema import Evaluation, Result
from tests.support.compare_runner import FACTS
from tests.support.samples import sample

RUN = """
dataset: {source: synthetic, preset: cora, scale: 0.05}
model: {name: gcn, hidden: 8}
train: {epochs: 3, seed: 5, repeats: 7}
"""
GRID = """
run: run.yaml
grid:
  model.hidden: [8, 16, 32]
  backend: [pyg, isplib]
repeats: 2
"""


def written(folder: Path, grid: str = GRID, run: str = RUN) -> Path:
    """The files of a sweep; the path of the second."""
    (folder / "run.yaml").write_text(run)
    (folder / "grid.yaml").write_text(grid)
    return folder / "grid.yaml"


class Trials:
    """Stands in for processes: isplib takes a tenth of the time, and 16 is the best width by validation."""

    def __init__(self, broken: Collection[str] = ()) -> None:
        self.ran: list[str] = []
        self.broken = broken

    def __call__(self, work: Work, tell: Callable[[str], None]) -> Outcome:
        trial: sweeps.Trial = work.cell
        self.ran.append(f"{trial.name}, {trial.seed}")
        outcome = Outcome(status="ok", wall_s=2.0, code=work.code)
        if trial.name in self.broken:
            outcome.status, outcome.reason = "oom", "out of memory: too wide"
        else:
            files.save_json(result(trial), work.out / "results.json")
        files.save_json(outcome, work.path)
        return outcome


def result(trial: sweeps.Trial) -> Result:
    model, backend = trial.config["model"], trial.config["backend"]["name"]
    seconds = model["hidden"] / (800 if backend == "isplib" else 80)
    samples = [sample(epoch, seconds, peak_memory_bytes=1000 * model["hidden"]) for epoch in (1, 2, 3)]
    name = trial.config["dataset"].get("preset", "cora")
    made = Result(status="ok", backend=backend, dataset=name, config=trial.config, samples=samples)
    made.dataset_facts = FACTS
    val = 0.9 - abs(model["hidden"] - 16) / 100 + (trial.seed - 5) / 50
    made.evaluations = [Evaluation(repeat=0, epoch=3, train=1.0, val=val, test=val - 0.1)]
    made.environment = {"packages": {"torch": "1"}}
    made.refresh()
    return made


def swept(
    plan: sweeps.Plan, out: Path, trials: Callable[..., Outcome] | None = None, **options: object
) -> sweeps.Sweep:
    """A sweep whose trials are `Trials`."""
    roots = datasets.Roots(out / "raw", out / "cache")
    return sweeps.sweep(plan, out=out, roots=roots, execute=trials or Trials(), **options)
