"""AUC and average precision of a configuration of links after its last epoch, over splits.

    python tests/measure/links.py CONFIG --out FILE [--backends NAME,...] [--splits N] [--set KEY=VALUE ...]

Split s and the weights that it is learned from are drawn with seed s. Deviations are over splits.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean, pstdev

import torch

from gnnbench import config, datasets
from gnnbench.datasets import _metrics
from gnnbench.results import files
from gnnbench.training import run

METRICS = ("auc", "ap")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backends", default="pyg,isplib")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    figures = {}
    for backend in options.backends.split(","):
        scores = {metric: [] for metric in METRICS}

        @torch.no_grad()
        def inspect(_backend, model, batching, _dims, scores=scores) -> None:
            model.eval()
            for metric in METRICS:
                batching.dataset.score = _metrics.link_score_of(metric)
                scores[metric].append(batching.metrics(model)["test"])

        for seed in range(options.splits):
            settings = [*options.set, f"dataset.seed={seed}", f"train.seed={seed}"]
            asked = config.load(options.config, settings, backend=backend)
            result = run.run(asked, roots=datasets.roots(), out=None, inspect=inspect)
            if result.status != "ok":
                sys.exit(f"{backend}, split {seed}: {result.reason}")
            found = ", ".join(f"{metric} {values[-1]:.4f}" for metric, values in scores.items())
            print(f"{backend}, split {seed}: {found}", file=sys.stderr)
        figures[backend] = {
            metric: {"mean": fmean(values), "deviation": pstdev(values), "splits": values}
            for metric, values in scores.items()
        }
    record = {"config": asked.model_dump(mode="json"), "environment": result.environment, "backends": figures}
    if options.out.name != "-":
        files.save_text(json.dumps(record, indent=1) + "\n", options.out)
    for backend, values in figures.items():
        shown = ", ".join(
            f"{metric} {100 * each['mean']:.1f} ± {100 * each['deviation']:.1f}" for metric, each in values.items()
        )
        print(f"{backend}: {shown}")


if __name__ == "__main__":
    main()
