"""The accuracy of a configuration over ten folds, by two protocols.

    python tests/measure/folds.py CONFIG --out FILE [--backend NAME] [--epochs N] [--set KEY=VALUE ...]

`best epoch` is that of Xu et al. 2019: the one epoch whose mean accuracy over the held-out folds is highest.
`validation` takes from each fold the epoch that its own validation graphs choose. Deviations are over folds.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean, pstdev

from gnnbench import config, datasets
from gnnbench.datasets.tudataset import FOLDS
from gnnbench.results import files, schema
from gnnbench.training import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--backend", default="isplib")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    curves, chosen = [], []
    for fold in range(FOLDS):
        settings = [*options.set, f"dataset.fold={fold}", f"train.epochs={options.epochs}", "train.eval_every=1"]
        asked = config.load(options.config, settings, backend=options.backend)
        result = run.run(asked, roots=datasets.roots(), out=None)
        if result.status != "ok":
            sys.exit(f"fold {fold}: {result.reason}")
        curves.append([evaluation.test for evaluation in result.evaluations])
        chosen.append(schema.best(result.evaluations).test)
        print(f"fold {fold}: {chosen[-1]:.3f} by validation, {max(curves[-1]):.3f} at best", file=sys.stderr)
    best = max(range(options.epochs), key=lambda epoch: fmean(curve[epoch] for curve in curves))
    held_out = [curve[best] for curve in curves]
    by_epoch = {"epoch": best + 1, "mean": fmean(held_out), "deviation": pstdev(held_out), "folds": held_out}
    figures = {
        "config": asked.model_dump(mode="json"),
        "environment": result.environment,
        "best epoch": by_epoch,
        "validation": {"mean": fmean(chosen), "deviation": pstdev(chosen), "folds": chosen},
    }
    files.save_text(json.dumps(figures, indent=1) + "\n", options.out)
    for name in ("best epoch", "validation"):
        print(f"{name}: {figures[name]['mean']:.3f} ± {figures[name]['deviation']:.3f}")


if __name__ == "__main__":
    main()
