"""PyG's graph auto-encoders, patched against unpatched."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GAE, VGAE, GCNConv, InnerProductDecoder

import gnnbench
from tests.patch.test_patch_functions import check
from tests.support.dropin import BACKEND

NODES, EDGES = 60, torch.randint(60, (2, 400), generator=torch.Generator().manual_seed(0))
NAME = "InnerProductDecoder"


class Encoder(torch.nn.Module):
    def __init__(self, variational: bool) -> None:
        super().__init__()
        self.first = GCNConv(7, 8)
        self.outs = torch.nn.ModuleList(GCNConv(8, 5) for _ in range(1 + variational))

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        x = self.first(x, edge_index).relu()
        outs = [conv(x, edge_index) for conv in self.outs]
        return outs if len(outs) > 1 else outs[0]


def program(kind: type[GAE]) -> list[Tensor]:
    """Train as PyG's example does: what it computes, with every gradient."""
    torch.manual_seed(0)
    model = kind(Encoder(kind is VGAE))
    x, negatives = torch.randn(NODES, 7), torch.randint(NODES, (2, 300))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        z = model.encode(x, EDGES)
        loss = model.recon_loss(z, EDGES, negatives)
        if isinstance(model, VGAE):
            loss = loss + model.kl_loss() / NODES
        loss.backward()
        optimizer.step()
    scores = model.decode(z, negatives), model.decoder(z, edge_index=EDGES, sigmoid=False)
    gradients = [parameter.grad for parameter in model.parameters()]
    return [loss, *scores, torch.tensor(model.test(z.detach(), EDGES, negatives)), *gradients]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("kind", [GAE, VGAE])
def test_an_auto_encoder_computes_what_it_does_in_pyg(kind: type[GAE]) -> None:
    expected = program(kind)
    gnnbench.patch_pyg(BACKEND)
    torch.testing.assert_close(program(kind), expected, rtol=1e-5, atol=1e-6)
    assert gnnbench.patch_status().accelerated[NAME] == 2 * 3 + 2 + 2
    assert not gnnbench.patch_status().declined


class Half(InnerProductDecoder):
    def forward(self, z: Tensor, edge_index: Tensor, sigmoid: bool = True) -> Tensor:
        return super().forward(z, edge_index, sigmoid) / 2


def z(**of: Any) -> Tensor:
    return torch.randn(NODES, 6, generator=torch.Generator().manual_seed(1), **of).requires_grad_()


decode = InnerProductDecoder()
PLAIN, DOUBLE = z(), z(dtype=torch.float64)
CASES: dict[str, tuple[Callable[[], Tensor], Tensor, bool]] = {
    "another class that calls it": (lambda: Half()(DOUBLE, EDGES), DOUBLE, True),
    "ids from the end": (lambda: decode(PLAIN, EDGES - NODES), PLAIN, False),
    "a node that is not there": (lambda: decode(PLAIN, EDGES + 1), PLAIN, False),
    "a pair of vectors": (lambda: decode(PLAIN, (EDGES[0], EDGES[1])), PLAIN, False),
    "more rows": (lambda: decode(PLAIN, torch.cat([EDGES, EDGES])), PLAIN, False),
    "bfloat16": (lambda: decode(PLAIN.bfloat16(), EDGES).float(), PLAIN, False),
    "a transform": (lambda: torch.func.vmap(lambda x: decode(x, EDGES))(DOUBLE[None]), DOUBLE, False),
    "no such argument": (lambda: decode(PLAIN, pairs=EDGES), PLAIN, False),
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", CASES)
def test_what_is_exact_runs_and_the_rest_is_left(case: str) -> None:
    run, x, runs = CASES[case]
    check(run, x, ran=NAME if runs else None)


def test_few_pairs_are_left_and_hooks_see_calls() -> None:
    seen: list[Tensor] = []
    hooked = InnerProductDecoder()
    hooked.register_forward_hook(lambda _, inputs, out: seen.append(out))
    with gnnbench.patched(BACKEND):
        hooked(PLAIN, EDGES)
        assert NAME not in gnnbench.patch_status().accelerated
        wide = torch.randn(NODES, 1000, requires_grad=True)
        hooked(wide, EDGES).sum().backward()
    assert gnnbench.patch_status().accelerated[NAME] == 1
    torch.testing.assert_close(seen[1], hooked(wide, EDGES))


@pytest.mark.usefixtures("always")
def test_one_model_alone_and_its_copies() -> None:
    model = gnnbench.accelerate(GAE(Encoder(False)), BACKEND)
    own = GAE(Encoder(False), Half())
    for each in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), gnnbench.accelerate(own)):
        each.decode(PLAIN, EDGES)
    assert gnnbench.patch_status().accelerated == {NAME: 3}
    gnnbench.accelerate(named := GAE(Encoder(False)), BACKEND, names=["GCNConv"])
    named.decode(PLAIN, EDGES)
    assert gnnbench.patch_status().accelerated == {NAME: 3}
