"""Whole epochs of batches of graphs against PyG and DGL, the memory of attention on a batch, and tables of both.

    python tests/measure/many_graphs.py --out DIR [--dgl] [--rounds N] [--epochs N] [--only NAME,...]

Each model is one comparison as `gnnbench compare` makes it, parity first, with malloc keeping what is freed after
the first epoch; the last epoch of a round counts. DGL is found as backend `dgl` finds it. Writes DIR/NAME.json for
each, and prints the rows of a table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gnnbench import comparison, config, datasets
from gnnbench.comparison.record import LOADER
from gnnbench.config import Run
from gnnbench.papers import Ops
from gnnbench.papers._cells import Work
from gnnbench.results import files

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


def run_config(name: str, epochs: int) -> Run:
    stem, spec, settings = CASES[name]
    settings = [*settings, "train.eval_every=1000", f"train.epochs={epochs}", f"measure.warmup={epochs - 1}"]
    settings += ["measure.allocator=warm"]
    return config.load(ROOT / "configs" / f"{stem}.yaml", settings, dataset=datasets.parse(spec))


def epochs(name: str, options: argparse.Namespace) -> comparison.Comparison:
    """A comparison; PyG's own loader is left out on large graphs, where loading is no cost, and DGL on others."""
    of_pattern = name.endswith("-pattern")
    return comparison.compare(
        comparison.resolve(
            run_config(name, options.epochs),
            [*[LOADER] * (not of_pattern), "pyg", *["dgl"] * (of_pattern and options.dgl), "isplib"],
        ),
        rounds=options.rounds,
        out=options.out / "raw" / name,
        roots=datasets.roots(),
        on_event=lambda event: print(f"{name}: {event.stage}, {event.backend}", file=sys.stderr),
    )


def attention_memory(options: argparse.Namespace) -> dict[str, Any]:
    """Forward and backward of attention on 1,024 graphs; prints what a call allocates over what it is given."""
    cell = Ops(
        key=MEMORY, op="dot_attention", dataset=datasets.parse("synthetic:pattern:0.2"), batch=1024, widths=[128],
        against=["pyg"], protocol="mean",
    )  # fmt: skip
    folder = options.out / "raw" / MEMORY
    cell.run(Work(cell=cell, roots=datasets.roots(), out=folder), lambda what: print(what, file=sys.stderr))
    bench: dict[str, Any] = json.loads((folder / "bench.json").read_text())
    inputs = 3 * bench["size"]["nodes"] * 128 * 4  # query, key and value
    for row in bench["rows"]:
        increase = row["memory_increase_bytes"]
        print(row["implementation"], row["direction"], increase and f"{increase / inputs:.3g}x")
    return bench


def line(name: str, record: comparison.Comparison) -> str:
    """A row of the table in docs/batches.md."""
    rows = {row.backend: row for row in record.rows}
    ours = rows.pop("isplib")
    seconds = [f"{each}: {row.epoch_s.median:.3g} s" for each, row in rows.items() if row.epoch_s]
    gains = [f"{each}: {s.ratio:.3g}x ({s.low:.3g}–{s.high:.3g})" for each, s in ours.speedup.items() if s]
    memory = [f"{each.backend}: {each.peak_memory_bytes / 2**30:.2f} GiB" for each in record.rows if each.epoch_s]
    own = f"{ours.epoch_s.median:.3g} s" if ours.epoch_s else ours.reason
    return f"| {name} | " + " | ".join([*seconds, own, *gains, *memory]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dgl", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--only", default=",".join([*CASES, MEMORY]))
    options = parser.parse_args()
    for name in options.only.split(","):
        if name == MEMORY:
            written = attention_memory(options)
        else:
            record = epochs(name, options)
            print(line(name, record), flush=True)
            written = record.model_dump(mode="json")
        files.save_text(json.dumps(written, indent=1) + "\n", options.out / f"{name}.json")


if __name__ == "__main__":
    main()
