"""Where the time of a whole `gnnbench compare` goes: starting it, PyG's epochs, ours, and evaluations.

    python tests/measure/whole_command.py --out FILE [--repeats N]

Times `gnnbench compare configs/gcn_cora.yaml --rounds 3 --epochs 20` as a user waits for it; with jobs in
processes that each import PyG, and not forked from one that has; without the evaluation after every epoch; with
one round of one epoch, which leaves what any comparison costs; and the import of PyG alone. Writes the medians
to FILE, with the seconds that each backend's epochs took together, warm-up included.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from gnnbench import kinds
from gnnbench.measure import environment
from gnnbench.results import files
from gnnbench.results.schema import Record

COMMAND = ("compare", "configs/gcn_cora.yaml", "--rounds", "3", "--epochs", "20")
PROGRAM = "from gnnbench.cli import main; main()"
UNFORKED = f"from gnnbench import launch; launch.FORKS = False; {PROGRAM}"
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "whole": (PROGRAM, ()),
    "unforked": (UNFORKED, ()),
    "without_evaluation": (PROGRAM, ("--set", "train.eval_every=1000")),
    "least": (PROGRAM, ("--rounds", "1", "--epochs", "1")),
}
IMPORT = "import os, torch_geometric.nn; os._exit(0)"  # without tearing it down


class WholeCommand(Record):
    """Medians of all repeats."""

    environment: dict[str, Any]
    command: str
    repeats: int
    seconds: dict[str, float] = Field(description="of `RUNS`, and of importing PyG")
    epochs_s: dict[str, float] = Field(description="of all epochs of a backend in the command as it is")


def timed(program: str, options: tuple[str, ...]) -> tuple[float, dict[str, float]]:
    """Seconds of the command, and of all epochs by backend."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", program, *COMMAND, *options, "--quiet", "--out", folder]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
        seconds = time.perf_counter() - start
        rounds = kinds.load(Path(folder)).results()
        epochs = {
            name: sum(sample.epoch_s for result in results for sample in result.samples)
            for name, results in rounds.items()
        }
    return seconds, epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in (*RUNS, "import")}
    epochs: list[dict[str, float]] = []
    for _ in range(options.repeats):
        for name, run in RUNS.items():
            whole, by_backend = timed(*run)
            seconds[name].append(whole)
            if name == "whole":
                epochs.append(by_backend)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", IMPORT], check=True)
        seconds["import"].append(time.perf_counter() - start)
    record = WholeCommand(
        environment=environment.describe(),
        command=" ".join(("gnnbench", *COMMAND)),
        repeats=options.repeats,
        seconds={name: statistics.median(times) for name, times in seconds.items()},
        epochs_s={name: statistics.median(each[name] for each in epochs) for name in epochs[0]},
    )
    files.save_json(record, options.out)
    print(record.model_dump_json(indent=2, exclude={"environment"}))


if __name__ == "__main__":
    main()
