"""Under `pyg` and `pyg-sparse` nothing of ours runs, shown in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
import torch
import torch_geometric.nn as pyg
theirs = {name: getattr(pyg, name).forward for name in sys.argv[1].split(",")}
propagate = pyg.MessagePassing.propagate

from gnnbench import backends, config, models, registry
from gnnbench.datasets import NodeDataset

edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
mask = torch.ones(4, dtype=torch.bool)
dataset = NodeDataset("ring", edge_index, torch.randn(4, 5), torch.zeros(4, dtype=torch.int64),
                      mask, mask, mask, 2)
wrong, bindings, dense = [], [], []
for asked in sys.argv[2:]:
    chosen, _, names = asked.partition(":")
    backend = backends.load(config.BackendConfig(name=chosen))
    for name in names.split(","):
        model = models.build(registry.find("models", name).Config(name=name), 5, 2)
        prepared = backend.prepare(model, dataset)
        bindings += prepared.bindings
        model(dataset.x, prepared.adj).sum().backward()
        for conv in model.convs:
            if type(conv).forward is not theirs[type(conv).__name__] or "forward" in vars(conv):
                wrong.append(name)
            if not type(conv).propagate.__module__.startswith("torch_geometric"):
                wrong.append(name + " propagate")
    dense.append(prepared.adj.layout == torch.strided)
ours = [m for m in sys.modules if m.startswith(("gnnbench.ops", "gnnbench.convs", "gnnbench.patch"))]
compiled = [m for m in sys.modules if "isplib" in m]
print(json.dumps([wrong, bindings, ours, compiled, dense]))
"""
CONVS = "GCNConv,SAGEConv,GINConv,GATConv,GATv2Conv,TransformerConv,AGNNConv"


def test_every_forward_is_pygs_own_function() -> None:
    backends = ["pyg:gcn,sage,gin,gat,gatv2,transformer,agnn", "pyg-sparse:gcn,sage,gin"]
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, CONVS, *backends]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], [], [], [], [True, False]]
