"""DGL's own convs with the weights of PyG's: another library, held against PyG as any backend is.

`GNNBENCH_DGL_PYTHON` names the interpreter of an environment that has DGL, if this one has none.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric import nn as pyg
from torch_geometric.utils import add_self_loops, remove_self_loops

from gnnbench.backends import base
from gnnbench.errors import UnsupportedOp
from gnnbench.graph.union import Union
from gnnbench.results.schema import Binding

VARIABLE = "GNNBENCH_DGL_PYTHON"
REMEDY = (
    "run `pip install --no-deps dgl==2.1.0`, or give the interpreter of an environment that has it by --dgl-python"
)
ABOUT = "import sys, sysconfig; print(sysconfig.get_paths()['purelib'], sysconfig.get_python_version(), sep='\\n')"

Apply = Callable[..., Tensor]  # (DGL's graph, features or a pair, types of edges) -> what PyG's conv returns


@cache
def imported() -> tuple[Any, str]:
    """DGL, or why it cannot be imported."""
    os.environ.setdefault("DGLBACKEND", "pytorch")
    if python := os.environ.get(VARIABLE):
        command, own = [python, "-c", ABOUT], sysconfig.get_python_version()
        try:
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
        except (OSError, subprocess.CalledProcessError):
            return None, f"{python} cannot be run"
        if told[1] != own:
            return None, f"{python} is Python {told[1]}, and this is {own}"
        sys.path.append(told[0])
    # DGL 2.1 checks the version of torch for this part only, which nothing here needs.
    sys.modules.setdefault("dgl.graphbolt", ModuleType("dgl.graphbolt"))
    try:
        return importlib.import_module("dgl"), ""
    except (ImportError, OSError) as error:
        sys.modules.pop("dgl.graphbolt")
        return None, f"DGL cannot be imported ({str(error).splitlines()[0]})"


class Adjacency:
    """A graph, or edges from more nodes to fewer, as DGL takes them; self-loops are put in their place once."""

    def __init__(self, edge_index: Tensor | None, num_src: int, num_dst: int) -> None:
        self.edge_index, self.num_src, self.num_dst = edge_index, num_src, num_dst
        self._graphs: dict[bool, Any] = {}

    @classmethod
    def of(cls, block: Any) -> Adjacency:
        """Take a block of DGL's sampler as it is."""
        adj = cls(None, block.num_src_nodes(), block.num_dst_nodes())
        adj._graphs[False] = block
        return adj

    def graph(self, loops: bool) -> Any:
        """Return the edges as they are, or with one self-loop at each destination in place of those there are."""
        if loops not in self._graphs:
            dgl, _ = imported()
            edges = torch.stack(self._graphs[False].edges()) if self.edge_index is None else self.edge_index
            if loops:
                edges, _ = add_self_loops(remove_self_loops(edges)[0], num_nodes=self.num_dst)
            src, dst = edges
            if self.num_src == self.num_dst:
                made = dgl.graph((src, dst), num_nodes=self.num_src)
                made.create_formats_()
            else:
                made = dgl.create_block((src, dst), self.num_src, self.num_dst)
            self._graphs[loops] = made
        return self._graphs[loops]


class Backend(base.Backend):
    """PyG's models, whose convs are called on DGL's graph."""

    name = "dgl"
    loaders = ("ours", "dgl")

    @classmethod
    def unavailable(cls) -> list[str]:
        _, why = imported()
        return [f"{why}; {REMEDY}"] if why else []

    def prepare(self, model: Module, dataset: base.Inputs) -> base.Prepared:
        bindings = self.bind(model)
        adj = Adjacency(dataset.edge_index, dataset.num_nodes, dataset.num_nodes)
        for conv in model.modules():
            if isinstance(conv, pyg.MessagePassing):
                adj.graph(_loops(conv))
        return base.Prepared(adj, bindings)

    def bind(self, model: Module) -> list[Binding]:
        convs = {name: conv for name, conv in model.named_modules() if isinstance(conv, pyg.MessagePassing)}
        made = {name: CONVS.get(type(conv), lambda _: None)(conv) for name, conv in convs.items()}
        if missing := dict.fromkeys(type(convs[name]).__name__ for name, apply in made.items() if apply is None):
            reasons = [f"DGL has no {name} with these options, or none is known here" for name in missing]
            raise UnsupportedOp(f"this model on backend {self.name!r}", reasons)
        for name, conv in convs.items():
            conv.forward = partial(_forward, conv, made[name])
        bindings = [
            Binding(module=name, conv=type(conv).__name__, kernels={"conv": "dgl"}) for name, conv in convs.items()
        ]
        decoder: Any = getattr(model, "decoder", None)
        if hasattr(decoder, "ends"):
            decoder.forward = partial(_dots, decoder)
            bindings.append(Binding(module="decoder", conv=type(decoder).__name__, kernels={"u_dot_v": "dgl"}))
        return bindings

    def collate(
        self, union: Union, graphs: Tensor, x: Tensor, edge_attr: Tensor | None, *, pooled: bool
    ) -> base.Collated:
        own = union.gather(graphs, x)
        adj = Adjacency(union.edge_index(graphs), len(own), len(own))
        return base.Collated(own, adj, base.owners(union.ptr(graphs)) if pooled else None)

    def adjacency(self, edges: Any, layout: Any) -> Adjacency:
        nodes = getattr(edges, "num_nodes", None)
        num_src, num_dst = (edges.num_cols, edges.num_rows) if nodes is None else (nodes, nodes)
        return Adjacency(edges.edge_index, num_src, num_dst)


def _forward(conv: Any, apply: Any, x: Any, adj: Adjacency, *of_edges: Tensor) -> Tensor:
    return apply(adj.graph(_loops(conv)), x, *of_edges)


def _dots(decoder: Any, z: Tensor, pairs: Any) -> Tensor:
    """Scores [P] of pairs by DGL's `u_dot_v`."""
    dgl, _ = imported()
    x_src, x_dst, nodes = decoder.ends(z, pairs)
    scores: Tensor = dgl.ops.u_dot_v(dgl.create_block((nodes[0], nodes[1]), len(x_src), len(x_dst)), x_src, x_dst)
    return scores.squeeze(-1)


def _loops(conv: Any) -> bool:
    return bool(getattr(conv, "add_self_loops", False))


def _gcn(conv: Any) -> Apply | None:
    from dgl.nn.pytorch import GraphConv

    if conv.improved or not conv.normalize:
        return None
    # DGL scales sources by their out-degree, and PyG by their in-degree: weights of edges where these differ.
    both, weighted = (
        GraphConv(conv.in_channels, conv.out_channels, norm, weight=False, bias=False, allow_zero_in_degree=True)
        for norm in ("both", "none")
    )

    def apply(graph: Any, x: Tensor) -> Tensor:
        weight = conv.lin.weight.t()
        if not hasattr(graph, "norm"):
            graph.norm = _norm(graph)
        if graph.norm is None:
            return _biased(both(graph, x, weight=weight), conv)
        return _biased(weighted(graph, x, weight=weight, edge_weight=graph.norm), conv)

    return apply


def _norm(graph: Any) -> Tensor | None:
    """GCN's weights of edges [E], or None where degrees of both kinds are equal."""
    degree = graph.in_degrees()
    if bool((degree == graph.out_degrees()).all()):
        return None
    scale = degree.float().rsqrt().masked_fill(degree == 0, 0.0)
    src, dst = graph.edges()
    return scale[src] * scale[dst]


def sage(conv: Any) -> Apply | None:
    """Return DGL's SAGEConv with the parameters of a SAGEConv of PyG; None where there is none."""
    from dgl.nn.pytorch import SAGEConv

    if conv.aggr != "mean" or conv.normalize or conv.project or not conv.root_weight:
        return None
    own = SAGEConv(conv.lin_l.in_channels, conv.lin_l.out_channels, "mean")
    own.fc_neigh.weight, own.fc_self.weight = conv.lin_l.weight, conv.lin_r.weight
    own.fc_self.bias = conv.lin_l.bias
    return own


def _gin(conv: Any) -> Apply | None:
    from dgl.nn.pytorch import GINConv

    own = GINConv(conv.nn, "sum")
    own.eps = conv.eps
    return own


def _gat(conv: Any) -> Apply | None:
    from dgl.nn.pytorch import GATConv

    if conv.lin is None or conv.residual or conv.edge_dim is not None:
        return None
    own = GATConv(*_sizes(conv), bias=False)
    own.fc.weight, own.attn_l, own.attn_r = conv.lin.weight, conv.att_src, conv.att_dst
    return partial(_of_heads, conv, own)


def _gatv2(conv: Any) -> Apply | None:
    from dgl.nn.pytorch import GATv2Conv

    if conv.residual or conv.edge_dim is not None:
        return None
    own = GATv2Conv(*_sizes(conv), bias=conv.lin_l.bias is not None)
    for theirs, ours in ((own.fc_src, conv.lin_l), (own.fc_dst, conv.lin_r)):
        theirs.weight, theirs.bias = ours.weight, ours.bias
    own.attn = conv.att
    return partial(_of_heads, conv, own)


def _transformer(conv: Any) -> Apply | None:
    """Attention by DGL's operators, as it has no such layer."""
    if conv.root_weight or conv.edge_dim is not None:
        return None
    from dgl import ops
    from dgl.nn.functional import edge_softmax

    def apply(graph: Any, x: Any) -> Tensor:
        src, dst = x if isinstance(x, tuple) else (x, x)
        pairs = (conv.lin_query, dst), (conv.lin_key, src), (conv.lin_value, src)
        query, key, value = (lin(each).view(-1, conv.heads, conv.out_channels) for lin, each in pairs)
        score = ops.u_dot_v(graph, key, query * conv.out_channels**-0.5)
        alpha = F.dropout(edge_softmax(graph, score), conv.dropout, conv.training)
        out: Tensor = ops.u_mul_e_sum(graph, value, alpha)
        return _joined(conv, out)

    return apply


def _agnn(conv: Any) -> Apply | None:
    from dgl.nn.pytorch import AGNNConv

    own = AGNNConv(learn_beta=conv.requires_grad, allow_zero_in_degree=True)
    own.beta = conv.beta
    return own


def _rgcn(conv: Any) -> Apply | None:
    from dgl.nn.pytorch import RelGraphConv

    if conv.aggr != "mean" or conv.num_blocks is not None or conv.root is None or conv.bias is None:
        return None
    bases = ("basis", conv.num_bases) if conv.num_bases is not None else (None, None)
    own = RelGraphConv(conv.in_channels_l, conv.out_channels, conv.num_relations, *bases)
    own.linear_r.W, own.loop_weight, own.h_bias = conv.weight, conv.root, conv.bias
    if conv.num_bases is not None:
        own.linear_r.coeff = conv.comp

    def apply(graph: Any, x: Tensor, edge_type: Tensor) -> Tensor:
        if not hasattr(graph, "mean"):  # one over the number of edges of the same relation to the same node
            _, of, counts = (graph.edges()[1] * conv.num_relations + edge_type).unique(
                return_inverse=True, return_counts=True
            )
            graph.mean = counts.float().reciprocal()[of].unsqueeze(1)
            graph.presorted = bool((edge_type.diff() >= 0).all())
        return own(graph, x, edge_type, graph.mean, presorted=graph.presorted)

    return apply


def _sizes(conv: Any) -> tuple[Any, ...]:
    """Arguments of DGL's attention convs up to `allow_zero_in_degree`."""
    sizes = conv.in_channels, conv.out_channels, conv.heads
    return *sizes, 0.0, conv.dropout, conv.negative_slope, False, None, True


def _of_heads(conv: Any, own: Any, graph: Any, x: Any) -> Tensor:
    return _biased(_joined(conv, own.train(conv.training)(graph, x)), conv)


def _joined(conv: Any, out: Tensor) -> Tensor:
    return out.flatten(1) if conv.concat else out.mean(1)


def _biased(out: Tensor, conv: Any) -> Tensor:
    return out if conv.bias is None else out + conv.bias


# Of PyG's conv, to what applies DGL's with its parameters; None where DGL has none with these options.
CONVS: dict[type, Callable[[Any], Apply | None]] = {
    pyg.GCNConv: _gcn,
    pyg.SAGEConv: sage,
    pyg.GINConv: _gin,
    pyg.GATConv: _gat,
    pyg.GATv2Conv: _gatv2,
    pyg.TransformerConv: _transformer,
    pyg.AGNNConv: _agnn,
    pyg.RGCNConv: _rgcn,
}
