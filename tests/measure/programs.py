"""PyG's example programs on Cora, unchanged but for the two lines of the drop-in: time of an epoch, and accuracy.

    python tests/measure/programs.py [--programs gcn,gat] [--rounds N] [--epochs N] [--out FILE]

An epoch is what the examples time: a training step and the evaluation behind it. Every round runs each program in
fresh processes without the drop-in, with `patch_pyg()` and with `patch_pyg(dropout=True)`, in alternating order.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv

import gnnbench
from gnnbench import datasets, stats
from gnnbench.api._options import load
from gnnbench.measure import environment
from gnnbench.results import files

WAYS: dict[str, dict[str, bool] | None] = {"pyg": None, "patched": {}, "patched with dropout": {"dropout": True}}
WARMUP = 10  # epochs that are not counted


class GCN(nn.Module):
    """Two layers as in the example: dropout of the features and between the layers (Kipf and Welling, 2017)."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(inputs, 16, cached=True)
        self.conv2 = GCNConv(16, classes, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of the classes, [nodes, classes]."""
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index)


class GAT(nn.Module):
    """Two layers as in the example: eight heads of eight channels, dropout of 0.6 (Veličković et al., 2018)."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.conv1 = GATConv(inputs, 8, heads=8, dropout=0.6)
        self.conv2 = GATConv(64, classes, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits of the classes, [nodes, classes]."""
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


PROGRAMS = {"gcn": (GCN, 0.01), "gat": (GAT, 0.005)}


def run(name: str, epochs: int, seed: int) -> dict[str, Any]:
    """Train a program: seconds of every epoch, and test accuracy at the best epoch of validation."""
    torch.manual_seed(seed)
    settings = ["dataset.normalize_features=true"]
    data = datasets.load(load(None, settings, dataset="cora").dataset, datasets.roots())
    build, lr = PROGRAMS[name]
    model = build(data.x.size(1), data.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=5e-4)
    times, best, accuracy = [], 0.0, 0.0
    for _ in range(WARMUP + epochs):
        start = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(data.x, data.edge_index).argmax(dim=-1) == data.y
        valid, test = (float(right[mask].float().mean()) for mask in (data.val_mask, data.test_mask))
        times.append(time.perf_counter() - start)
        if valid > best:
            best, accuracy = valid, test
    return {"epoch_s": times[WARMUP:], "accuracy": accuracy}


def child(name: str, way: str, epochs: int, seed: int) -> None:
    """Run a program in this process, the drop-in's two lines before it, and print its figures as JSON."""
    arguments = WAYS[way]
    if arguments is not None:
        gnnbench.patch_pyg(**arguments)
    print(json.dumps(run(name, epochs, seed)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs=3, metavar=("PROGRAM", "WAY", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, way, seed = options.child
        child(name, way, options.epochs, int(seed))
        return
    names = options.programs.split(",")
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {name: {way: [] for way in WAYS} for name in names}
    for seed in range(options.rounds):
        for name in names:
            for way in list(WAYS)[:: 1 if seed % 2 else -1]:
                arguments = ["--epochs", str(options.epochs), "--child", name, way, str(seed)]
                done = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE)
                measured[name][way].append(json.loads(done.stdout))
    programs = {}
    for name, ways in measured.items():
        rounds = {way: [each["epoch_s"] for each in runs] for way, runs in ways.items()}
        programs[name] = {
            way: {
                "epoch_s": stats.median_interval(rounds[way]),
                "speedup": stats.ratio_interval(rounds["pyg"], rounds[way]),
                "accuracy": [each["accuracy"] for each in runs],
                "rounds": rounds[way],
            }
            for way, runs in ways.items()
        }
        for way, row in programs[name].items():
            speedup, accuracy = row["speedup"], sum(row["accuracy"]) / options.rounds
            print(
                f"{name:4} {way:21} {row['epoch_s'].value * 1e3:7.2f} ms  {speedup.value:5.2f}x "
                f"[{speedup.low:.2f}, {speedup.high:.2f}]  accuracy {accuracy:.3f}"
            )
    if options.out is not None:
        record = {"environment": environment.describe(), "dataset": "Cora", "programs": programs}
        files.save_text(json.dumps(record, indent=1) + "\n", options.out)


if __name__ == "__main__":
    main()
