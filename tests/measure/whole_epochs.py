"""Whole epochs at the papers' hyper-parameters: every model on every real graph, isplib against PyG's rows.

    python tests/measure/whole_epochs.py --out DIR [--datasets SPEC,...] [--models NAME,...] [--rounds N]

Each cell is one comparison as `gnnbench compare` makes it, parity first, in DIR/DATASET_MODEL.json; those that
are there are not measured again. Prints the ratios to the faster of PyG's rows with their intervals as a table,
and fails where an interval lies wholly below one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gnnbench import comparison, config, datasets, launch
from gnnbench.comparison.record import Comparison
from gnnbench.results import files

ROOT = Path(__file__).parents[2]
MODELS = ("gcn", "sage_mean", "sage_sum", "sage_max", "gin", "gat", "gatv2", "transformer")
DATASETS = (
    "cora",
    "citeseer",
    "pubmed",
    "amazon-computers",
    "coauthor-cs",
    "blogcatalog",
    "tolokers",
    "ogbn-arxiv",
)
BACKENDS = ("pyg", "pyg-sparse", "isplib")
FEATURES = {"ogbn-arxiv": ["dataset.random_features=128"]}  # where those of its authors are not at hand


def measured(dataset: str, model: str, options: argparse.Namespace) -> Comparison:
    """The comparison of a cell, kept in a file of its own."""
    path: Path = options.out / f"{dataset}_{model}.json"
    if path.exists():
        return files.load(Comparison, path)
    own = ROOT / "configs" / f"{model}_{dataset.replace('-', '_')}.yaml"
    overrides = ["train.eval_every=1000", "train.patience=0", "measure.allocator=warm"]
    run = config.load(
        own if own.exists() else ROOT / "configs" / f"{model}_cora.yaml",
        [*overrides, f"train.epochs={options.epochs}", *FEATURES.get(dataset, [])],
        dataset=None if own.exists() else datasets.parse(dataset),
    )
    roots, raw = datasets.roots(), options.out / "raw" / f"{dataset}_{model}"
    record = comparison.compare(comparison.resolve(run, [*BACKENDS]), rounds=options.rounds, out=raw, roots=roots)
    files.save_json(record, path)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    slower = []
    models = options.models.split(",")
    print("| dataset | " + " | ".join(models) + " |\n| --- |" + " ---: |" * len(models))
    for dataset in options.datasets.split(","):
        cells = []
        for model in models:
            ours = next(row for row in measured(dataset, model, options).rows if row.backend == "isplib")
            gain = ours.speedup["fastest_pyg"]
            cells.append(f"{gain.ratio:.3g}x ({gain.low:.3g}–{gain.high:.3g})" if gain else ours.status)
            if gain is None or gain.high < 1:
                slower.append(f"{model} on {dataset}")
        print(f"| {dataset} | " + " | ".join(cells) + " |", flush=True)
    if slower:
        sys.exit(f"slower than PyG: {', '.join(slower)}")


if __name__ == "__main__":
    with launch.keep_server():
        main()
