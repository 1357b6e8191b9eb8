"""DGL's side of `many_graphs.py`, run by the interpreter that has DGL: an epoch of batches as its users write it.

    python dgl_batches.py FOLDER

FOLDER/input.npz holds the graphs, the order of each epoch, and the weights, logits and gradients of our model on
its first batch, from which this one may not differ. Writes seconds and differences to FOLDER/output.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# DGL 2.1 checks the version of torch for this part only, which nothing here needs.
sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
os.environ.setdefault("DGLBACKEND", "pytorch")
import dgl  # noqa: E402
from dgl import ops  # noqa: E402
from dgl.nn.functional import edge_softmax  # noqa: E402


class Net(nn.Module):
    """Layers of attention with one head; all but the last have batch norm, ReLU and a residual connection."""

    def __init__(self, kind: str, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.kind = kind
        self.weights = nn.ParameterDict({name.replace(".", "/"): weight for name, weight in weights.items()})
        self.layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("convs."))
        widths = [len(self.of(f"norms.{layer}.weight")) for layer in range(self.layers - 1)]
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in widths)
        for layer, norm in enumerate(self.norms):
            norm.weight, norm.bias = self.of(f"norms.{layer}.weight"), self.of(f"norms.{layer}.bias")

    def of(self, name: str) -> Any:
        return self.weights[name.replace(".", "/")]

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.of(f"{name}.weight"), self.weights.get(f"{name}.bias".replace(".", "/")))

    def conv(self, g: Any, layer: int, x: Tensor) -> Tensor:
        at = f"convs.{layer}"
        if self.kind == "transformer":
            query, key, value = (self.linear(f"{at}.lin_{name}", x) for name in ("query", "key", "value"))
            score = ops.v_dot_u(g, query * query.size(1) ** -0.5, key)
            return ops.u_mul_e_sum(g, value, edge_softmax(g, score))
        if self.kind == "agnn":
            h = self.linear(f"{at}.module_0", x)
            unit = F.normalize(h, dim=-1)
            return ops.u_mul_e_sum(g, h, edge_softmax(g, ops.v_dot_u(g, unit, unit)))
        h = self.linear(f"{at}.lin", x)
        source, destination = (h @ self.of(f"{at}.att_{end}").flatten() for end in ("src", "dst"))
        score = F.leaky_relu(ops.u_add_v(g, source, destination), 0.2)
        return ops.u_mul_e_sum(g, h, edge_softmax(g, score.unsqueeze(-1))) + self.of(f"{at}.bias")

    def forward(self, g: Any, x: Tensor) -> Tensor:
        for layer in range(self.layers):
            out = self.conv(g, layer, x)
            if layer < self.layers - 1:
                skip = f"skips.{layer}"
                kept = self.linear(skip, x) if f"{skip}.weight".replace(".", "/") in self.weights else x
                out = F.relu(self.norms[layer](out)) + kept
            x = out
        return x


def relative(result: Tensor, expected: Tensor, least: float = 1e-12) -> float:
    return float((result - expected).norm() / expected.norm().clamp(min=least))


def main(folder: Path) -> None:
    given = dict(np.load(folder / "input.npz"))
    options = json.loads((folder / "options.json").read_text())
    torch.set_num_threads(options["threads"])
    tensors = {name: torch.from_numpy(values) for name, values in given.items()}
    edges = tensors["edge_index"].long().split(tensors["edge_ptr"].diff().tolist(), dim=1)
    sizes = tensors["graph_ptr"].diff().tolist()
    graphs = [dgl.graph((pair[0], pair[1]), num_nodes=nodes) for pair, nodes in zip(edges, sizes, strict=True)]
    if options["self_loops"]:
        graphs = [dgl.add_self_loop(dgl.remove_self_loop(g)) for g in graphs]
    for g, x, y in zip(graphs, tensors["x"].split(sizes), tensors["y"].split(sizes), strict=True):
        g.ndata["x"], g.ndata["y"] = x, y
    named = {name.removeprefix("weight:"): tensors[name] for name in tensors if name.startswith("weight:")}
    net = Net(options["model"], {name: nn.Parameter(weight) for name, weight in named.items()})

    def batches(order: Tensor) -> Any:
        return (dgl.batch([graphs[i] for i in ids.tolist()]) for ids in order.split(options["size"]))

    first = next(batches(tensors["orders"][0]))
    logits = net(first, first.ndata["x"])
    F.cross_entropy(logits, first.ndata["y"]).backward()
    differences = {"logits": relative(logits.detach(), tensors["logits"])}
    # Gradients that are zero but for rounding, such as that of a bias on all keys, are held against the others.
    least = 1e-3 * max(float(tensors[f"grad:{name}"].norm()) for name in named)
    for name in named:
        differences[name] = relative(net.of(name).grad, tensors[f"grad:{name}"], least)
    optimizer = torch.optim.Adam(net.parameters(), lr=options["lr"])
    optimizer.zero_grad()
    seconds, load = [], []
    for order in tensors["orders"]:
        start, loading = time.perf_counter(), 0.0
        steps = batches(order)
        while True:
            before = time.perf_counter()
            batch = next(steps, None)
            loading += time.perf_counter() - before
            if batch is None:
                break
            F.cross_entropy(net(batch, batch.ndata["x"]), batch.ndata["y"]).backward()
            optimizer.step()
            optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
        load.append(loading)
    output = {"dgl": dgl.__version__, "epoch_s": seconds, "load_s": load, "difference": differences}
    (folder / "output.json").write_text(json.dumps(output))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
