"""Whole epochs on sampled neighbourhoods, isplib against PyG's convs on the same batches.

    python tests/measure/sampled.py --out FILE [--dataset SPEC] [--rounds N] [--epochs N]

GraphSAGE with 3 layers of width 256 on ogbn-arxiv in both directions, batches of 1,024 nodes with fanouts
15-10-5: one comparison as `gnnbench compare` makes it, parity first and rounds interleaved, written to FILE.
Prints the ratio of whole epochs with its interval and what each row waited for batches, as a share of the epoch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from gnnbench import comparison, config, datasets, launch
from gnnbench.results import files
from gnnbench.results.schema import counted

CONFIG = Path(__file__).parents[2] / "configs" / "sage_mean_ogbn_arxiv_sampled.yaml"
SETTINGS = ["batch.fanouts=[15,10,5]", "train.eval_every=1000", "measure.warmup=1"]
BACKENDS = ("pyg", "isplib")
RATIO, LOAD = 2.0, 0.1  # at least, and at most of isplib's epoch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", help="another than ogbn-arxiv, which gets random features where it has none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="the first of which is warm-up")
    options = parser.parse_args()
    features = [] if options.dataset else ["dataset.random_features=128"]
    run = config.load(
        CONFIG,
        [*SETTINGS, *features, f"train.epochs={options.epochs}"],
        dataset=datasets.parse(options.dataset) if options.dataset else None,
    )
    raw = options.out.with_suffix("")
    record = comparison.compare(
        comparison.resolve(run, BACKENDS),
        rounds=options.rounds,
        out=raw,
        roots=datasets.roots(),
        on_event=lambda event: print(event.stage, event.backend, file=sys.stderr),
    )
    files.save_json(record, options.out)
    if any(row.status != "ok" for row in record.rows) or not record.parity.ok:
        sys.exit(f"nothing to compare: {[row.reason for row in record.rows]}, {record.parity}")
    share = {}
    for row in record.rows:
        samples = [sample for result in comparison.stored(raw, row.backend) for sample in counted(result.samples)]
        share[row.backend] = statistics.median((sample.load_s or 0.0) / sample.epoch_s for sample in samples)
        gain = row.speedup["pyg"]
        assert row.epoch_s
        assert gain
        print(
            f"{row.backend:8} epoch {row.epoch_s.median:.3g} s, load {share[row.backend]:.1%}, "
            f"{gain.ratio:.3g}x ({gain.low:.3g}–{gain.high:.3g}), {len(samples)} epochs"
        )
    if gain.ratio < RATIO or share["isplib"] > LOAD:
        sys.exit(f"must be {RATIO:g}x with load under {LOAD:.0%}")


if __name__ == "__main__":
    with launch.keep_server():
        main()
