"""The decoder of a model of links on kernels: pairs of nodes are edges, for which no features are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gnnbench.ops.pairs import pair_dot, pair_map
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from gnnbench.ops.kernels import Kernels

# Features of all pairs, below which sorting the pairs takes longer than it saves (one thread, 16 to 256 features).
SORTED, STREAMED = 1 << 18, 1 << 21


def bind(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels` score pairs where `decoder.score` computes it from both ends, or these have a dot product."""
    decoder: Any = getattr(model, "decoder", None)
    if not hasattr(decoder, "score"):
        return []
    gathered, is_product = decoder.forward, decoder.score is None

    def products(z: Tensor, pairs: Any) -> Tensor:
        few = pairs.nodes.size(1) * z.size(1) < SORTED
        return gathered(z, pairs) if few else pair_dot(kernels, z, z, pairs.nodes)

    def streamed(z: Tensor, pairs: Any) -> Tensor:
        if pairs.nodes.size(1) * z.size(1) < STREAMED:
            return gathered(z, pairs)
        weights, draws = list(decoder.parameters()), decoder.training and decoder.drop.p > 0
        return pair_map(kernels, decoder.score, z, z, pairs.nodes, parameters=weights, draws=draws)

    decoder.forward = products if is_product else streamed
    ops = ["sddmm", "spmm"] if is_product else ["segment"]
    providers = {op: kernels.name if op in kernels.accelerated else "torch" for op in ops}
    if not is_product:
        providers = {"pairs": providers["segment"]}
    return [Binding(module="decoder", conv=type(decoder).__name__, kernels=providers)]
