"""Every conv computes what PyG computes: outputs, all gradients, same state_dict keys; or says why not."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn import aggr

from gnnbench import convs
from gnnbench.backends import isplib
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels
from tests.support import graphs

WIDE, NARROW = 7, 4
NODES = 12


def mlp(*widths: int, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width, following in pairwise(widths):
        layers += [nn.Linear(width, following, bias=bias), nn.BatchNorm1d(following), nn.ReLU()]
    return nn.Sequential(*layers)


CONVS: dict[str, Callable[[], pyg.MessagePassing]] = {
    "gcn": lambda: pyg.GCNConv(WIDE, NARROW),
    "gcn widening": lambda: pyg.GCNConv(NARROW, WIDE),
    "gcn cached": lambda: pyg.GCNConv(WIDE, NARROW, cached=True),
    "gcn improved": lambda: pyg.GCNConv(WIDE, NARROW, improved=True),
    "gcn without bias": lambda: pyg.GCNConv(WIDE, NARROW, bias=False),
    "gcn widening without bias": lambda: pyg.GCNConv(NARROW, WIDE, bias=False),
    "gcn without loops": lambda: pyg.GCNConv(WIDE, NARROW, add_self_loops=False),
    "gcn without norm": lambda: pyg.GCNConv(NARROW, WIDE, normalize=False),
    "sage mean": lambda: pyg.SAGEConv(WIDE, NARROW),
    "sage mean widening": lambda: pyg.SAGEConv(NARROW, WIDE),
    "sage sum": lambda: pyg.SAGEConv(WIDE, NARROW, aggr="sum"),
    "sage add": lambda: pyg.SAGEConv(WIDE, NARROW, aggr="add"),
    "sage max": lambda: pyg.SAGEConv(WIDE, NARROW, aggr="max"),
    "sage min": lambda: pyg.SAGEConv(WIDE, NARROW, aggr="min"),
    "sage normalize": lambda: pyg.SAGEConv(WIDE, NARROW, normalize=True),
    "sage project": lambda: pyg.SAGEConv(WIDE, NARROW, project=True),
    "sage without root": lambda: pyg.SAGEConv(WIDE, NARROW, root_weight=False, bias=False),
    "gin": lambda: pyg.GINConv(mlp(WIDE, NARROW, 5)),
    "gin widening": lambda: pyg.GINConv(mlp(NARROW, WIDE, 5)),
    "gin eps": lambda: pyg.GINConv(mlp(WIDE, NARROW), eps=0.3, train_eps=True),
    "gin without bias": lambda: pyg.GINConv(mlp(WIDE, NARROW, bias=False), eps=-0.5),
    "gin of one linear": lambda: pyg.GINConv(nn.Linear(WIDE, NARROW)),
    "gin of a norm first": lambda: pyg.GINConv(nn.Sequential(nn.LayerNorm(WIDE), nn.Linear(WIDE, NARROW))),
    "gat": lambda: pyg.GATConv(WIDE, NARROW, heads=3),
    "gat averaged": lambda: pyg.GATConv(WIDE, NARROW, heads=2, concat=False, negative_slope=0.0),
    "gat residual": lambda: pyg.GATConv(WIDE, NARROW, heads=2, residual=True, bias=False),
    "gat without loops": lambda: pyg.GATConv(WIDE, NARROW, add_self_loops=False),
    "gatv2": lambda: pyg.GATv2Conv(WIDE, NARROW, heads=3),
    "gatv2 averaged": lambda: pyg.GATv2Conv(WIDE, NARROW, heads=2, concat=False, negative_slope=0.0),
    "gatv2 shared": lambda: pyg.GATv2Conv(WIDE, NARROW, heads=2, share_weights=True, negative_slope=-0.1),
    "gatv2 residual": lambda: pyg.GATv2Conv(WIDE, NARROW, heads=2, residual=True, bias=False),
    "gatv2 without loops": lambda: pyg.GATv2Conv(WIDE, NARROW, add_self_loops=False),
    "transformer": lambda: pyg.TransformerConv(WIDE, NARROW, heads=3),
    "transformer beta": lambda: pyg.TransformerConv(WIDE, NARROW, heads=2, beta=True),
    "transformer averaged": lambda: pyg.TransformerConv(WIDE, NARROW, heads=2, concat=False, beta=True),
    "transformer without root": lambda: pyg.TransformerConv(WIDE, NARROW, root_weight=False, bias=False),
    "gated graph": lambda: pyg.GatedGraphConv(NARROW, 2),
    "gated graph mean": lambda: pyg.GatedGraphConv(NARROW, 1, aggr="mean", bias=False),
    "mf": lambda: pyg.MFConv(WIDE, NARROW, max_degree=3),
    "mf max": lambda: pyg.MFConv(NARROW, WIDE, max_degree=2, bias=False, aggr="max"),
    "pdn": lambda: pyg.PDNConv(WIDE, NARROW, edge_dim=2, hidden_channels=3),
    "agnn": lambda: pyg.AGNNConv(),
    "agnn fixed": lambda: pyg.AGNNConv(requires_grad=False, add_self_loops=False),
}


def edges(*pairs: tuple[int, int]) -> Tensor:
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t().contiguous()


RANDOM = torch.randint(NODES - 2, (2, 40), generator=torch.Generator().manual_seed(5))
KERNELS = {"torch": Kernels, "isplib": isplib.IsplibKernels}


def kernels_of(name: str) -> Kernels:
    if name == "isplib" and isplib.MISSING:
        pytest.skip(f"the kernels are not built: {isplib.MISSING}")
    return KERNELS[name]()


def features(conv: pyg.MessagePassing, dtype: torch.dtype = torch.float64, nodes: int = NODES) -> Tensor:
    width = next((p.size(1) for p in conv.parameters() if p.dim() == 2), WIDE)
    return torch.randn(nodes, width, dtype=dtype, requires_grad=True)


def outcome(conv: pyg.MessagePassing, x: Tensor, adj: object) -> list[Tensor]:
    """The output and the gradients of all inputs and parameters."""
    out = conv(x, adj)
    weight = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    wanted = [x, *conv.parameters()]
    gradients = torch.autograd.grad((out * weight).sum(), wanted, allow_unused=True)
    return [out, *(torch.zeros_like(w) if g is None else g for w, g in zip(wanted, gradients, strict=True))]


def built(case: str, dtype: torch.dtype = torch.float64) -> pyg.MessagePassing:
    torch.manual_seed(0)
    conv = CONVS[case]().to(dtype)
    for parameter in conv.parameters():
        nn.init.normal_(parameter)  # biases too, which PyG starts at zero
    return conv


@pytest.mark.parametrize(
    ("kernels", "graph"), [*(("isplib", graph) for graph in graphs.SQUARE), ("torch", "isolated nodes")]
)
@pytest.mark.parametrize("case", CONVS)
def test_outputs_and_gradients_are_pygs(case: str, graph: str, kernels: str) -> None:
    edge_index, nodes, _ = graphs.zoo()[graph]
    conv = built(case).train(nodes > 1)  # batch norm cannot train on one node
    x = features(conv, nodes=nodes)
    expected = outcome(conv, x, edge_index)
    names = list(conv.state_dict())
    for rewrites in (False, True):
        convs.bind(conv, kernels_of(kernels), transform_first=rewrites, fold_norm=rewrites)
        found = outcome(conv, x, Graph.from_edge_index(edge_index, nodes))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    assert list(conv.state_dict()) == names


@pytest.mark.parametrize(
    ("case", "flags", "expected"),
    [
        ("gcn", {"transform_first", "fold_norm"}, ["fold_norm"]),
        ("gcn widening", {"transform_first", "fold_norm"}, ["aggregate_first", "fold_norm"]),
        ("gcn widening", set(), []),
        ("gcn without norm", {"fold_norm"}, []),
        ("sage mean", {"transform_first"}, ["transform_first"]),
        ("sage mean", set(), []),
        ("sage mean widening", {"transform_first"}, []),
        ("sage max", {"transform_first"}, []),
        ("gin", {"transform_first"}, ["transform_first"]),
        ("gin of one linear", {"transform_first"}, ["transform_first"]),
        ("gin widening", {"transform_first"}, []),
        ("gin of a norm first", {"transform_first"}, []),
        ("gat", {"transform_first", "fold_norm"}, []),
    ],
)
def test_a_binding_lists_the_rewrites_in_force(case: str, flags: set[str], expected: list[str]) -> None:
    allowed = {name: name in flags for name in ("transform_first", "fold_norm")}
    (binding,) = convs.bind(built(case), Kernels(), **allowed)
    assert binding.rewrites == expected


def test_a_rewrite_works_on_the_narrower_side() -> None:
    seen: list[int] = []

    class Recording(Kernels):
        def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
            seen.append(x.size(1))
            return super().spmm(graph, x, value, reduce)

    for case in ("gcn", "gcn widening", "sage mean", "gin"):
        conv = built(case)
        convs.bind(conv, Recording(), transform_first=True, fold_norm=True)
        conv(features(conv), Graph.from_edge_index(RANDOM, NODES))
    assert set(seen) == {NARROW}


def test_a_hooked_linear_is_not_rewritten() -> None:
    conv = built("sage mean")
    conv.lin_l.register_forward_hook(lambda module, inputs, out: 2 * out)
    x = features(conv)
    expected = conv(x, RANDOM)
    (binding,) = convs.bind(conv, Kernels(), transform_first=True, fold_norm=True)
    torch.testing.assert_close(conv(x, Graph.from_edge_index(RANDOM, NODES)), expected)
    assert binding.rewrites == []


class Accelerated(Kernels):
    name = "fast"

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        return super().spmm(graph, x, value, reduce)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("gcn", {"spmm": "fast"}),
        ("sage max", {"spmm_max": "torch"}),
        ("gat", {"gat_attention": "composition", "edge_softmax": "torch", "spmm": "fast"}),
    ],
)
def test_a_binding_says_who_runs_each_op(case: str, expected: dict[str, str]) -> None:
    model = nn.ModuleDict({"inner": built(case)})
    (binding,) = convs.bind(model, Accelerated(), transform_first=True, fold_norm=True)
    assert (binding.module, binding.conv) == ("inner", type(model["inner"]).__name__)
    assert binding.kernels == expected


@pytest.mark.parametrize("case", ["gat", "gatv2", "transformer"])
def test_attention_dropout_drops_weights_in_training_only(case: str) -> None:
    cycle = edges(*((node, (node + 1) % 1000) for node in range(1000)))  # every attention weight is one
    layer = {"gat": pyg.GATConv, "gatv2": pyg.GATv2Conv, "transformer": pyg.TransformerConv}[case]
    options = {"root_weight": False} if case == "transformer" else {"add_self_loops": False}
    conv = layer(3, 2, dropout=0.25, bias=False, **options).double()
    convs.bind(conv, Kernels(), transform_first=True, fold_norm=True)
    x, graph = torch.randn(1000, 3, dtype=torch.float64), Graph.from_edge_index(cycle, 1000)
    whole = conv.eval()(x, graph)
    ratio = (conv.train()(x, graph) / whole).flatten()
    assert torch.all((ratio.abs() < 1e-9) | ((ratio - 1 / 0.75).abs() < 1e-9))
    assert 0.15 < (ratio.abs() < 1e-9).double().mean() < 0.35


class Doubling(pyg.GCNConv):
    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return 2 * super().message(x_j, edge_weight)


class Renamed(pyg.GCNConv):
    """Adds nothing, so it runs like its base class."""


class OwnPropagate(pyg.SAGEConv):
    def propagate(self, edge_index: Tensor, size: object = None, **kwargs: object) -> Tensor:
        return 3 * kwargs["x"][0]  # type: ignore[index]


def hooked() -> pyg.MessagePassing:
    conv = pyg.GATConv(3, 2)
    conv.register_message_forward_hook(lambda module, inputs, out: 0 * out)
    return conv


def patched() -> pyg.MessagePassing:
    conv = pyg.SAGEConv(3, 2)
    conv.message = lambda x_j: 0 * x_j
    return conv


def explained() -> pyg.MessagePassing:
    conv = pyg.GCNConv(3, 2)
    conv.explain = True
    return conv


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Doubling(3, 2), r"Doubling overrides message\(\)"),
        (lambda: OwnPropagate(3, 2), r"OwnPropagate overrides propagate\(\)"),
        (hooked, "hooks on its messages"),
        (patched, r"overrides message\(\)"),
        (explained, "is being explained"),
        (lambda: pyg.GCNConv(3, 2, flow="target_to_source"), "flow='target_to_source'"),
        (lambda: pyg.GCNConv(3, 2, aggr="max"), r"aggregates by MaxAggregation\(\); supported, .*: sum$"),
        (lambda: pyg.SAGEConv(3, 2, aggr=["mean", "max"]), "aggregates by MultiAggregation"),
        (lambda: pyg.SAGEConv(3, 2, aggr=aggr.SoftmaxAggregation()), "aggregates by SoftmaxAggregation"),
        (lambda: pyg.SAGEConv(3, 2, decomposed_layers=3), "decomposed_layers=3"),
        (lambda: pyg.GINConv(nn.Linear(3, 2), node_dim=1), "node_dim=1"),
        (lambda: pyg.GCNConv(-1, 2), "without a size yet"),
        (lambda: pyg.ChebConv(3, 2, K=2), "no accelerated ChebConv; available: AGNNConv, "),
    ],
)
def test_what_cannot_be_exact_is_refused_with_the_reason(
    make: Callable[[], pyg.MessagePassing], reason: str
) -> None:
    model = nn.ModuleList([pyg.GCNConv(3, 2), make()])
    with pytest.raises(UnsupportedOp, match=reason) as caught:
        convs.bind(model, Kernels(), transform_first=True, fold_norm=True)
    assert all(text.startswith("1: ") for text in caught.value.reasons)
    assert "forward" not in vars(model[0])  # nothing was bound


def test_a_subclass_that_changes_nothing_runs_like_its_base() -> None:
    conv = Renamed(3, 2)
    x = torch.randn(NODES, 3)
    expected = conv(x, RANDOM)
    convs.bind(conv, Kernels(), transform_first=True, fold_norm=True)
    torch.testing.assert_close(conv(x, Graph.from_edge_index(RANDOM, NODES)), expected)


def test_every_conv_file_describes_a_pyg_class() -> None:
    assert {name: getattr(pyg, name).__name__ for name in convs.table()} == {n: n for n in convs.table()}


@pytest.mark.parametrize("rewrites", [False, True])
@pytest.mark.parametrize("case", CONVS)
def test_a_warmed_graph_is_not_sorted_again_in_training(
    case: str, rewrites: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    conv = built(case)
    convs.bind(conv, Kernels(), transform_first=rewrites, fold_norm=rewrites)
    graph = Graph.from_edge_index(torch.cat([RANDOM, RANDOM.flip(0)], dim=1), NODES)
    convs.warm(conv, graph)

    def sorted_again(*args: object) -> None:
        raise AssertionError("preparation was left to the first epoch")

    for method in ("csr", "transpose", "with_self_loops", "is_symmetric"):
        monkeypatch.setattr(Kernels, method, sorted_again)
        monkeypatch.setattr(type(graph.layout), method, sorted_again)
    outcome(conv, features(conv), graph)


@pytest.mark.parametrize("case", CONVS)
def test_a_graph_first_seen_in_inference_mode_is_fit_for_training(case: str) -> None:
    conv = built(case).eval()
    convs.bind(conv, Kernels(), transform_first=True, fold_norm=True)
    with torch.inference_mode():
        graph = Graph.from_edge_index(RANDOM, NODES)
        found = conv(features(conv), graph)
    x = features(conv)
    expected = outcome(conv, x, Graph.from_edge_index(RANDOM, NODES))
    torch.testing.assert_close(outcome(conv, x, graph), expected)
    assert found.shape == expected[0].shape


@pytest.mark.parametrize("keep", [False, True])
def test_features_of_another_type_than_the_weights_are_refused_as_by_pyg(keep: bool) -> None:
    conv = built("gcn widening")
    for dtype in (torch.float16, torch.float32):
        x = features(conv).detach().to(dtype)
        with pytest.raises(RuntimeError) as refusal:
            conv(x, RANDOM)
        twin = copy.deepcopy(conv)
        convs.bind(twin, Kernels(), transform_first=True, fold_norm=True, keep_aggregation=keep)
        with pytest.raises(RuntimeError, match=re.escape(str(refusal.value))):
            twin(x, Graph.from_edge_index(RANDOM, NODES))


def test_a_copy_of_a_bound_conv_has_weights_of_its_own() -> None:
    conv, graph = built("gcn"), Graph.from_edge_index(RANDOM, NODES)
    convs.bind(conv, Kernels(), transform_first=True, fold_norm=True)
    twin, x = copy.deepcopy(conv), features(conv)
    torch.testing.assert_close(twin(x, graph), conv(x, graph))
    nn.init.zeros_(twin.lin.weight)
    assert not torch.allclose(twin(x, graph), conv(x, graph))


@pytest.mark.parametrize("transform_first", [False, True])
def test_gin_has_the_type_of_its_eps(transform_first: bool) -> None:
    x, edge_index = torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]])
    conv = pyg.GINConv(nn.Linear(2, 1)).double()
    expected = conv(x, edge_index)
    convs.bind(conv, Kernels(), transform_first=transform_first, fold_norm=False)
    torch.testing.assert_close(conv(x, Graph.from_edge_index(edge_index, 3)), expected)
