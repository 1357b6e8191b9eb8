"""PyG's own behaviour is the test: every option of every conv patched against unpatched, over awkward graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric import nn as pyg
from torch_geometric.utils import coalesce, remove_self_loops

import gnnbench
from gnnbench import convs
from tests.convs.test_convs import CONVS, NARROW, WIDE, mlp
from tests.support import graphs
from tests.support.dropin import BACKEND

pytestmark = pytest.mark.usefixtures("always")
Make = Callable[[], pyg.MessagePassing]
Arguments = dict[str, Any]


def outcome(conv: pyg.MessagePassing, arguments: Arguments) -> Any:
    """Return what comes out of a call: tensors, gradients of all inputs and parameters, or the error's type."""
    torch.manual_seed(7)
    try:
        # By position where a call could be known already, as most programs write it.
        given = [arguments[name] for name in ("x", "edge_index")]
        out = conv(*given, **{name: value for name, value in arguments.items() if name not in ("x", "edge_index")})
    except Exception as error:
        return type(error)
    first = out[0] if isinstance(out, tuple) else out
    extra = list(out[1]) if isinstance(out, tuple) else []
    loss = sum(
        (t * torch.linspace(-1, 2, t.numel(), dtype=t.dtype).view(t.shape)).sum() for t in [first, *extra[1:]]
    )
    inputs = [
        t for a in arguments.values() for t in (a if isinstance(a, tuple) else (a,)) if isinstance(t, Tensor)
    ]
    wanted = [t for t in [*inputs, *conv.parameters()] if t.requires_grad]
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True)
    gradients = [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, gradients, strict=True)]
    return [first, *extra, *gradients]


def check(make: Make, arguments: Arguments, *, accelerated: bool | None = True) -> None:
    """A call patched and unpatched gives the same, and was accelerated; None where PyG raises."""
    torch.manual_seed(0)
    conv = make().double()
    for parameter in conv.parameters():
        nn.init.normal_(parameter)
    twin = copy.deepcopy(conv)
    expected = outcome(conv, arguments)
    with gnnbench.patched(BACKEND):
        found = outcome(twin, arguments)
    if isinstance(expected, type):
        assert found is expected
        assert accelerated is not True, f"PyG raises {expected}"
        return
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    state, twins = conv.state_dict(), twin.state_dict()
    torch.testing.assert_close(twins, state)
    assert accelerated is not None, "PyG was expected to raise"
    ran = gnnbench.patch_status().accelerated.keys() & convs.table().keys()
    assert bool(ran) == accelerated, gnnbench.patch_status()


def rand(*shape: int, grad: bool = True, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_(grad)


def weights(edges: int) -> Tensor:
    return (rand(edges, grad=False).abs() + 0.1).requires_grad_()


def width(conv: pyg.MessagePassing, default: int = WIDE) -> int:
    if isinstance(given := getattr(conv, "in_channels", None), int):
        return given
    return next((p.size(1) for p in conv.parameters() if p.dim() == 2), default)


def flowing(make: Make, flow: str, nodes: int) -> Make:
    def made() -> pyg.MessagePassing:
        conv = make().train(nodes > 1)  # batch norm cannot train on one node
        conv.flow = flow
        return conv

    return made


GRAPHS = ["isolated nodes", "self loops", "duplicates", "hub", "one node", "no edges"]
REVERSED = [("target_to_source", graph) for graph in ("isolated nodes", "hub")]
over_graphs = pytest.mark.parametrize(
    ("flow", "graph"), [*(("source_to_target", graph) for graph in GRAPHS), *REVERSED]
)


@over_graphs
@pytest.mark.parametrize("case", CONVS)
def test_options(case: str, graph: str, flow: str) -> None:
    edge_index, nodes, _ = graphs.zoo()[graph]
    make = flowing(CONVS[case], flow, nodes)
    check(make, {"x": rand(nodes, width(make())), "edge_index": edge_index})


@pytest.mark.parametrize("case", [name for name in CONVS if not name.startswith("gin")])
def test_results_may_be_edited_in_place(case: str) -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]

    def make() -> pyg.MessagePassing:
        conv = CONVS[case]()
        conv.register_forward_hook(lambda module, inputs, out: out.mul_(2).relu_())
        return conv

    check(make, {"x": rand(nodes, width(make())), "edge_index": edge_index})


EDGE_CONVS: dict[str, Make] = {
    "gat": lambda: pyg.GATConv(WIDE, NARROW, heads=3, edge_dim=5),
    "gat filled by a number": lambda: pyg.GATConv(WIDE, NARROW, heads=2, edge_dim=5, fill_value=0.5, concat=False),
    "gat filled by a tensor": lambda: pyg.GATConv(WIDE, NARROW, edge_dim=5, fill_value=torch.arange(5.0)),
    "gat filled by a sum": lambda: pyg.GATConv(WIDE, NARROW, heads=2, edge_dim=5, fill_value="add", residual=True),
    "gat filled by a maximum": lambda: pyg.GATConv(WIDE, NARROW, edge_dim=5, fill_value="max", bias=False),
    "gat without loops": lambda: pyg.GATConv(WIDE, NARROW, heads=2, edge_dim=5, add_self_loops=False),
    "gat that ignores them": lambda: pyg.GATConv(WIDE, NARROW, heads=2),
    "gatv2": lambda: pyg.GATv2Conv(WIDE, NARROW, heads=3, edge_dim=5),
    "gatv2 filled by a minimum": lambda: pyg.GATv2Conv(WIDE, NARROW, edge_dim=5, fill_value="min", residual=True),
    "gatv2 without loops": lambda: pyg.GATv2Conv(WIDE, NARROW, heads=2, edge_dim=5, add_self_loops=False),
    "transformer": lambda: pyg.TransformerConv(WIDE, NARROW, heads=3, edge_dim=5),
    "transformer beta": lambda: pyg.TransformerConv(WIDE, NARROW, heads=2, edge_dim=5, beta=True, concat=False),
    "gine": lambda: pyg.GINEConv(mlp(WIDE, NARROW), train_eps=True, edge_dim=5),
    "gmm": lambda: pyg.GMMConv(WIDE, NARROW, dim=5, kernel_size=3),
    "gmm sum": lambda: pyg.GMMConv(WIDE, NARROW, dim=5, kernel_size=2, aggr="add", bias=False),
    "pdn": lambda: pyg.PDNConv(WIDE, NARROW, edge_dim=5, hidden_channels=3),
    "pdn without loops": lambda: pyg.PDNConv(WIDE, NARROW, 5, 3, add_self_loops=False, bias=False),
    "pdn without norm": lambda: pyg.PDNConv(WIDE, NARROW, 5, 3, normalize=False),
}


@over_graphs
@pytest.mark.parametrize("case", EDGE_CONVS)
def test_edge_features(case: str, graph: str, flow: str) -> None:
    edge_index, nodes, _ = graphs.zoo()[graph]
    x, edge_attr = rand(nodes, WIDE), rand(edge_index.size(1), 5, seed=2)
    check(flowing(EDGE_CONVS[case], flow, nodes), {"x": x, "edge_index": edge_index, "edge_attr": edge_attr})


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_edge_features_as_wide_as_nodes(flow: str) -> None:
    edge_index, nodes, _ = graphs.zoo()["duplicates"]
    x, edge_attr = rand(nodes, WIDE), rand(edge_index.size(1), WIDE, seed=2)
    arguments = {"x": x, "edge_index": edge_index, "edge_attr": edge_attr}
    check(lambda: pyg.GINEConv(mlp(WIDE, NARROW), eps=0.3, flow=flow), arguments)
    for wrong in ({"edge_attr": None}, {"edge_attr": edge_attr[:, :1]}):  # which PyG raises itself
        check(lambda: pyg.GINEConv(mlp(WIDE, NARROW)), arguments | wrong, accelerated=None)
        check(lambda: pyg.GMMConv(WIDE, NARROW, 5, 2), arguments | wrong, accelerated=None)
    check(lambda: pyg.PDNConv(WIDE, NARROW, 5, 3), arguments, accelerated=None)


@pytest.mark.parametrize("layer", [pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv])
def test_edge_features_of_one_number(layer: Any) -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    vector = rand(edge_index.size(1))
    arguments = {"x": rand(nodes, WIDE), "edge_index": edge_index, "edge_attr": vector}
    check(lambda: layer(WIDE, NARROW, edge_dim=1), arguments, accelerated=layer is not pyg.TransformerConv or None)


WEIGHTED: dict[str, Make] = {
    "gcn": lambda: pyg.GCNConv(WIDE, NARROW),
    "gcn improved": lambda: pyg.GCNConv(NARROW, WIDE, improved=True),
    "gcn without loops": lambda: pyg.GCNConv(WIDE, NARROW, add_self_loops=False, bias=False),
    "gcn without norm": lambda: pyg.GCNConv(WIDE, NARROW, normalize=False),
    "graph conv": lambda: pyg.GraphConv(WIDE, NARROW),
    "graph conv widening": lambda: pyg.GraphConv(NARROW, WIDE, bias=False),
    "graph conv mean": lambda: pyg.GraphConv(WIDE, NARROW, aggr="mean"),
    "graph conv max": lambda: pyg.GraphConv(WIDE, NARROW, aggr="max"),
}


@over_graphs
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("case", WEIGHTED)
def test_edge_weights(case: str, flow: str, given: bool, graph: str) -> None:
    edge_index, nodes, _ = graphs.zoo()[graph]
    make = flowing(WEIGHTED[case], flow, nodes)
    edge_weight = {"edge_weight": weights(edge_index.size(1))} if given else {}
    check(make, {"x": rand(nodes, width(make())), "edge_index": edge_index} | edge_weight)


PAIRS: dict[str, Make] = {
    "sage": lambda: pyg.SAGEConv((WIDE, NARROW), 5),
    "sage of one width": lambda: pyg.SAGEConv(WIDE, 5, aggr="max", normalize=True),
    "sage project": lambda: pyg.SAGEConv((WIDE, NARROW), 9, aggr="sum", project=True),
    "gin": lambda: pyg.GINConv(mlp(WIDE, NARROW), train_eps=True),
    "graph conv": lambda: pyg.GraphConv((WIDE, NARROW), 5),
    "gat": lambda: pyg.GATConv((WIDE, NARROW), 5, heads=2, add_self_loops=False),
    "gat with loops": lambda: pyg.GATConv((WIDE, NARROW), 5, heads=2, residual=True),
    "gat of one width": lambda: pyg.GATConv(WIDE, 5, heads=2),
    "gatv2": lambda: pyg.GATv2Conv((WIDE, NARROW), 5, heads=2, residual=True),
    "gatv2 shared": lambda: pyg.GATv2Conv(WIDE, 5, share_weights=True),
    "transformer": lambda: pyg.TransformerConv((WIDE, NARROW), 5, heads=2, beta=True),
    "gcn": lambda: pyg.GCNConv(WIDE, 5),
    "agnn": lambda: pyg.AGNNConv(),
}


@pytest.mark.parametrize("graph", ["wide", "tall", "isolated nodes"])
@pytest.mark.parametrize("sizes", ["none", "right", "wrong"])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("case", PAIRS)
def test_pairs(case: str, alone: bool, sizes: str, graph: str) -> None:
    edge_index, rows, cols = graphs.zoo()[graph]
    narrow = not any(case.startswith(name) for name in ("gin", "gcn")) and "one width" not in case
    narrow = narrow and "shared" not in case
    x_dst = None if alone else rand(rows, NARROW if narrow else WIDE, seed=2)
    arguments: Arguments = {"x": (rand(cols, WIDE), x_dst), "edge_index": edge_index}
    if sizes != "none":
        arguments["size"] = (cols, rows) if sizes == "right" else (cols + 1, rows)
    torch.manual_seed(0)
    raises = isinstance(outcome(PAIRS[case]().double(), arguments), type)
    check(PAIRS[case], arguments, accelerated=None if raises else True)


@pytest.mark.parametrize("given", [None, False, True])
@pytest.mark.parametrize("edges", [False, True])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("layer", [pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv])
def test_returned_attention_weights(layer: Any, loops: bool, flow: str, edges: bool, given: bool | None) -> None:
    edge_index, nodes, _ = graphs.zoo()["self loops"]
    options = {} if layer is pyg.TransformerConv else {"add_self_loops": loops}
    arguments = {"x": rand(nodes, WIDE), "edge_index": edge_index, "return_attention_weights": given}
    if edges:
        arguments["edge_attr"] = rand(edge_index.size(1), 5, seed=2)
    check(lambda: layer(WIDE, NARROW, heads=2, edge_dim=5 if edges else None, flow=flow, **options), arguments)


@pytest.mark.parametrize("p", [0.0, 0.5])
@pytest.mark.parametrize("layer", [pyg.GATConv, pyg.GATv2Conv, pyg.TransformerConv])
def test_asking_for_attention_weights_changes_no_bit(layer: Any, p: float) -> None:
    """The weights returned are those by which the output was made, dropped ones too."""
    edge_index, nodes, _ = graphs.zoo()["hub"]
    x = rand(nodes, WIDE).detach().float().requires_grad_()
    options: dict[str, Any] = {"root_weight": False} if layer is pyg.TransformerConv else {}
    conv = layer(WIDE, NARROW, heads=2, dropout=p, bias=False, **options)

    def called(given: bool | None) -> tuple[Any, Tensor]:
        torch.manual_seed(1)
        out = conv(x, edge_index, return_attention_weights=given)
        result = out[0] if given else out
        (grad,) = torch.autograd.grad(result.square().sum(), x)
        return out, grad

    with gnnbench.patched(BACKEND):
        out, grad = called(None)
        (weighed, (edges, alpha)), again = called(True)
    assert gnnbench.patch_status().accelerated == {layer.__name__: 2}
    torch.testing.assert_close(weighed, out, rtol=0, atol=0)
    torch.testing.assert_close(again, grad, rtol=0, atol=0)
    if layer is not pyg.TransformerConv:  # whose weights PyG returns as they were before dropout
        assert bool(p) == bool((alpha == 0).any())
        value = (conv.lin if layer is pyg.GATConv else conv.lin_l)(x).view(nodes, 2, NARROW)
        sums = torch.zeros(nodes, 2, NARROW).index_add(0, edges[1], value[edges[0]] * alpha.unsqueeze(-1))
        torch.testing.assert_close(sums.flatten(1), out, rtol=1e-4, atol=1e-5)


def simple(graph: str) -> tuple[Tensor, int]:
    edge_index, nodes, _ = graphs.zoo()[graph]
    return remove_self_loops(coalesce(edge_index))[0], nodes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("layout", "ones"),
    [("to_sparse_coo", False), ("to_sparse_csr", False), ("to_sparse_csr", True), ("to_sparse_csc", True)],
)
@pytest.mark.parametrize("case", [*CONVS, *[name for name in WEIGHTED if name not in CONVS]])
def test_sparse_adjacencies(case: str, layout: str, ones: bool) -> None:
    edge_index, nodes = simple("hub")
    make = {**WEIGHTED, **CONVS}[case]
    values = torch.ones(edge_index.size(1), dtype=torch.float64) if ones else weights(edge_index.size(1)).detach()
    adjacency = getattr(torch.sparse_coo_tensor(edge_index.flip(0), values, (nodes, nodes)).coalesce(), layout)()
    arguments = {"x": rand(nodes, width(make())), "edge_index": adjacency}
    torch.manual_seed(0)
    conv = make().double()
    raises = isinstance(outcome(conv, arguments), type)
    declined = case in ("gcn cached", "pdn") or (
        layout == "to_sparse_csc" and (hasattr(conv, "add_self_loops") or not conv.fuse)
    )
    check(make, arguments, accelerated=None if raises else not declined)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", ["gcn", "sage mean", "gat", "gin", "transformer"])
@pytest.mark.parametrize("graph", ["self loops", "duplicates"])
def test_sparse_adjacencies_with_loops_and_repeated_edges(case: str, graph: str) -> None:
    edge_index, nodes, _ = graphs.zoo()[graph]
    row, order = edge_index[1].sort(stable=True)
    crow = torch.zeros(nodes + 1, dtype=torch.int64)
    crow[1:] = row.bincount(minlength=nodes).cumsum(0)
    values = weights(row.numel()).detach()
    adjacency = torch.sparse_csr_tensor(crow, edge_index[0][order], values, (nodes, nodes))
    arguments = {"x": rand(nodes, WIDE), "edge_index": adjacency}
    check(CONVS[case], arguments, accelerated=case not in ("gcn", "gat"))


@pytest.mark.parametrize("sort", [None, "col"])
@pytest.mark.parametrize("case", [*CONVS, "graph conv", "graph conv mean"])
def test_edge_index_class(case: str, sort: str | None) -> None:
    plain, nodes = simple("hub")
    edge_index = EdgeIndex(plain, sparse_size=(nodes, nodes))
    edge_index = edge_index.sort_by("col").values if sort else edge_index
    make = {**WEIGHTED, **CONVS}[case]
    arguments = {"x": rand(nodes, width(make())), "edge_index": edge_index}
    fused = bool(sort) and make().SUPPORTS_FUSED_EDGE_INDEX  # by PyG itself, where it can
    raises = fused and isinstance(outcome(make().double(), arguments), type)
    check(make, arguments, accelerated=None if raises else not fused)


@pytest.mark.parametrize("weighted", [False, True])
def test_cached_norms_are_shared_with_pyg(weighted: bool) -> None:
    """Use what was cached under the patch without it, and the other way round, whatever the graph."""
    edge_index, nodes, _ = graphs.zoo()["hub"]
    other = edge_index.flip(0)
    x, weight = rand(nodes, WIDE), weights(edge_index.size(1)).detach() if weighted else None
    torch.manual_seed(0)
    conv = pyg.GCNConv(WIDE, NARROW, cached=True).double()
    twin = copy.deepcopy(conv)
    expected = conv(x, edge_index, weight)
    with gnnbench.patched(BACKEND):
        torch.testing.assert_close(twin(x, edge_index, weight), expected)
        torch.testing.assert_close(twin(x, other), expected)
        torch.testing.assert_close(conv(x, other), expected)
    torch.testing.assert_close(twin(x, other), expected)
    assert gnnbench.patch_status().accelerated == {"GCNConv": 3}
    twin.reset_parameters()
    with gnnbench.patched(BACKEND):
        twin.load_state_dict(conv.state_dict())
        assert not torch.allclose(twin(x, other), expected)


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        (lambda a: a.update(edge_index=a["edge_index"] + 1000), (IndexError, RuntimeError)),
        (lambda a: a.update(edge_index=a["edge_index"] - 5), (IndexError, RuntimeError)),
        (lambda a: a.update(edge_index=a["edge_index"].float()), (ValueError, RuntimeError, IndexError)),
        (lambda a: a.update(edge_index=a["edge_index"][0]), (ValueError, RuntimeError, IndexError)),
        (lambda a: a.update(x=a["x"].detach()[:, :2]), (RuntimeError,)),
        (lambda a: a.update(x=a["x"].detach().float()), (RuntimeError,)),
        (lambda a: a.update(x=None), (TypeError, AttributeError)),
        (lambda a: a.update(nonsense=1), (TypeError,)),
    ],
)
@pytest.mark.parametrize("case", ["gcn", "sage mean", "gin", "gat", "gatv2", "transformer"])
def test_errors_are_pygs(case: str, edit: Callable[[Arguments], None], error: tuple[type, ...]) -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    arguments = {"x": rand(nodes, WIDE), "edge_index": edge_index}
    edit(arguments)
    torch.manual_seed(0)
    if not isinstance(outcome(CONVS[case]().double(), arguments), type):
        pytest.skip("PyG takes this")
    assert outcome(CONVS[case]().double(), arguments) in error
    check(CONVS[case], arguments, accelerated=None)


@pytest.mark.parametrize("rest", [{}, {"norm": "BatchNorm"}, {"jk": "cat"}])
@pytest.mark.parametrize(
    ("model", "options"),
    [
        (pyg.models.GCN, {}),
        (pyg.models.GraphSAGE, {"project": True}),
        (pyg.models.GIN, {"train_eps": True}),
        (pyg.models.GAT, {"heads": 2}),
        (pyg.models.GAT, {"heads": 2, "v2": True}),
    ],
)
def test_models_of_pyg(model: Any, options: dict[str, Any], rest: dict[str, Any]) -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    arguments: Arguments = {"x": rand(nodes, WIDE), "edge_index": edge_index}
    check(lambda: model(WIDE, 8, 3, 5, **options, **rest), arguments)
    assert sum(gnnbench.patch_status().accelerated.values()) == 3
    if model is pyg.models.GCN:
        arguments["edge_weight"] = weights(edge_index.size(1))
        check(lambda: model(WIDE, 8, 3, 5, **options, **rest), arguments)
    assert gnnbench.patch_status().declined == {}


def test_lazy_layers_get_their_size_from_pyg_and_then_run() -> None:
    edge_index, nodes, _ = graphs.zoo()["hub"]
    conv, x = pyg.SAGEConv(-1, NARROW), rand(nodes, WIDE).float()
    with gnnbench.patched(BACKEND):
        first = conv(x, edge_index)
        torch.testing.assert_close(conv(x, edge_index), first)
    assert gnnbench.patch_status().accelerated == {"SAGEConv": 1}
