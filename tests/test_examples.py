"""Programs after PyG's examples for Planetoid, run as they are and with the two lines before them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import gnnbench
from gnnbench.backends import isplib
from gnnbench.patch.status import TALLY
from tests.support.real_data import REAL, needs_data

LINES = "import gnnbench\ngnnbench.patch_pyg()\n"
PROGRAM = """
import torch
import torch.nn.functional as F
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv
from torch_geometric.transforms import NormalizeFeatures

torch.manual_seed(1)
dataset = Planetoid(root, name="Cora", transform=NormalizeFeatures())
data = dataset[0]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = {first}
        self.conv2 = {second}

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index)


def mlp(inputs, outputs):
    return torch.nn.Sequential(torch.nn.Linear(inputs, 16), torch.nn.ReLU(), torch.nn.Linear(16, outputs))


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=5e-4)
for epoch in range(epochs):
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    F.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    correct = model(data.x, data.edge_index).argmax(-1) == data.y
accuracy = float(correct[data.test_mask].float().mean())
"""
MODELS = {
    "GCNConv": ("GCNConv(dataset.num_features, 16)", "GCNConv(16, dataset.num_classes)"),
    "SAGEConv": ("SAGEConv(dataset.num_features, 16)", "SAGEConv(16, dataset.num_classes)"),
    "GINConv": ("GINConv(mlp(dataset.num_features, 16))", "GINConv(mlp(16, dataset.num_classes))"),
    "GATConv": (
        "GATConv(dataset.num_features, 8, heads=8, dropout=0.5)",
        "GATConv(64, dataset.num_classes, concat=False, dropout=0.5)",
    ),
}


@needs_data
@pytest.mark.parametrize("conv", MODELS)
def test_two_lines_leave_the_accuracy_as_it_is(conv: str, tmp_path: Path) -> None:
    shutil.copytree(REAL / "Planetoid/Cora/raw", tmp_path / "Cora/raw")
    program = PROGRAM.replace("{first}", MODELS[conv][0]).replace("{second}", MODELS[conv][1])

    # Dropout of attention draws other random numbers than PyG's, and takes longer to come to the same.
    epochs, lr = (40, 0.01) if conv == "GATConv" else (8, 0.05)

    def accuracy(source: str) -> float:
        names = {"root": str(tmp_path), "__name__": "example", "epochs": epochs, "lr": lr}
        exec(source, names)
        return float(names["accuracy"])

    expected = accuracy(program)
    TALLY.clear()
    try:
        found = accuracy(LINES + program)
        status = gnnbench.patch_status()
    finally:
        gnnbench.unpatch_pyg()
    assert expected > 0.5
    assert abs(found - expected) < 0.03  # of 1,000 nodes
    assert isplib.MISSING or status.accelerated[conv] > 2 * epochs - 5, status  # by two convs
