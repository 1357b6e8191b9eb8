"""One graph in several processes: epochs, exchange and memory beside one process.

    python tests/measure/machines.py --out results/machines [--raw DIR] [--dataset SPEC] [--parts P,...]
        [--rounds N] [--epochs N]

Trains configs/gcn_reddit.yaml by the command line, in turn in every round: one process with one thread and with
two, then each number of workers with one thread, its halos in float32 and in bfloat16. Parts are made
once. What was measured is kept in RAW and not measured again. Writes OUT/DATASET.json, prints its rows, and names
the figures that miss their target.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing

from gnnbench import launch, stats
from gnnbench.results import files, schema
from gnnbench.results.schema import Result

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "gcn_reddit.yaml"
MESSAGE = 1 << 24  # float32 numbers, to measure the loopback interface by


class Cell(NamedTuple):
    """One way to train."""

    workers: int = 1
    threads: int = 1
    halo: str | None = None

    @property
    def name(self) -> str:
        how = [] if self.halo is None else [self.halo]
        return "-".join([str(self.workers), f"{self.threads}t", *how])


ALONE, TWO_THREADS = Cell(), Cell(threads=2)


def cells(parts: list[int]) -> list[Cell]:
    return [ALONE, TWO_THREADS, *(Cell(count, 1, halo) for count in parts for halo in ("float32", "bf16"))]


def command(*arguments: object, threads: int = 1) -> str:
    """Return what a command of gnnbench prints."""
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    words = [sys.executable, "-m", "gnnbench", *map(str, arguments)]
    done = subprocess.run(words, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def trained(cell: Cell, round_: int, options: argparse.Namespace) -> Result:
    """A run, kept in a file of its own."""
    path = options.raw / f"{cell.name}-{round_}.json"
    if not path.exists():
        settings = [f"measure.threads={cell.threads}", "train.eval_every=1000", "train.checkpoint_every=0"]
        if cell.workers > 1:
            folder = parts_of(cell.workers, options)
            settings += [f"batch.folder={folder}", f"batch.halo={cell.halo}"]
        with tempfile.TemporaryDirectory() as out:
            sets = [word for setting in settings for word in ("--set", setting)]
            how = ["--backend", "isplib", "--workers", cell.workers, "--epochs", options.epochs, *sets]
            command(
                "train", CONFIG, "--dataset", options.dataset, *how, "--out", out, "--quiet", threads=cell.threads
            )
            files.save_json(files.load(Result, Path(out, "results.json")), path)
    return files.load(Result, path)


def parts_of(count: int, options: argparse.Namespace) -> Path:
    folder: Path = options.raw / f"parts-{count}"
    if not folder.exists():
        command("partition", options.dataset, "--parts", count, "--out", folder, "--quiet")
    return folder


def loopback_speed() -> float:
    """Bytes per second that each of two processes sends the other one by gloo."""
    os.environ["GLOO_SOCKET_IFNAME"] = launch.loopback()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_send, (folder,), nprocs=2)
        return float(Path(folder, "speed").read_text())


def _send(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    sent, received = torch.ones(2, MESSAGE)
    splits = [MESSAGE * (rank == 1), MESSAGE * (rank == 0)]
    times = []
    for _ in range(6):
        dist.barrier()
        start = time.perf_counter()
        dist.all_to_all_single(received, sent, splits, splits)
        times.append(time.perf_counter() - start)
    if rank == 0:
        Path(folder, "speed").write_text(str(sent.nbytes / statistics.median(times[1:])))
    dist.destroy_process_group()


def row(cell: Cell, results: dict[Cell, list[Result]]) -> dict[str, Any]:
    """The figures of a cell, beside those of one process."""
    runs, epochs = results[cell], {each: schema.times(of_cell) for each, of_cell in results.items()}
    memory = {each: max(run.peak_memory_bytes for run in of_cell) for each, of_cell in results.items()}
    facts, workers = runs[0].dataset_facts, runs[0].workers
    assert facts
    epoch = schema.summary(epochs[cell])
    exchange = schema.summary(schema.times(runs, "exchange"))
    assert epoch
    halos = [worker.halo_nodes / facts.nodes for worker in workers]
    result: dict[str, Any] = {
        **cell._asdict(),
        "epoch_s": epoch.model_dump(),
        "exchange_s": exchange and exchange.model_dump(),
        "exchange_share": exchange and exchange.median / epoch.median,
        "peak_memory_bytes": memory[cell],
        "halo_shares": halos,
        "received_bytes": [worker.received_bytes for worker in workers],
        "speedup": {
            name: stats.ratio_interval(epochs[base], epochs[cell])._asdict()
            for name, base in {"one_thread": ALONE, "two_threads": TWO_THREADS}.items()
        },
    }
    if workers:
        result["memory_target_bytes"] = 1.1 * (1 / cell.workers + max(halos)) * memory[ALONE]
    return result


def misses(one: dict[str, Any]) -> list[str]:
    """The figures of a row that miss their target; epochs only where every worker has a core."""
    result, enough = [], one["workers"] <= len(os.sched_getaffinity(0))
    if one["workers"] > 1:
        if one["peak_memory_bytes"] > one["memory_target_bytes"]:
            result.append(f"peak memory {one['peak_memory_bytes'] / one['memory_target_bytes']:.2f} of its target")
        if enough and one["exchange_share"] > 0.15:
            result.append(f"exchange {one['exchange_share']:.0%} of the epoch")
        for name, least in {"one_thread": 1.7, "two_threads": 0.9}.items() if one["workers"] == 2 else ():
            if (ratio := one["speedup"][name]["value"]) < least:
                result.append(f"{ratio:.2f}x one process with {name.replace('_', ' ')}, not {least}x")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--raw", type=Path, default=Path("runs", "machines"))
    parser.add_argument("--dataset", default="synthetic:reddit:0.25")
    parser.add_argument("--parts", default="2,4")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    options.parts = [int(count) for count in options.parts.split(",")]
    name = options.dataset.replace(":", "_")
    options.raw = options.raw.resolve() / name
    options.raw.mkdir(parents=True, exist_ok=True)
    results: dict[Cell, list[Result]] = {cell: [] for cell in cells(options.parts)}
    for round_ in range(1, options.rounds + 1):
        for cell, runs in results.items():
            print(f"round {round_}: {cell.name}", file=sys.stderr, flush=True)
            runs.append(trained(cell, round_, options))
    first = results[ALONE][0]
    record = {
        "dataset": first.dataset,
        "dataset_facts": first.dataset_facts and first.dataset_facts.model_dump(),
        "config": first.config,
        "environment": first.environment,
        "rounds": options.rounds,
        "network_bytes_per_s": loopback_speed(),
        "rows": [row(cell, results) for cell in results],
    }
    files.save_text(json.dumps(record, indent=1) + "\n", options.out / f"{name}.json")
    for cell, one in zip(results, record["rows"], strict=True):
        share, gain = one["exchange_share"] or 0.0, one["speedup"]["one_thread"]["value"]
        print(
            f"{cell.name:20} epoch {one['epoch_s']['median']:8.3f} s  {gain:5.2f}x  "
            f"exchange {share:4.0%}  memory {one['peak_memory_bytes'] / 2**20:7.0f} MiB  {'; '.join(misses(one))}"
        )


if __name__ == "__main__":
    main()
