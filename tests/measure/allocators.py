"""Epochs where malloc keeps what is freed, beside those where it is as the C library has it: PyG's rows and ours.

    python tests/measure/allocators.py --out DIR [--datasets SPEC,...] [--models NAME,...] [--rounds N]

Each dataset and model is compared under both values of `measure.allocator` as `gnnbench compare` does it, in
rounds that take turns, in DIR/DATASET_MODEL_ALLOCATOR.json; those that are there are not measured again. With DIR
`results/allocator`, `make readme` writes a table of docs/numbers.md from them. Prints seconds per epoch;
pyg-sparse is PyG on torch's CSR.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gnnbench import comparison, config, datasets, launch
from gnnbench.comparison.record import Comparison
from gnnbench.errors import GnnbenchError
from gnnbench.results import files

CONFIGS = Path(__file__).parents[2] / "configs"
BACKENDS = ("pyg", "pyg-sparse", "isplib")
ALLOCATORS = ("system", "warm")


def compared(dataset: str, model: str, options: argparse.Namespace) -> list[Comparison]:
    """One comparison for each allocator."""
    name = f"{dataset.replace(':', '_')}_{model}"
    paths = [options.out / f"{name}_{allocator}.json" for allocator in ALLOCATORS]
    if all(path.exists() for path in paths):
        return [files.load(Comparison, path) for path in paths]
    records: list[Comparison] = []
    for rounds in range(1, options.rounds + 1):
        records = [_continued(dataset, model, allocator, rounds, options) for allocator in ALLOCATORS]
    for path, record in zip(paths, records, strict=True):
        files.save_json(record, path)
    return records


def _continued(dataset: str, model: str, allocator: str, rounds: int, options: argparse.Namespace) -> Comparison:
    """A comparison so far, with another round."""
    overrides = ["train.eval_every=1000", "train.patience=0"]
    overrides += [f"train.epochs={options.epochs}", f"measure.allocator={allocator}"]
    run = config.load(CONFIGS / f"{model}_cora.yaml", overrides, dataset=datasets.parse(dataset))
    out = options.out / "raw" / f"{dataset.replace(':', '_')}_{model}_{allocator}"
    record = comparison.compare(comparison.resolve(run, BACKENDS), rounds=rounds, out=out, roots=datasets.roots())
    if record.exit_code:
        sys.exit(f"{model} on {dataset} ended with status {record.status}: {record.parity.reason}")
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", default="cora,tolokers,synthetic:reddit:0.05,synthetic:reddit:0.25")
    parser.add_argument("--models", default="gcn,sage_mean")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    print(f"{'dataset':24} {'model':10} {'backend':12} {'system':>10} {'warm':>10}")
    for dataset in options.datasets.split(","):
        for model in options.models.split(","):
            for rows in zip(*(record.rows for record in compared(dataset, model, options)), strict=True):
                cells = [f"{row.epoch_s.median:10.4g}" if row.epoch_s else f"{row.status:>10}" for row in rows]
                print(f"{dataset:24} {model:10} {rows[0].backend:12} {' '.join(cells)}", flush=True)


if __name__ == "__main__":
    try:
        with launch.keep_server():
            main()
    except GnnbenchError as error:
        sys.exit(str(error))
