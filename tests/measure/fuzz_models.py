"""Random models on kernels beside PyTorch and PyG: outputs, gradients, buffers, what hooks see, and errors.

    python tests/measure/fuzz_models.py [--models N] [--first N] [--processes N]
    python tests/measure/fuzz_models.py --first NUMBER --models 1 --way bind

Each number is a model, what is done to it before and after it is bound, and calls of it; the ways in which
kernels come to run it take turns. A failure prints the command that repeats it. Work that kernels leave to torch
because it is small is given to them here; how often they were called is printed at the end.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.fuzz.compare import difference
from tests.support.fuzz.play import CALLS, WAYS, Seed, open_gates

PIECE = 50  # models of one task of a process


def fuzz(seeds: list[Seed]) -> tuple[list[tuple[Seed, str]], Counter[str]]:
    """The seeds whose models differ, with what differs; and how often each thing came to pass."""
    warnings.simplefilter("ignore")
    CALLS.clear()
    failures: list[tuple[Seed, str]] = []
    counts: Counter[str] = Counter()
    with open_gates():
        for seed in seeds:
            try:
                problem, ours = difference(seed)
            except Exception:
                problem = traceback.format_exc()
            else:
                counts[f"refused ({seed.way})"] += bool(ours.refused)
                counts["chapters compared"] += len(ours.chapters)
            if problem:
                failures.append((seed, problem))
    return failures, counts + CALLS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--way", choices=WAYS, help="of all models; by default they take turns")
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.models)
    seeds = [Seed(number, options.way or WAYS[number % len(WAYS)]) for number in numbers]
    pieces = [seeds[start : start + PIECE] for start in range(0, len(seeds), PIECE)]
    torch.set_num_threads(1)
    failed, counts = 0, Counter[str]()
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=40) as pool:
        for failures, more in pool.imap_unordered(fuzz, pieces):
            counts += more
            for seed, problem in failures:
                failed += 1
                again = f"python {sys.argv[0]} --first {seed.number} --models 1 --way {seed.way}"
                print(f"{again}: {problem}", flush=True)
    print(f"{len(seeds):,} models, {failed} differ")
    for name, count in sorted(counts.items()):
        print(f"{count:12,} {name}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
