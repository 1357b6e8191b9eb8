"""Every message-passing class of PyG, small, and called with all that it takes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

F = 6  # channels
RELATIONS = 3
SCALERS = ["identity", "amplification", "attenuation", "linear", "inverse_linear"]


class Given(NamedTuple):
    """A graph, and tensors over its nodes [N, ...] and edges [E, ...], float64."""

    edge_index: Tensor
    x: Tensor
    x_0: Tensor
    pos: Tensor
    normal: Tensor
    weight: Tensor
    attr: Tensor
    kind: Tensor  # of an edge
    node_kind: Tensor


def given(edge_index: Tensor, nodes: int, device: torch.device | str = "cpu") -> Given:
    """Random tensors for a graph."""
    generator = torch.Generator().manual_seed(len(edge_index[0]))
    edges = edge_index.size(1)

    def random(*shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64).add_(0.1)
        return drawn.to(device).requires_grad_()

    return Given(
        edge_index.to(device),
        *(random(nodes, F), random(nodes, F), random(nodes, 3), random(nodes, 3)),
        *(random(edges), random(edges, 2)),
        torch.randint(RELATIONS, (edges,), generator=generator).to(device),
        torch.randint(2, (nodes,), generator=generator).to(device),
    )


def mlp(*widths: int) -> nn.Sequential:
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(*(each for layer in layers for each in (layer, nn.Tanh())))


def pna(**options: Any) -> nn.Module:
    aggregators = ["mean", "min", "max", "std", "var", "sum"]
    return pyg.PNAConv(F, F, aggregators, SCALERS, torch.tensor([1, 4, 3, 2, 1]), **options)


Call = Callable[[Any, Given], Any]


def plain(conv: Any, g: Given) -> Any:
    return conv(g.x, g.edge_index)


def weighted(conv: Any, g: Given) -> Any:
    return conv(g.x, g.edge_index, g.weight)


def featured(conv: Any, g: Given) -> Any:
    return conv(g.x, g.edge_index, g.attr)


def typed(conv: Any, g: Given) -> Any:
    return conv(g.x, g.edge_index, g.kind)


def placed(conv: Any, g: Given) -> Any:
    return conv(g.x, g.pos, g.edge_index)


def dictionaries(conv: Any, g: Given) -> Any:
    return conv({"a": g.x}, {("a", "to", "a"): g.edge_index})["a"]


def typed_featured(conv: Any, g: Given) -> Any:
    return conv(g.x, g.edge_index, g.kind, g.attr)


def meshed(conv: Any, g: Given) -> Any:
    """Every node has four neighbours, of which the first and third, and the second and fourth, belong together."""
    nodes = torch.arange(len(g.x))
    neighbours = torch.stack([nodes + step for step in (3, 1, 7, 2)], 1).flatten() % len(nodes)
    return conv(g.x, torch.stack([neighbours, nodes.repeat_interleave(4)]))


def supervised(conv: Any, g: Given) -> Any:
    """The output of a second call, after one that left its attention on the layer, and the loss of that."""
    for _ in range(2):
        out = conv(g.x, g.edge_index, g.edge_index.flip(0))
    return torch.cat([out.flatten(), conv.get_attention_loss().view(1)])


METADATA = (["a"], [("a", "to", "a")])

# Class -> how it runs, and ways to make and to call it. "kernels": it has a forward of ours.
LAYERS: dict[str, tuple[str, list[tuple[Callable[[], Any], Call]]]] = {
    "AGNNConv": ("kernels", [(lambda: pyg.AGNNConv(), plain)]),
    "APPNP": ("spmm", [(lambda: pyg.APPNP(3, 0.1), plain), (lambda: pyg.APPNP(2, 0.1), weighted)]),
    "ARMAConv": ("spmm", [(lambda: pyg.ARMAConv(F, 4, num_stacks=2, num_layers=2), weighted)]),
    "CGConv": ("streamed", [(lambda: pyg.CGConv(F), plain), (lambda: pyg.CGConv(F, dim=2), featured)]),
    "ChebConv": ("spmm", [(lambda: pyg.ChebConv(F, 4, K=3), weighted)]),
    "ClusterGCNConv": ("spmm", [(lambda: pyg.ClusterGCNConv(F, 4, diag_lambda=0.5), plain)]),
    "DNAConv": (
        "streamed",
        [(lambda: pyg.DNAConv(F, heads=2), lambda c, g: c(torch.stack([g.x, g.x_0], 1), g.edge_index))],
    ),
    "DynamicEdgeConv": ("fused", [(lambda: pyg.DynamicEdgeConv(mlp(2 * F, 5), 4), lambda c, g: c(g.x))]),
    "EGConv": (
        "fused",
        [(lambda: pyg.EGConv(F, 8, ["sum", "mean", "symnorm", "min", "max", "var", "std"], 2, 2), plain)],
    ),
    "EdgeConv": (
        "fused",
        [
            (lambda: pyg.EdgeConv(mlp(2 * F, 5)), plain),
            (lambda: pyg.EdgeConv(mlp(2 * F, 5), aggr=["mean", "softmax", "powermean"]), plain),
        ],
    ),
    "FAConv": (
        "streamed",
        [
            (lambda: pyg.FAConv(F), lambda c, g: c(g.x, g.x_0, g.edge_index)),
            (lambda: pyg.FAConv(F), lambda c, g: c(g.x, g.x_0, g.edge_index, return_attention_weights=True)[1][1]),
        ],
    ),
    "FastRGCNConv": (
        "kernels",
        [
            (lambda: pyg.FastRGCNConv(F, 4, RELATIONS, num_bases=2), typed),
            (lambda: pyg.FastRGCNConv(F, 4, RELATIONS, num_blocks=2, aggr="sum"), typed),
        ],
    ),
    "FeaStConv": ("streamed", [(lambda: pyg.FeaStConv(F, 4, heads=2), plain)]),
    "FiLMConv": (
        "fused",
        [(lambda: pyg.FiLMConv(F, 4), plain), (lambda: pyg.FiLMConv(F, 4, num_relations=RELATIONS), typed)],
    ),
    "GATConv": ("kernels", [(lambda: pyg.GATConv(F, 4, heads=2), plain)]),
    "GATv2Conv": ("kernels", [(lambda: pyg.GATv2Conv(F, 4, heads=2), plain)]),
    "GCN2Conv": (
        "spmm",
        [(lambda: pyg.GCN2Conv(F, 0.1, 0.5, 1), lambda c, g: c(g.x, g.x_0, g.edge_index, g.weight))],
    ),
    "GCNConv": ("kernels", [(lambda: pyg.GCNConv(F, 4), weighted)]),
    "GENConv": (
        "streamed",
        [
            (lambda: pyg.GENConv(F, 4, norm="layer"), plain),
            (lambda: pyg.GENConv(F, 4, aggr="powermean", learn_p=True, edge_dim=2), featured),
        ],
    ),
    "GINConv": ("kernels", [(lambda: pyg.GINConv(mlp(F, 4)), plain)]),
    "GINEConv": ("kernels", [(lambda: pyg.GINEConv(mlp(F, 4), edge_dim=2), featured)]),
    "GMMConv": (
        "kernels",
        [
            (lambda: pyg.GMMConv(F, 4, dim=2, kernel_size=3), featured),
            (lambda: pyg.GMMConv(F, 4, dim=2, kernel_size=3, separate_gaussians=True), featured),
        ],
    ),
    "GatedGraphConv": ("kernels", [(lambda: pyg.GatedGraphConv(F, 2), weighted)]),
    "GeneralConv": (
        "fused",
        [
            (lambda: pyg.GeneralConv(F, 4, in_edge_channels=2, heads=2, attention=True), featured),
            (lambda: pyg.GeneralConv(F, 4, directed_msg=False), plain),
        ],
    ),
    "GraphConv": ("kernels", [(lambda: pyg.GraphConv(F, 4), weighted)]),
    "GravNetConv": ("fused", [(lambda: pyg.GravNetConv(F, 4, 3, 5, 4), lambda c, g: c(g.x))]),
    "HANConv": ("kernels", [(lambda: pyg.HANConv(F, 4, METADATA, heads=2), dictionaries)]),
    "HEATConv": (
        "streamed",
        [
            (
                lambda: pyg.HEATConv(F, 4, 2, RELATIONS, 3, 2, 3, heads=2),
                lambda c, g: c(g.x, g.edge_index, g.node_kind, g.kind, g.attr),
            )
        ],
    ),
    "HGTConv": ("kernels", [(lambda: pyg.HGTConv(F, 4, METADATA, heads=2), dictionaries)]),
    "HypergraphConv": (
        "streamed",
        [
            (lambda: pyg.HypergraphConv(F, 4), plain),
            (
                lambda: pyg.HypergraphConv(F, 4, use_attention=True, heads=2),
                lambda c, g: c(g.x, g.edge_index, hyperedge_attr=g.x_0),
            ),
        ],
    ),
    "LEConv": ("fused", [(lambda: pyg.LEConv(F, 4), weighted)]),
    "LGConv": ("spmm", [(lambda: pyg.LGConv(), weighted)]),
    "LabelPropagation": (
        "spmm",
        [(lambda: pyg.LabelPropagation(2, 0.5), lambda c, g: c(g.x, g.edge_index, edge_weight=g.weight))],
    ),
    "MFConv": ("kernels", [(lambda: pyg.MFConv(F, 4, max_degree=3), plain)]),
    "MeshCNNConv": ("PyG", [(lambda: pyg.MeshCNNConv(F, 4), meshed)]),
    "MixHopConv": ("spmm", [(lambda: pyg.MixHopConv(F, 4), weighted)]),
    "NNConv": ("streamed", [(lambda: pyg.NNConv(F, 4, mlp(2, 4 * F), aggr="mean"), featured)]),
    "PDNConv": ("kernels", [(lambda: pyg.PDNConv(F, 4, edge_dim=2, hidden_channels=3), featured)]),
    "PNAConv": (
        "streamed",
        [(lambda: pna(towers=2), plain), (lambda: pna(edge_dim=2, divide_input=True, towers=2), featured)],
    ),
    "PPFConv": (
        "streamed",
        [(lambda: pyg.PPFConv(mlp(F + 4, 5), mlp(5, 4)), lambda c, g: c(g.x, g.pos, g.normal, g.edge_index))],
    ),
    "PointGNNConv": ("streamed", [(lambda: pyg.PointGNNConv(mlp(F, 3), mlp(F + 3, 5), mlp(5, F)), placed)]),
    "PointNetConv": ("streamed", [(lambda: pyg.PointNetConv(mlp(F + 3, 5), mlp(5, 4)), placed)]),
    "PointTransformerConv": ("streamed", [(lambda: pyg.PointTransformerConv(F, 4), placed)]),
    "RGATConv": (
        "kernels",
        [(lambda: pyg.RGATConv(F, 4, RELATIONS, heads=2, edge_dim=2), typed_featured)],
    ),
    "RGCNConv": ("kernels", [(lambda: pyg.RGCNConv(F, 4, RELATIONS), typed)]),
    "ResGatedGraphConv": (
        "streamed",
        [
            (lambda: pyg.ResGatedGraphConv(F, 4), plain),
            (lambda: pyg.ResGatedGraphConv(F, 4, edge_dim=2), featured),
        ],
    ),
    "SAGEConv": ("kernels", [(lambda: pyg.SAGEConv(F, 4), plain)]),
    "SGConv": ("spmm", [(lambda: pyg.SGConv(F, 4, K=2), weighted)]),
    "SSGConv": ("spmm", [(lambda: pyg.SSGConv(F, 4, alpha=0.1, K=2), weighted)]),
    "SignedConv": (
        "spmm",
        [(lambda: pyg.SignedConv(F, 4, first_aggr=True), lambda c, g: c(g.x, g.edge_index, g.edge_index.flip(1)))],
    ),
    "SimpleConv": (
        "spmm",
        [(lambda: pyg.SimpleConv("mean"), plain), (lambda: pyg.SimpleConv("max"), weighted)],
    ),
    "SplineConv": ("streamed", [(lambda: pyg.SplineConv(F, 4, dim=2, kernel_size=3), featured)]),
    "SuperGATConv": ("streamed", [(lambda: pyg.SuperGATConv(F, 4, heads=2), supervised)]),
    "TAGConv": ("spmm", [(lambda: pyg.TAGConv(F, 4), weighted)]),
    "TransformerConv": ("kernels", [(lambda: pyg.TransformerConv(F, 4, heads=2), plain)]),
    "WLConvContinuous": ("spmm", [(lambda: pyg.WLConvContinuous(), weighted)]),
}

# Classes whose messages are another package's: the operator of dgNN, and the products of torch-sparse.
ELSEWHERE = {"FusedGATConv", "PANConv"}
