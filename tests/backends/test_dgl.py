"""DGL's convs with PyG's weights, where there is a DGL."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric import nn as pyg

from gnnbench import backends, config, datasets
from gnnbench.backends import dgl
from gnnbench.comparison.parity import judge, steps
from gnnbench.config import BackendConfig
from gnnbench.errors import ConfigError, UnsupportedOp
from gnnbench.training import setup
from tests.support import graphs

MISSING = dgl.Backend.unavailable()
needs_dgl = pytest.mark.skipif(bool(MISSING), reason="; ".join(MISSING))
SQUARE = [name for name in graphs.SQUARE if graphs.zoo()[name][1]]


@needs_dgl
@pytest.mark.parametrize("name", SQUARE)
def test_convs_are_pygs_on_the_zoo(name: str) -> None:
    edge_index, nodes, _ = graphs.zoo()[name]
    x = torch.randn(nodes, 6)
    for conv in (
        pyg.GCNConv(6, 4),
        pyg.SAGEConv(6, 4),
        pyg.GINConv(torch.nn.Linear(6, 4), eps=0.5),
        pyg.GATConv(6, 4, heads=2),
        pyg.GATConv(6, 4, heads=2, concat=False),
        pyg.GATv2Conv(6, 4, heads=2),
    ):
        expected = [conv(x, edge_index)]
        expected += torch.autograd.grad(expected[0].square().sum(), [*conv.parameters()])
        model = torch.nn.ModuleList([conv])
        dgl.Backend(BackendConfig(name="dgl")).bind(model)
        ours = [conv(x, dgl.Adjacency(edge_index, nodes, nodes))]
        ours += torch.autograd.grad(ours[0].square().sum(), [*conv.parameters()])
        for found, wanted in zip(ours, expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@needs_dgl
@pytest.mark.parametrize("bases", [None, 2])
def test_relations_are_pygs(bases: int | None) -> None:
    """In any order of edges, and by relation, which DGL has another way for."""
    edge_index, nodes, _ = graphs.zoo()["hub"]
    x, edge_type = torch.randn(nodes, 6), torch.arange(edge_index.size(1)) % 3
    conv = pyg.RGCNConv(6, 4, 3, num_bases=bases)
    expected = conv(x, edge_index, edge_type)
    dgl.Backend(BackendConfig(name="dgl")).bind(torch.nn.ModuleList([conv]))
    for order in (torch.arange(len(edge_type)), edge_type.argsort()):
        adj = dgl.Adjacency(edge_index[:, order], nodes, nodes)
        torch.testing.assert_close(conv(x, adj, edge_type[order]), expected, rtol=1e-4, atol=1e-4)


@needs_dgl
@pytest.mark.parametrize(
    "batch", [{}, {"kind": "neighbors", "size": 13, "fanouts": [4, 3]}], ids=["full", "sampled"]
)
def test_models_pass_the_gate(batch: dict[str, Any]) -> None:
    cora = datasets.parse("synthetic:cora:0.1") | {"features": 16}
    mag = datasets.parse("synthetic:mag:0.001")
    links = cora | {"task": "links"}
    models = [("sage", cora), ("gat", cora), ("rgcn", mag), ("hetero_sage", mag)]
    if not batch:
        models += [("gcn", links), ("transformer", cora), ("agnn", cora)]
    for model, data_of in models:
        taken = {}
        for name in ("pyg", "dgl"):
            section = {"name": model, "hidden": 8} | ({"root_weight": False} if model == "transformer" else {})
            own = {"kind": "links"} if data_of is links else batch
            raw = {"dataset": data_of, "model": section, "batch": own, "backend": {"name": name}}
            wanted = config.validate(raw, "test")
            data = datasets.load(wanted.dataset, datasets.roots())
            taken[name] = steps.computed(wanted, backends.load(wanted.backend, wanted.train), data, name == "pyg")
        assert judge.judge(taken["dgl"], taken["pyg"]).ok


@needs_dgl
def test_its_own_loader_gives_blocks_of_its_sampler(tmp_path: Path) -> None:
    """All neighbours of a batch are those of ours; seeds keep their order, by processes too."""
    asked: dict[str, Any] = {
        "dataset": datasets.parse("synthetic:cora:0.1") | {"features": 16},
        "model": {"name": "sage", "hidden": 8},
        "batch": {"kind": "neighbors", "size": 13, "fanouts": [-1, -1], "shuffle": False},
    }

    def batching(loader: str, **changed: Any) -> Any:
        name, of, workers = loader.partition(":")
        own = {"name": "dgl", "loader": name} | ({"loader_workers": int(workers)} if of else {})
        wanted = config.validate({**asked, **changed, "backend": own}, "test")
        data = datasets.load(wanted.dataset, datasets.roots())
        backend = backends.load(wanted.backend, wanted.train)
        model = setup.build(wanted, setup.ModelDims.of(data)).eval()
        return model, setup.prepare(wanted, model, backend, data, tmp_path).batching

    model, ours = batching("ours")
    for loader in ("dgl", "dgl:2"):
        own_model, theirs = batching(loader)
        for epoch in range(2):
            for mine, other in zip(ours.epoch(0, epoch), theirs.epoch(0, epoch), strict=True):
                wanted = mine.loss(mine.outputs(model))
                torch.testing.assert_close(other.loss(other.outputs(own_model)), wanted, rtol=1e-5, atol=1e-5)
            assert theirs.edges
    for changed, why in (
        ({"model": {"name": "gcn"}}, "takes sources and destinations apart, such as sage"),
        ({"batch": {"kind": "full"}}, "batch.kind=full takes batches by ours only, found 'dgl'"),
        (
            {
                "dataset": datasets.parse("synthetic:mnist:0.0005"),
                "model": {"name": "gin", "readout": "mean"},
                "batch": {"kind": "graphs"},
            },
            "batch.kind=graphs takes batches by ours, pyg only, found 'dgl'",
        ),
    ):
        with pytest.raises(ConfigError, match=why):
            batching("dgl", **changed)


def test_what_dgl_lacks_and_where_it_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = torch.nn.ModuleList([pyg.TransformerConv(4, 4)])
    with pytest.raises(UnsupportedOp, match="DGL has no TransformerConv with these options"):
        dgl.Backend(BackendConfig(name="dgl")).bind(model)
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho /nowhere\necho 2.7\n")
    other.chmod(0o755)
    for python, why in ((other, "is Python 2.7, and this is 3."), (tmp_path / "absent", "cannot be run")):
        monkeypatch.setenv(dgl.VARIABLE, str(python))
        dgl.imported.cache_clear()
        assert why in dgl.imported()[1]
    dgl.imported.cache_clear()
    assert "/nowhere" not in sys.path
