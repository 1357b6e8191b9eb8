"""Whole epochs of batches of graphs against PyG and DGL, the memory of attention on a batch, and tables of both.

    python tests/measure/many_graphs.py --out DIR [--dgl-python PATH] [--rounds N] [--epochs N] [--only NAME,...]

Each model is one comparison as `gnnbench compare` makes it, parity first; DGL trains on the same batches, from the
same weights, in a process of its own before every round. Its outputs and gradients on the first batch have to be
ours. Writes DIR/NAME.json for each, DGL's times to DIR/dgl, and prints the rows of a table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gnnbench import comparison, config, datasets, stats
from gnnbench.comparison.record import LOADER
from gnnbench.config import Run
from gnnbench.papers import Ops
from gnnbench.papers._cells import Work
from gnnbench.results import files
from gnnbench.results.schema import rounds as timed
from gnnbench.training import setup
from gnnbench.training.batching._graphs import Graphs

ROOT = Path(__file__).parents[2]
PATTERN = "synthetic:pattern:0.1"
ONE_HEAD = ("layers=8", "hidden=64", "heads=1", "output_heads=1")
CASES: dict[str, tuple[str, str, list[str]]] = {
    "gt-pattern": ("transformer_pattern", PATTERN, []),
    "agnn-pattern": ("agnn_pattern", PATTERN, ["model.projected=true"]),
    "gat-pattern": ("gat_pattern", PATTERN, [f"model.{key}" for key in ONE_HEAD]),
    "gin-molhiv": ("gin_ogbg_molhiv", "ogbg-molhiv", ["batch.size=256"]),
    "gin-molhiv-64": ("gin_ogbg_molhiv", "ogbg-molhiv", ["batch.size=256", "model.hidden=64"]),
}
MEMORY = "attention-memory"
BACKENDS = [LOADER, "pyg", "isplib"]  # of which the first is left out on large graphs, where loading is no cost
CHILD = Path(__file__).with_name("dgl_batches.py")
DIFFERENCE = (
    1e-2  # relative, of outputs and gradients in float32, where rounding alone moves ReLUs over their kinks
)


def run_config(name: str, epochs: int) -> Run:
    stem, spec, settings = CASES[name]
    settings = [*settings, "train.eval_every=1000", f"train.epochs={epochs}", "measure.warmup=0"]
    settings += ["measure.allocator=warm"]
    return config.load(ROOT / "configs" / f"{stem}.yaml", settings, dataset=datasets.parse(spec))


def backends_of(name: str) -> list[str]:
    return BACKENDS[1:] if name.endswith("-pattern") else BACKENDS


def dgl_input(run: Run, folder: Path) -> None:
    """Graphs, order and weights for DGL, and what our model makes of the first batch."""
    data = datasets.load(run.dataset, datasets.roots())
    assert isinstance(data, datasets.GraphsDataset)
    model = setup.build(run, setup.ModelDims.of(data))
    from gnnbench import backends

    ready = setup.prepare(run, model, backends.load(run.backend), data)
    assert isinstance(ready.batching, Graphs)
    orders = torch.stack([ready.batching.order(0, epoch) for epoch in range(1, run.train.epochs + 1)])
    batch = next(ready.batching.epoch(0, 1))
    logits = batch.outputs(model)
    batch.loss(logits).backward()
    weights = {key: value for key, value in model.named_parameters() if value.grad is not None}
    arrays = {
        **{key: getattr(data, key) for key in ("graph_ptr", "edge_ptr", "edge_index", "x", "y")},
        **{f"weight:{key}": value.detach() for key, value in weights.items()},
        **{f"grad:{key}": value.grad for key, value in weights.items()},
        "orders": orders,
        "logits": logits.detach(),
    }
    np.savez(folder / "input.npz", **{key: value.numpy() for key, value in arrays.items()})
    options = {
        "model": run.model.name,
        "size": run.batch.size,
        "lr": run.train.lr,
        "threads": torch.get_num_threads(),
        "self_loops": run.model.name == "gat",
    }
    (folder / "options.json").write_text(json.dumps(options))


def dgl(python: str, folder: Path) -> dict[str, Any]:
    """One round of DGL."""
    threads = {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    subprocess.run([python, str(CHILD), str(folder)], check=True, env={**os.environ, **threads})
    output: dict[str, Any] = json.loads((folder / "output.json").read_text())
    return output


def epochs(name: str, options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """A comparison, and DGL's rounds beside it."""
    run, with_dgl = run_config(name, options.epochs), bool(options.dgl_python) and name.endswith("-pattern")
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if with_dgl:
            dgl_input(run, folder)

        def on_event(event: comparison.Progress) -> None:
            print(f"{name}: {event.stage}, {event.backend}", file=sys.stderr)
            if with_dgl and len(rounds) < event.round:
                rounds.append(dgl(options.dgl_python, folder))

        record = comparison.compare(
            comparison.resolve(run, backends_of(name)),
            rounds=options.rounds,
            out=out / "raw" / name,
            roots=datasets.roots(),
            on_event=on_event,
        )
    ours = [s for r in comparison.stored(out / "raw" / name, "isplib") for s in timed(r.samples, "epoch")]
    peer: dict[str, Any] = {}
    if rounds:
        whole = [each["epoch_s"] for each in rounds]
        computed = [
            [epoch - load for epoch, load in zip(each["epoch_s"], each["load_s"], strict=True)] for each in rounds
        ]
        peer = {
            "version": rounds[0]["dgl"],
            "largest_difference": max(max(each["difference"].values()) for each in rounds),
            "epoch_s": whole,
            "without_load_s": computed,
            "over_isplib": dict(zip(("ratio", "low", "high"), stats.ratio_interval(whole, ours), strict=True)),
            "without_load_over_isplib": dict(
                zip(("ratio", "low", "high"), stats.ratio_interval(computed, ours), strict=True)
            ),
        }
        if peer["largest_difference"] > DIFFERENCE:
            sys.exit(f"{name}: DGL's model is another one: {rounds[0]['difference']}")
    return {"comparison": record.model_dump(mode="json"), "dgl": peer}


def attention_memory(options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Forward and backward of attention on 1,024 graphs: what a call allocates over what it is given."""
    cell = Ops(
        key=MEMORY, op="dot_attention", dataset=datasets.parse("synthetic:pattern:0.2"), batch=1024, widths=[128],
        against=["pyg"], protocol="mean",
    )  # fmt: skip
    folder = out / "raw" / MEMORY
    cell.run(Work(cell=cell, roots=datasets.roots(), out=folder), lambda what: print(what, file=sys.stderr))
    bench = json.loads((folder / "bench.json").read_text())
    inputs = 3 * bench["size"]["nodes"] * 128 * 4  # query, key and value
    increase = {
        f"{row['implementation']} {row['direction']}": row["memory_increase_bytes"] for row in bench["rows"]
    }
    ratios = {name: value and value / inputs for name, value in increase.items()}
    return {"bench": bench, "increase_over_inputs": ratios}


def line(name: str, result: dict[str, Any]) -> str:
    """A row of the table in docs/batches.md."""
    rows = {row["backend"]: row for row in result["comparison"]["rows"]}
    speedups = rows["isplib"]["speedup"]
    shown = [speedups[LOADER], speedups["pyg"], result["dgl"].get("over_isplib")]
    parts = ("load_s", "forward_s", "backward_s", "epoch_s")
    for row in rows.values():
        print(name, row["backend"], {part: row[part] and row[part]["median"] for part in parts}, file=sys.stderr)
    cells = [f"{s['ratio']:.3g}x ({s['low']:.3g}–{s['high']:.3g})" if s else "–" for s in shown]
    seconds = [f"{rows[name]['epoch_s']['median']:.3g}" if name in rows else "–" for name in BACKENDS]
    dgl_s = [statistics.median(each) for each in result["dgl"].get("epoch_s", [])]
    seconds.append(f"{statistics.median(dgl_s):.3g}" if dgl_s else "–")
    metrics = {backend: row["metrics"]["test"] for backend, row in rows.items()}
    print(f"{name}: test {result['comparison']['dataset_facts']['metric']} {metrics}", file=sys.stderr)
    return f"| {name} | " + " | ".join([*seconds, *cells]) + f" | [{name}](../results/batches/{name}.json) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dgl-python", default="")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--only", default=",".join([*CASES, MEMORY]))
    options = parser.parse_args()
    for name in options.only.split(","):
        if name == MEMORY:
            result = attention_memory(options, options.out)
            print(json.dumps(result["increase_over_inputs"]))
            written = {"": result["bench"]}
        else:
            result = epochs(name, options, options.out)
            print(line(name, result), flush=True)
            written = {"": result["comparison"], "dgl": result["dgl"]}
        for folder, record in written.items():
            if record:
                files.save_text(json.dumps(record, indent=1) + "\n", options.out / folder / f"{name}.json")


if __name__ == "__main__":
    main()
