"""A step on vectors of nodes of which a batch sees some: dense gradients and Adam, or sparse ones and SparseAdam.

    python tests/measure/embedding.py [--nodes N] [--width F] [--rows N,N,...] [--out FILE]

Times are the least of three steps, each a lookup, its backward and an update.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from gnnbench.measure import clock, environment
from gnnbench.results import files

STEPS, KINDS = 3, ("dense", "sparse")


def step_s(nodes: int, width: int, rows: int, *, sparse: bool) -> float:
    """Seconds of a step that sees `rows` of `nodes` vectors."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randperm(nodes, generator=generator)[:rows].sort().values
    grad, vectors = torch.randn(rows, width), torch.nn.Embedding(nodes, width, sparse=sparse)
    parameters = vectors.parameters()
    optimizer = torch.optim.SparseAdam(parameters) if sparse else torch.optim.Adam(parameters, fused=True)
    times = []
    for _ in range(1 + STEPS):
        start = clock.cpu()
        vectors(ids).backward(grad)
        optimizer.step()
        optimizer.zero_grad()
        times.append(clock.cpu() - start)
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=576_289)  # of ogbl-ppa
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rows", default="10000,50000,150000,300000")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    steps = [
        {"rows": rows}
        | {f"{kind}_s": step_s(options.nodes, options.width, rows, sparse=kind == "sparse") for kind in KINDS}
        for rows in map(int, options.rows.split(","))
    ]
    record = {
        "nodes": options.nodes,
        "width": options.width,
        "environment": environment.describe(),
        "steps": steps,
    }
    text = json.dumps(record, indent=1) + "\n"
    print(text, end="") if options.out is None else files.save_text(text, options.out)


if __name__ == "__main__":
    main()
