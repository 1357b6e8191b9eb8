"""RGCNConv and FastRGCNConv by pairs of a relation and a node, against PyG's, in one chunk and in many."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as pyg
from torch_geometric.nn import FastRGCNConv, RGCNConv

import gnnbench
from gnnbench.convs import rgcn
from gnnbench.ops.kernels import Kernels
from tests.patch.test_patch_convs import check, flowing, rand
from tests.support import graphs
from tests.support.dropin import BACKEND

pytestmark = pytest.mark.usefixtures("always")
IN, OUT, TYPES = 6, 4, 5
CASES: dict[str, Callable[[], pyg.MessagePassing]] = {
    "plain": lambda: RGCNConv(IN, OUT, TYPES),
    "sum": lambda: RGCNConv(IN, OUT, TYPES, aggr="add", root_weight=False),
    "max": lambda: RGCNConv(IN, OUT, TYPES, aggr="max", bias=False),
    "bases": lambda: RGCNConv(IN, OUT, TYPES, num_bases=2),
    "blocks": lambda: RGCNConv(IN, OUT, TYPES, num_blocks=2),
    "fast": lambda: FastRGCNConv(IN, OUT, TYPES),
    "fast bases": lambda: FastRGCNConv(IN, OUT, TYPES, num_bases=2, aggr="add"),
    "fast blocks": lambda: FastRGCNConv(IN, OUT, TYPES, num_blocks=2),
}


def types(edges: int) -> Tensor:
    """One of them without edges."""
    return torch.randint(TYPES - 1, (edges,), generator=torch.Generator().manual_seed(3))


@pytest.fixture(params=[None, 1, 2000], ids=["whole", "a pair at a time", "chunks"])
def chunked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        for kind in (Kernels, *Kernels.__subclasses__()):
            monkeypatch.setattr(kind, "chunk_bytes", request.param)
        monkeypatch.setattr(rgcn, "LEAST_ROWS", 0)


@pytest.mark.usefixtures("chunked")
@pytest.mark.parametrize("graph", ["isolated nodes", "duplicates", "hub", "no edges", "reversed hub"])
@pytest.mark.parametrize("case", CASES)
def test_options(case: str, graph: str) -> None:
    edge_index, nodes, _ = graphs.zoo()[graph.removeprefix("reversed ")]
    make = flowing(CASES[case], "target_to_source" if graph.startswith("reversed") else "source_to_target", nodes)
    arguments = {"x": rand(nodes, IN), "edge_index": edge_index, "edge_type": types(edge_index.size(1))}
    check(make, arguments)


@pytest.mark.usefixtures("chunked")
@pytest.mark.parametrize("case", ["plain", "max", "fast"])
def test_pairs_of_features(case: str) -> None:
    edge_index = torch.stack([torch.randint(7, (60,)), torch.randint(4, (60,))])
    for x in ((rand(7, IN), rand(4, IN, seed=2)), (rand(7, IN, grad=False), rand(4, IN, seed=2))):
        check(CASES[case], {"x": x, "edge_index": edge_index, "edge_type": types(60)})


def test_gradients_of_gradients() -> None:
    edge_index, nodes, _ = graphs.zoo()["duplicates"]
    conv, edge_type = RGCNConv(IN, 2, TYPES, num_bases=2).double(), types(edge_index.size(1))
    with gnnbench.patched(BACKEND, strict=True):
        assert torch.autograd.gradgradcheck(
            lambda x, weight: torch.func.functional_call(conv, {"weight": weight}, (x, edge_index, edge_type)),
            (rand(nodes, IN), conv.weight.detach().clone().requires_grad_()),
        )


def test_types_that_change_are_sorted_again_and_others_once() -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    conv, x, edge_type = RGCNConv(IN, OUT, TYPES), torch.randn(nodes, IN), types(edge_index.size(1))
    before = gnnbench.patch_status().graphs_built
    with gnnbench.patched(BACKEND):
        outputs = [conv(x, edge_index, edge_type) for _ in range(2)]
        edge_type.copy_((edge_type + 1) % TYPES)
        outputs.append(conv(x, edge_index, edge_type))
        assert gnnbench.patch_status().graphs_built == before + 1
    assert torch.equal(outputs[0], outputs[1])
    torch.testing.assert_close(outputs[2], conv(x, edge_index, edge_type))


def test_autocast_is_pygs() -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    conv, x, edge_type = RGCNConv(IN, OUT, TYPES), torch.randn(nodes, IN), types(edge_index.size(1))
    with torch.autocast("cpu", torch.bfloat16):
        expected = conv(x, edge_index, edge_type)
        with gnnbench.patched(BACKEND, strict=True):
            found = conv(x, edge_index, edge_type)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("wrong", ["beyond", "missing", "short", "indices"])
def test_what_is_not_covered_is_left_to_pyg(wrong: str) -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    edge_type = types(edge_index.size(1))
    given = {
        "beyond": {"edge_type": edge_type + 2},
        "missing": {},
        "short": {"edge_type": edge_type[:-1]},
        "indices": {"edge_type": edge_type, "x": torch.arange(nodes) % IN},
    }
    arguments = {"x": rand(nodes, IN), "edge_index": edge_index, **given[wrong]}
    check(CASES["plain"], arguments, accelerated=False if wrong in ("beyond", "indices") else None)
