"""Training on a graph that is larger than the memory it may use, mapped from disk.

    python tests/measure/mapped.py --folder DIR [--dataset SPEC] [--share 0.9] [--epochs N]

Converts SPEC into DIR, unless it is there, and trains GraphSAGE on samples of it under a memory limit of a share
of its arrays: with sampled evaluation, which must end well, and on the whole graph, which must say that it cannot.
Prints the highest memory of either process, of its own and of files, which the system takes back when it needs it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "sage_mean_ogbn_products_sampled.yaml"
SMALL = ("model.layers=2", "model.hidden=64", "batch.fanouts=[10,5]")  # whose batches are small beside the graph
KINDS = {"RssAnon": "own memory", "RssFile": "of files", "VmData": "limited"}


def trained(folder: Path, limit: int, evaluation: str, epochs: int) -> tuple[dict[str, object], dict[str, int]]:
    """The result of a run, and its highest memory in bytes."""
    command = [sys.executable, "-m", "gnnbench", "train", str(CONFIG), "--dataset", str(folder)]
    command += ["--backend", "isplib", "--memory-limit", f"{limit}B", "--epochs", str(epochs), "--json"]
    command += ["--set", f"batch.evaluation={evaluation}", "--set", f"train.eval_every={epochs}"]
    command += [word for setting in SMALL for word in ("--set", setting)]
    highest = dict.fromkeys(KINDS, 0)
    with tempfile.TemporaryDirectory() as out, tempfile.TemporaryFile() as output:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen([*command, "--out", out], stdout=output, env=environment)
        while process.poll() is None:
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in highest:
                    highest[name] = max(highest[name], int(value.split()[0]) << 10)
            time.sleep(0.02)
        output.seek(0)
        result: dict[str, object] = json.loads(output.read())
    return result, highest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--dataset", default="synthetic:ogbn-products:1")
    parser.add_argument("--share", type=float, default=0.9)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    header = options.folder / "gnnbench.json"
    if not header.exists():
        command = [sys.executable, "-m", "gnnbench", "datasets", "convert", options.dataset]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        subprocess.run([*command, "--out", str(options.folder)], check=True, env=environment)
    arrays = sum(array["bytes"] for array in json.loads(header.read_text())["arrays"].values())
    limit = int(arrays * options.share)
    print(f"arrays of {arrays / 2**20:.0f} MiB, limit of {limit / 2**20:.0f} MiB")
    wanted = {"sampled": "ok", "full": "oom"}
    for evaluation, status in wanted.items():
        result, highest = trained(options.folder, limit, evaluation, options.epochs)
        memory = ", ".join(f"{words} {highest[name] / 2**20:.0f} MiB" for name, words in KINDS.items())
        print(f"evaluation {evaluation}: {result['status']} {result['reason']}\n  {memory}\n  {result['metrics']}")
        if result["status"] != status:
            sys.exit(f"evaluation {evaluation} must end as {status}")


if __name__ == "__main__":
    main()
