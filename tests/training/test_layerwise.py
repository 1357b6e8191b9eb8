"""Inference a layer at a time, in blocks: equal to the whole graph in every bit, and resumed at its block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench import backends, models, registry
from gnnbench.backends import isplib
from gnnbench.backends.isplib import choices
from gnnbench.config import BackendConfig
from gnnbench.errors import OutOfMemory
from gnnbench.graph import Graph
from gnnbench.measure import memory
from gnnbench.training import layerwise
from tests.support import graphs

pytestmark = pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
CPU = torch.device("cpu")


def every_oddity() -> tuple[Tensor, int]:
    """The square graphs of the zoo beside each other, and a larger one."""
    parts, nodes = [], 0
    for name in graphs.SQUARE:
        edge_index, size, _ = graphs.zoo()[name]
        parts.append(edge_index + nodes)
        nodes += size
    larger = graphs._power_law(400, 6000) + nodes
    return torch.cat([*parts, larger], dim=1), nodes + 400


def prepared(name: str, **keys: Any) -> tuple[Any, Tensor, Graph]:
    """A model on kernels, features and edges."""
    backend = isplib.Backend(BackendConfig(name="isplib", **keys.pop("backend", {})))
    edge_index, nodes = every_oddity()
    config = registry.find("models", name).Config(name=name, **{"hidden": 16, **keys})
    torch.manual_seed(0)
    model = models.build(config, 24, 5, batched=True).eval()
    backend.bind(model)
    return model, torch.randn(nodes, 24), Graph.from_edge_index(edge_index, nodes, layout=backend.layout())


def computed(model: Any, x: Tensor, graph: Graph, rows: layerwise.Rows | None = None, block: int = 64) -> Tensor:
    rows = rows or layerwise.Rows(len(x))
    return layerwise.outputs(model, x, layerwise.of_blocks(graph), rows, CPU, block)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("gcn", {"jk": "cat"}),
        ("gcn", {"backend": {"fold_norm": False, "transform_first": False}}),
        ("sage", {"layers": 3, "residual": True, "norm": "layer"}),
        ("gin", {"jk": "max", "norm": "batch"}),
        ("gat", {}),
        ("gatv2", {}),
        ("transformer", {"layers": 1}),
        ("agnn", {}),
        ("agnn", {"projected": True}),
        ("conv", {"conv": "GraphConv"}),
    ],
    ids=str,
)
@torch.no_grad()
def test_blocks_are_the_whole_graph_to_the_last_bit(name: str, keys: dict[str, Any], tmp_path: Path) -> None:
    model, x, graph = prepared(name, **keys)
    expected = model(x, graph)
    assert torch.equal(computed(model, x, graph), expected)
    assert torch.equal(computed(model, x, graph, layerwise.Rows(len(x), tmp_path)), expected)
    assert len([*tmp_path.glob("*.npy")]) == 1  # what no layer needs any more is gone


@torch.no_grad()
def test_blocks_add_up_in_the_order_of_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it goes by columns in blocks, as of crowded graphs, though few edges run into a block of rows."""
    monkeypatch.setattr(choices, "FULL", 8)
    model, x, graph = prepared("sage")
    expected = model(x, graph)
    assert any(key[:2] == ("blocks", "spmm") for key in graph.cache)
    assert torch.equal(computed(model, x, graph), expected)


@torch.no_grad()
def test_a_killed_inference_goes_on_at_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every block of all layers, to the same bits; files of other weights are not gone on with."""
    model, x, graph = prepared("gat", jk="cat")
    expected, put, written = model(x, graph), layerwise.Rows.put, [0]

    def killed(rows: layerwise.Rows, *what: Any) -> None:
        if written[-1] == 1:
            raise KeyboardInterrupt
        put(rows, *what)
        written[-1] += 1

    monkeypatch.setattr(layerwise.Rows, "put", killed)
    while True:
        try:
            out = computed(model, x, graph, layerwise.Rows(len(x), tmp_path, "weights"))
            break
        except KeyboardInterrupt:
            written.append(0)
    assert torch.equal(out, expected)
    assert len(written) == 5 * (len(x) // 64)  # two passes of two layers, and the output
    assert layerwise.Rows(len(x), tmp_path, "weights").complete("output")
    assert not layerwise.Rows(len(x), tmp_path, "others").complete("output")


@torch.no_grad()
def test_blocks_shrink_until_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, graph = prepared("sage")
    expected, sizes, most = model(x, graph), [], [100]
    blocks = layerwise.of_blocks(graph)

    def gather(begin: int, end: int, fetched: Any) -> Any:
        sizes.append(end - begin)
        if sizes[-1] > most[0]:
            raise MemoryError
        return blocks(begin, end, fetched)

    monkeypatch.setattr(layerwise, "LEAST", 64)
    monkeypatch.setattr(memory, "left", lambda: 2 * 256 * 4 * layerwise.COPIES * 24)  # for 256 nodes
    assert torch.equal(layerwise.outputs(model, x, gather, layerwise.Rows(len(x)), CPU), expected)
    assert sizes[:3] == [256, 128, 64]
    most[0] = 0
    with pytest.raises(OutOfMemory, match=r"64 nodes than measure.memory_limit leaves; raise it"):
        layerwise.outputs(model, x, gather, layerwise.Rows(len(x)), CPU)


def test_what_is_not_exact_is_refused() -> None:
    edge, gcn = prepared("conv", conv="EdgeConv")[0], prepared("gcn")[0]
    ours, pyg = isplib.Backend(BackendConfig()), backends.load(BackendConfig(name="pyg"))
    assert layerwise.unsupported(edge, ours) == ["EdgeConv has messages that no kernel of one layer computes"]
    assert layerwise.unsupported(gcn, ours) == []
    assert layerwise.unsupported(gcn, pyg) == ["GCNConv has no pair of sources and destinations in PyG"]
