"""Under `pyg` and `pyg-sparse` nothing of ours runs, shown in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import torch
import torch_geometric.nn as pyg
theirs = {name: getattr(pyg, name).forward for name in sys.argv[2].split(",")}
propagate = pyg.MessagePassing.propagate

from gnnbench import backends, config, models, registry
from gnnbench.datasets import NodeDataset

edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
mask = torch.ones(4, dtype=torch.bool)
dataset = NodeDataset("ring", edge_index, torch.randn(4, 5), torch.zeros(4, dtype=torch.int64),
                      mask, mask, mask, 2, "accuracy", lambda logits, y: 0.0)
backend = backends.load(config.BackendConfig(name=sys.argv[1]))
wrong, bindings = [], []
for name in sys.argv[3].split(","):
    model = models.build(registry.find("models", name).Config(name=name), 5, 2)
    prepared = backend.prepare(model, dataset)
    bindings += prepared.bindings
    model(dataset.x, prepared.adj).sum().backward()
    for conv in model.convs:
        if type(conv).forward is not theirs[type(conv).__name__] or "forward" in vars(conv):
            wrong.append(name)
        if not type(conv).propagate.__module__.startswith("torch_geometric"):
            wrong.append(name + " propagate")
ours = [m for m in sys.modules if m.startswith(("gnnbench.ops", "gnnbench.convs", "gnnbench.patch"))]
compiled = [m for m in sys.modules if "isplib" in m]
print(json.dumps([wrong, bindings, ours, compiled, prepared.adj.layout == torch.strided]))
"""
CONVS = "GCNConv,SAGEConv,GINConv,GATConv,GATv2Conv,TransformerConv,AGNNConv"


@pytest.mark.parametrize(
    ("backend", "names", "dense"),
    [("pyg", "gcn,sage,gin,gat,gatv2,transformer,agnn", True), ("pyg-sparse", "gcn,sage,gin", False)],
)
def test_every_forward_is_pygs_own_function(backend: str, names: str, dense: bool) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, backend, CONVS, names]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], [], [], [], dense]
