"""What the attention convs share around their ops."""

from __future__ import annotations

from torch import Tensor
from torch_geometric.nn import MessagePassing


def dropout(conv: MessagePassing) -> float:
    """The dropped share of attention weights, zero outside training."""
    return float(conv.dropout) if conv.training else 0.0


def joined(conv: MessagePassing, out: Tensor) -> Tensor:
    """Heads side by side [N, heads * out_channels], or averaged [N, out_channels], from [N, H, C]."""
    return out.flatten(1) if conv.concat else out.mean(dim=1)


def finish(conv: MessagePassing, out: Tensor, x: Tensor) -> Tensor:
    """Heads joined, with the skip connection and bias of GATConv and GATv2Conv."""
    out = joined(conv, out)
    if conv.res is not None:
        out = out + conv.res(x)
    return out if conv.bias is None else out + conv.bias
