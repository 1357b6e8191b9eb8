"""Measure what is left of a speedup where another program keeps every core busy.

    python tests/measure/shared_cores.py [--config YAML] [--dataset SPEC,SPEC] [--rounds N] [--epochs N]

Compares isplib with pyg on a quiet machine and beside one busy loop for each core, in turn, and prints the share
of the quiet ratio that is kept; at least 70% must be.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 0.7


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Run that many processes that never wait, while the block runs."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def epoch_s(backend: str, config: str, dataset: str, epochs: int) -> float:
    """The median epoch of a run in a process of its own, in seconds."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "gnnbench", "train", config, "--backend", backend, "--dataset", dataset]
        command += ["--epochs", str(epochs), "--set", "train.eval_every=1000", "--out", out, "--json"]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True, text=True
        )
    return float(json.loads(done.stdout)["epoch_s"]["median"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "configs" / "gcn_cora.yaml"))
    parser.add_argument("--dataset", default="cora,synthetic:reddit:0.05")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    least = 1.0
    print(
        f"{'dataset':24} {'quiet':>8} {'busy':>8} {'kept':>8}   isplib vs pyg, median of {options.rounds} rounds"
    )
    for dataset in options.dataset.split(","):
        ratios: dict[int, list[float]] = {0: [], cores: []}
        for _ in range(options.rounds):
            for loops, found in ratios.items():
                with busy(loops):
                    pyg, ours = (
                        epoch_s(backend, options.config, dataset, options.epochs) for backend in ("pyg", "isplib")
                    )
                found.append(pyg / ours)
        quiet, shared = map(statistics.median, ratios.values())
        print(f"{dataset:24} {quiet:7.2f}x {shared:7.2f}x {shared / quiet:8.0%}", flush=True)
        least = min(least, shared / quiet)
    if least < LIMIT:
        sys.exit(f"only {least:.0%} of a quiet ratio is kept, less than {LIMIT:.0%}")


if __name__ == "__main__":
    main()
