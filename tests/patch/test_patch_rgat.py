"""RGATConv by pairs of a relation and a source, against PyG's, with every option."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_geometric.nn import RGATConv

import gnnbench
from tests.patch.test_patch_convs import check, flowing, rand
from tests.patch.test_patch_rgcn import IN, OUT, TYPES, types
from tests.support import graphs
from tests.support.dropin import BACKEND

pytestmark = pytest.mark.usefixtures("always")
MULTIPLIED: dict[str, Any] = {"attention_mode": "multiplicative-self-attention"}
WITHIN: dict[str, Any] = {"attention_mechanism": "within-relation"}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "averaged": {"concat": False, "num_bases": 2, "bias": False},
    "blocks": {"num_blocks": 2, "edge_dim": 3},
    "within": {**WITHIN, "edge_dim": 3, "mod": "additive"},
    "multiplied": {**MULTIPLIED, "dim": 3, "edge_dim": 3, "mod": "scaled"},
    "multiplied averaged": {**MULTIPLIED, "dim": 2, "concat": False, "mod": "additive"},
    "multiplied within": {**MULTIPLIED, **WITHIN, "mod": "f-additive"},
    "scaled": {"mod": "scaled", "num_bases": 3},
    "f-scaled": {"mod": "f-scaled", "negative_slope": 0.5},
}


@pytest.mark.parametrize("graph", ["isolated nodes", "duplicates", "hub", "no edges", "reversed hub"])
@pytest.mark.parametrize("case", CASES)
def test_options(case: str, graph: str) -> None:
    edge_index, nodes, _ = graphs.zoo()[graph.removeprefix("reversed ")]
    edges, options = edge_index.size(1), CASES[case]
    reverse = "target_to_source" if graph.startswith("reversed") else "source_to_target"
    make = flowing(lambda: RGATConv(IN, OUT, TYPES, heads=2, **options), reverse, nodes)
    arguments = {"x": rand(nodes, IN, grad=False).mul_(0.2).requires_grad_(), "edge_index": edge_index}
    arguments["edge_type"] = types(edges)
    if "edge_dim" in options:
        arguments["edge_attr"] = rand(edges, 3, seed=2)
    check(make, arguments)
    check(make, {**arguments, "return_attention_weights": True})


def test_dropout_of_attention_and_autocast() -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    x, edge_type = torch.randn(nodes, IN), types(edge_index.size(1))
    conv = RGATConv(IN, OUT, TYPES, heads=2, dropout=1.0)
    with gnnbench.patched(BACKEND, strict=True):
        assert not conv(x, edge_index, edge_type).any()
        conv.eval()
        found = conv(x, edge_index, edge_type)
        with torch.autocast("cpu", torch.bfloat16):
            lower = conv(x, edge_index, edge_type)
    expected = conv(x, edge_index, edge_type)
    torch.testing.assert_close(found, expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert lower.dtype == conv(x, edge_index, edge_type).dtype
    torch.testing.assert_close(lower.float(), expected, rtol=2e-2, atol=2e-2)
