"""Compute on `Ranks` models on their part of a graph, held against one process on all of it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, Identity, Linear, Module, ModuleList
from torch_geometric import nn

from gnnbench import backends, config, convs
from gnnbench.backends import isplib
from gnnbench.datasets import NodeDataset, Roots
from gnnbench.errors import GraphError
from gnnbench.graph import Graph
from gnnbench.graph.part import Exchange, Part
from gnnbench.ops.kernels import Kernels
from gnnbench.partition import part
from gnnbench.training import setup
from gnnbench.training.batching import _shares
from gnnbench.training.batching.full import Full
from gnnbench.training.batching.parts import Parts
from gnnbench.training.loop import Trainer

KERNELS: dict[str, Callable[[], Kernels]] = {"reference": Kernels, "isplib": isplib.IsplibKernels}
# Nodes of each rank, few of which are for training in the first; not one or two, which BLAS multiplies apart.
SIZES = {"hub": (70, 5, 136), "empty part": (60, 0, 40), "no halo": (20, 10, 15), "few edges": (16, 24, 16)}
EXACT: dict[str, Callable[[int, int], Module]] = {
    "gcn": lambda i, o: nn.GCNConv(i, o),
    "sage mean": lambda i, o: nn.SAGEConv(i, o),
    "sage max": lambda i, o: nn.SAGEConv(i, o, aggr="max"),
    "sage min": lambda i, o: nn.SAGEConv(i, o, aggr="min"),
    "gin": lambda i, o: nn.GINConv(Linear(i, o)),
    "graph conv": lambda i, o: nn.GraphConv(i, o),
}
HEADS: dict[str, Any] = {"heads": 2, "concat": False}
DROPPING = {**HEADS, "dropout": 0.3}
ATTENTION: dict[str, Callable[[int, int], Module]] = {
    "gat": lambda i, o: nn.GATConv(i, o, **HEADS),
    "gatv2": lambda i, o: nn.GATv2Conv(i, o, **HEADS),
    "transformer": lambda i, o: nn.TransformerConv(i, o, **HEADS),
    "gat, dropout": lambda i, o: nn.GATConv(i, o, **DROPPING),
    "gatv2, dropout": lambda i, o: nn.GATv2Conv(i, o, **DROPPING),
    "transformer, dropout": lambda i, o: nn.TransformerConv(i, o, **DROPPING),
    "agnn": lambda i, o: nn.Sequential("x, adj", [(nn.AGNNConv(), "x, adj -> x"), (Linear(i, o), "x -> x")]),
}


def dataset(case: str) -> NodeDataset:
    """A graph with isolated nodes, loops, and edges that are there twice; ids are in the order of the parts."""
    sizes = SIZES[case]
    nodes, owner = sum(sizes), assignment(case)
    generator = torch.Generator().manual_seed(nodes)
    edge_index = torch.randint(nodes * 9 // 10 + 1, (2, 7 * nodes), generator=generator)
    edge_index[0, : nodes * 3 // 2] = 7 % nodes
    edge_index[1, nodes * 2 : nodes * 4] = nodes - 1
    if case == "no halo":
        edge_index = edge_index[:, owner[edge_index[0]] == owner[edge_index[1]]]
    if case == "few edges":
        edge_index = torch.tensor([[55, 1], [0, 1]])
    mask = torch.rand(nodes, generator=generator)
    mask[: sizes[0] * 9 // 10] = 1.0
    return NodeDataset(
        name=case,
        edge_index=torch.cat([edge_index, edge_index[:, :9]], 1),
        x=torch.randn(nodes, 12, generator=generator, dtype=torch.float64),
        y=torch.randint(3, (nodes,), generator=generator),
        train_mask=mask < 0.4,
        val_mask=(mask >= 0.4) & (mask < 0.6),
        test_mask=mask >= 0.6,
        num_classes=3,
    )


def assignment(case: str) -> Tensor:
    return torch.arange(3).repeat_interleave(torch.tensor(SIZES[case]))


def parts_of(case: str, kernels: Kernels) -> tuple[Graph, Part, part.PartData]:
    """The whole graph, the part of this rank, and its data."""
    data = dataset(case)
    mine = part.split(data, assignment(case), dist.get_rank(), dist.get_world_size(), layout=kernels)
    exchange = Exchange(mine.offsets, mine.halo)
    whole = Graph.from_edge_index(data.edge_index, data.num_nodes, layout=kernels)
    return whole, Part.of(mine.rowptr, mine.col, exchange, kernels), mine


def structure(case: str) -> None:
    """Columns, loops and what is fetched are those of the whole graph."""
    kernels = KERNELS["isplib"]()
    whole, mine, piece = parts_of(case, kernels)
    x = dataset(case).x
    begin, end = piece.begin, piece.begin + piece.num_rows
    fetched, column, three = mine.sources(piece.x, piece.x[:, 0], piece.x.view(-1, 3, 4))
    lower = mine.exchange.lower
    node = torch.cat([piece.halo[:lower], torch.arange(begin, end), piece.halo[lower:]])
    assert torch.equal(fetched, x[node])
    assert torch.equal(column, x[node, 0])
    assert torch.equal(three, x[node].view(-1, 3, 4))
    assert mine.exchange.received_bytes == len(piece.halo) * 25 * 8
    rounded = Part(mine.rowptr, mine.col, Exchange(piece.offsets, piece.halo, narrow=True), kernels)
    (halves,) = rounded.sources(piece.x.float())
    assert rounded.exchange.received_bytes == len(piece.halo) * 12 * 2
    of_others = ((node < begin) | (node >= end)).unsqueeze(1)
    expected = x[node].float()
    assert torch.equal(halves, torch.where(of_others, expected.bfloat16().float(), expected))
    for graph, all_of_it in ((mine, whole), (mine.with_self_loops, whole.with_self_loops)):
        first, last = all_of_it.rowptr[begin], all_of_it.rowptr[end]
        assert torch.equal(graph.rowptr, all_of_it.rowptr[begin : end + 1] - first)
        assert torch.equal(node[graph.col.long()], all_of_it.col[first:last].long())
        assert graph.first_edge == first
        assert graph.transpose.num_rows == len(node)


class Model(Module):
    """Two convs with dropout before each."""

    def __init__(self, conv: Callable[[int, int], Module]) -> None:
        super().__init__()
        self.drop = Dropout(0.5)
        self.convs = ModuleList([conv(12, 8), conv(8, 3)])

    def forward(self, x: Tensor, adj: Graph) -> Tensor:
        first, second = self.convs
        out: Tensor = second(self.drop(first(self.drop(x), adj).relu()), adj)
        return out


def agreement(case: str, backend: str, names: list[str], rewrites: dict[str, bool]) -> dict[str, Any]:
    """Return for each conv whether outputs are equal, and the largest relative errors of outputs and gradients."""
    kernels = KERNELS[backend]()
    whole, mine, piece = parts_of(case, kernels)
    begin, end = piece.begin, piece.begin + piece.num_rows
    weight = torch.randn(whole.num_rows, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def computed(name: str, graph: Graph, x: Tensor, weight: Tensor, first_node: int) -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        model = Model((EXACT | ATTENTION)[name]).double()
        convs.bind(model, kernels, dropout=True, first_node=first_node, **rewrites)
        x = x.clone().requires_grad_()
        out = model(x, graph)
        (out * weight).sum().backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        assert x.grad is not None
        return out.detach(), x.grad, gradients

    result = {}
    for name in names:
        out, grad_x, grads = computed(name, mine, piece.x, weight[begin:end], begin)
        dist.all_reduce(grads)
        out_, grad_x_, grads_ = computed(name, whole, dataset(case).x, weight, 0)
        pairs = (out, out_[begin:end], out_), (grad_x, grad_x_[begin:end], grad_x_), (grads, grads_, grads_)
        errors = [largest(ours - theirs) / (largest(scale) or 1.0) for ours, theirs, scale in pairs]
        result[name] = torch.equal(out, out_[begin:end]), *errors
    return result


def largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def trained(case: str, backend: str, p: float, norm: str, epochs: int = 10) -> tuple[Any, Any]:
    """Losses and metrics of a model on parts, and of the same in this process alone."""
    return tuple(_trained(case, backend, p, norm, epochs, kind) for kind in ("parts", "full"))  # type: ignore[return-value]


def trained_in_bf16(case: str, backend: str, norm: str) -> tuple[Any, Any]:
    """Run it under autocast, on float32."""
    data = dataset(case)
    data = data.changed(x=data.x.float())
    wanted = (configured(backend, 0.5, norm, 10, kind, "bf16") for kind in ("parts", "full"))
    return tuple(_learned(each, data)[0] for each in wanted)  # type: ignore[return-value]


def _trained(case: str, backend: str, p: float, norm: str, epochs: int, kind: str) -> Any:
    return _learned(configured(backend, p, norm, epochs, kind), dataset(case))


def configured(
    backend: str, p: float, norm: str, epochs: int, kind: str, precision: str = "float32"
) -> config.Run:
    raw = {
        "dataset": {"source": "synthetic", "preset": "cora"},
        "model": {"name": "sage", "hidden": 8, "dropout": p, "norm": norm, "residual": True},
        "batch": {"kind": kind},
        "train": {"epochs": epochs, "weight_decay": 0.01, "precision": precision},
        "backend": {"name": backend},
    }
    return config.validate(raw, "test")


def _learned(wanted: config.Run, data: NodeDataset) -> Any:
    model = setup.build(wanted, setup.ModelDims.of(data)).to(data.x.dtype)
    with patch.object(part, "assign", lambda *_: assignment(data.name)):
        ready = setup.prepare(wanted, model, backends.load(wanted.backend, wanted.train), data)
    trainer = Trainer(model, ready.batching, wanted.train)
    losses = [trainer.check(trainer.train()) for _ in range(wanted.train.epochs)]
    return losses, trainer.evaluate()


def scores(metric: str) -> tuple[Any, Any]:
    """Metrics by the outputs of all nodes, from those of parts and from all."""
    data = dataset("empty part")
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(data.num_nodes, 3, generator=generator)
    if metric != "accuracy":
        labels = (torch.rand(data.num_nodes, 3, generator=generator) < 0.5).float()
        data = data.changed(y=labels, metric=metric)
    mine = part.split(data, assignment("empty part"), dist.get_rank(), dist.get_world_size())
    graph = Part.of(mine.rowptr, mine.col, Exchange(mine.offsets, mine.halo))
    whole = data.graph(torch.device("cpu"))
    found = [
        Parts(mine, graph, mine.x).scores(Identity(), logits[mine.node_id]),
        Full(data, whole, whole.device).scores(Identity(), logits),
    ]
    return found[0], found[1]


def normalised(case: str) -> tuple[list[Any], list[Any]]:
    """Outputs, gradients and statistics of batch norms on this rank's nodes, and of torch's own on all."""
    sizes, rank = SIZES[case], dist.get_rank()
    begin, nodes = sum(sizes[:rank]), sum(sizes)
    x = torch.randn(nodes, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exchange = Exchange(torch.tensor([0, *sizes]).cumsum(0), torch.zeros(0, dtype=torch.int64))
    found: list[Any] = []
    expected: list[Any] = []
    for momentum, affine, tracked in product((0.3, None), (True, False), (True, False)):
        whole = BatchNorm1d(5, momentum=momentum, affine=affine, track_running_stats=tracked).double()
        mine = deepcopy(whole)
        _shares.bind_norms(mine, exchange)
        for training in (True, True, False):
            for norm, own, into in ((mine, x[begin:][: sizes[rank]], found), (whole, x, expected)):
                own = own.clone().requires_grad_()
                out = norm.train(training)(own)
                (grad,) = torch.autograd.grad((out**3).sum(), own)
                of = slice(None) if norm is mine else slice(begin, begin + sizes[rank])
                into += [out.detach()[of], grad[of], *(each.clone() for each in norm.buffers())]
    return found, expected


def wrong() -> list[str]:
    """Sentences for what is no part."""
    data = dataset("hub")
    mine = part.split(data, assignment("hub"), dist.get_rank(), dist.get_world_size())
    exchange = Exchange(mine.offsets, mine.halo)
    told = []
    for make in (
        lambda: Exchange(mine.offsets[:-1], mine.halo),
        lambda: Exchange(mine.offsets, mine.halo.flip(0)),
        lambda: Part.of(mine.rowptr[:-1], mine.col, exchange),
        lambda: Part.of(mine.rowptr, mine.col + 10**6, exchange),
        lambda: Part.of(mine.rowptr, mine.col, exchange).sources(data.x),
    ):
        try:
            make()
        except GraphError as error:
            told.append(str(error))
    return told


def trained_from_files(folder: Path) -> tuple[Any, Any]:
    """Losses and metrics on parts that were written to a folder, and on parts that were not."""
    wanted = configured("reference", 0.0, "batch", 3, "parts")
    whole = dataset("hub").changed(x=dataset("hub").x.float())
    if dist.get_rank() == 0:
        how: Any = {"config": wanted.dataset, "method": "contiguous", "seed": 0}
        part.write(whole, whole.graph(torch.device("cpu")), assignment("hub"), 3, folder, **how)
    dist.barrier()
    batch = wanted.batch.model_copy(update={"folder": str(folder)})
    mine = setup.read(wanted.model_copy(update={"batch": batch}), Roots(folder, folder))
    assert isinstance(mine, NodeDataset)
    assert (mine.num_nodes, mine.num_edges, len(mine.x)) == (
        whole.num_nodes,
        whole.num_edges,
        SIZES["hub"][dist.get_rank()],
    )
    return _learned(wanted, mine), _learned(wanted, whole)
