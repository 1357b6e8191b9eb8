"""The stand-in for PyG's `InnerProductDecoder`, by which GAE and VGAE score pairs of nodes."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import InnerProductDecoder

from gnnbench.convs import _overrides
from gnnbench.convs._bound import Accelerated
from gnnbench.convs._cost import Cost, Rates
from gnnbench.convs._layers import has_own_forward
from gnnbench.messages.arguments import PLAIN
from gnnbench.ops.pairs import edge_dot
from gnnbench.patch import call
from gnnbench.patch.call import Declined
from gnnbench.patch.engine import Engine
from gnnbench.patch.stand_in import StandIn

# Without and with a backward, in which PyG adds up one row of z after another: on 5,000 to 100,000 pairs.
COST = Cost(Rates(110_000, 35, -20_000, 0, 0.9), Rates(220_000, 50, -40_000, 0, 2.6))
EXACT = torch.float32, torch.float64  # in others PyG rounds every product


class Decoder(StandIn):
    """Dot products of both ends of pairs [2, P] without their features: `original` gathers them."""

    name, attribute = "InnerProductDecoder", "forward"

    def __init__(self) -> None:
        self.original: Any = inspect.unwrap(InnerProductDecoder.forward)
        self.names = tuple(inspect.signature(self.original).parameters)[1:]

    def __reduce__(self) -> str:
        return "DECODER"

    def owners(self) -> list[Any]:
        return [InnerProductDecoder] if _overrides.is_from(self.original, "torch_geometric.") else []

    def accelerated(self, engine: Engine, *args: Any, **kwargs: Any) -> Tensor:
        decoder, *rest = args
        asked = {"sigmoid": True, **call.named(self.names, rest, kwargs)}
        z: Any = asked.get("z")
        pairs: Any = asked.get("edge_index")
        if type(z) not in PLAIN or z.layout != torch.strided or z.dim() != 2 or z.dtype not in EXACT:
            raise Declined("z is not a plain matrix of float32 or float64")
        if type(pairs) is not Tensor or pairs.dtype != torch.int64 or pairs.dim() != 2 or pairs.size(0) != 2:
            raise Declined("edge_index is not a tensor [2, E] of 64-bit integers")
        nodes, count = z.size(0), pairs.size(1)
        engine.policy.reject_small(count * z.size(1))
        if why := call.surroundings():
            raise Declined(why)
        known = engine.find(z, pairs, nodes, nodes)
        engine.policy.weigh(pairs, COST.price(z, count), decoder, known=known is not None)
        kernels, graph = engine.graph(z, pairs, nodes, nodes, known=known)
        score = edge_dot(kernels, graph, z, z)
        return torch.sigmoid(score) if asked["sigmoid"] else score


DECODER = Decoder()


def bind(model: Module, engine: Engine) -> None:
    """Let `engine` run the decoders of one model that have no forward of their own."""
    for module in model.modules():
        if type(module) is InnerProductDecoder and not has_own_forward(module):
            bound: Any = module
            bound.forward = Accelerated(DECODER, engine, module)
