"""Commands killed by SIGKILL at random moments and resumed, until they end: what is lost, measured twice or left.

    python tests/measure/killed.py --kills 200 [--verbs train,compare,sweep] [--out FILE]

Every other kill hits the command alone, the others all of its processes, in random order. A command that ends is
held against one that nobody disturbed, and the next one begins in a new folder, with an empty cache. It takes
about five seconds per kill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

MARK = "GNNBENCH_KILLED"  # in the environment of everything that a command starts
RUN = ("--dataset", "synthetic:cora:0.05", "--set", "model.hidden=8")
GRID = """
run: run.yaml
grid: {train.lr: [0.01, 0.1, 0.2]}
repeats: 2
"""
TRIAL = """
dataset: {source: synthetic, preset: cora, scale: 0.05}
model: {name: gcn, hidden: 8}
train: {epochs: 10}
backend: {name: reference}
"""
COMMANDS = {
    "train": ["train", *RUN, "--epochs", "300", "--set", "train.checkpoint_every=20"],
    "compare": ["compare", *RUN, "--epochs", "10", "--backends", "pyg,reference", "--rounds", "2"],
    "sweep": ["sweep", "../grid.yaml"],
}
RESULTS = {"train": "checkpoint.pt", "compare": "rounds/*/*/results.json", "sweep": "cells/*/outcome.json"}
GONE_S = 10  # that processes may take to end after the command that started them


class Attempt:
    """A command in a folder of its own, begun and resumed until it ends."""

    def __init__(self, verb: str, folder: Path) -> None:
        self.verb, self.folder, self.kills = verb, folder, 0
        folder.mkdir()
        (folder / "tmp").mkdir()
        self.seen: dict[str, Any] = {}
        self.faults: Counter[str] = Counter()

    def run(self, until_s: float, alone: bool) -> bool:
        """Start or resume it, and kill it after `until_s`; True if it ended before."""
        command = COMMANDS[self.verb] + ["--out", "out", "--quiet"]
        if self.verb == "train" and (self.folder / "out/results.json").exists():
            command = ["train", "--resume", "out", "--quiet"]
        token = f"{os.getpid()}-{self.folder.name}"
        places = {"GNNBENCH_CACHE": str(self.folder / "cache"), "TMPDIR": str(self.folder / "tmp")}
        process = subprocess.Popen(
            [sys.executable, "-m", "gnnbench", *command],
            cwd=self.folder,
            env={**os.environ, **places, MARK: token, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, said = process.communicate(timeout=until_s)
            self.faults["failed"] += process.returncode != 0
            if process.returncode:
                print(f"{self.folder}: exit code {process.returncode}: {said}", file=sys.stderr)
            ended = True
        except subprocess.TimeoutExpired:
            killed = [process.pid] if alone else marked(token)
            random.shuffle(killed)
            for pid in killed:
                kill(pid)
            process.communicate()
            ended = False
            self.kills += 1
        deadline = time.monotonic() + GONE_S
        while (left := marked(token)) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.faults["processes left"] += len(left)
        for pid in left:
            kill(pid)
        self.look()
        return ended

    def look(self) -> None:
        """Hold what is finished against what was finished before."""
        for name, content in self.finished().items():
            before = self.seen.get(name, content)
            same = content[: len(before)] == before if isinstance(content, list) else content == before
            self.faults["lost or measured twice"] += not same
            self.seen[name] = content
        self.faults["lost or measured twice"] += len(self.seen.keys() - self.finished().keys())

    def finished(self) -> dict[str, Any]:
        """The time of every epoch that a resumed command has no reason to measure again."""
        found: dict[str, Any] = {}
        for path in (self.folder / "out").glob(RESULTS[self.verb]):
            if self.verb == "train":
                import torch

                found["train"] = times(json.loads(torch.load(path, weights_only=True)["result"]))
                continue
            record = json.loads(path.read_text())
            if record["status"] == "interrupted":
                continue
            self.faults["wrong status"] += record["status"] != "ok"
            found[str(path)] = path.read_text()
        return found

    def losses(self) -> dict[str, list[float]]:
        """Return those of every run in the folder."""
        paths = (self.folder / "out").rglob("results.json")
        return {
            str(path.relative_to(self.folder)): [
                sample["loss"] for sample in json.loads(path.read_text())["samples"]
            ]
            for path in paths
        }

    def files(self) -> Counter[str]:
        """All that it left, but for the sources that PyG generates and never deletes."""
        left = (path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())
        return Counter(str(path) for path in left if not path.name.startswith("torch_geometric."))


def times(result: dict[str, Any]) -> list[Any]:
    return [(sample["epoch"], sample["epoch_s"]) for sample in result["samples"]]


def marked(token: str) -> list[int]:
    """All processes that a command started, whoever has adopted them."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == token:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kills_of(verb: str, wanted: int, folder: Path) -> dict[str, int]:
    """Kill a verb so often; counts of kills, of commands that ended, and of everything that went wrong."""
    (folder / "grid.yaml").write_text(GRID)
    (folder / "run.yaml").write_text(TRIAL)
    undisturbed = Attempt(verb, folder / "undisturbed")
    start = time.monotonic()
    if not undisturbed.run(600, alone=True) or undisturbed.faults["failed"]:
        sys.exit(f"{verb} does not end well where nobody disturbs it")
    whole_s = time.monotonic() - start
    shared = {*Path("/dev/shm").iterdir()}
    counts: Counter[str] = Counter()
    while counts["kills"] < wanted:
        number = counts["ended"]
        attempt = Attempt(verb, folder / str(number))
        while not attempt.run(random.uniform(0, whole_s), alone=bool((counts["kills"] + attempt.kills) % 2)):
            pass
        attempt.faults["other losses"] += attempt.losses() != undisturbed.losses()
        expected, left = undisturbed.files(), attempt.files()
        attempt.faults["files left"] += (left - expected).total()
        attempt.faults["files missing"] += (expected - left).total()
        if any(attempt.faults.values()):
            print(
                f"{attempt.folder}: {+attempt.faults}", [*(left - expected), *(expected - left)], file=sys.stderr
            )
        counts["kills"] += attempt.kills
        counts["ended"] += 1
        counts.update(attempt.faults)
        print(f"{verb}: {counts['kills']} kills, {dict(+counts)}", file=sys.stderr, flush=True)
    counts["shared memory left"] = len({*Path("/dev/shm").iterdir()} - shared)
    return dict(counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="of each verb")
    parser.add_argument("--verbs", default=",".join(COMMANDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    random.seed(options.seed)
    figures = {}
    for verb in options.verbs.split(","):
        folder = Path(tempfile.mkdtemp(prefix=f"killed-{verb}-"))
        figures[verb] = kills_of(verb, options.kills, folder)
        print(f"{verb}: {figures[verb]}, in {folder}")
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
