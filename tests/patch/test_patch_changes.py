"""Change a program's convs once they are built, which counts patched as unpatched: options, modules, functions."""

from __future__ import annotations

import copy
import functools
import gc
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn.aggr import Aggregation, MaxAggregation, MeanAggregation, MultiAggregation, SumAggregation
from torch_geometric.nn.aggr import base as aggr_base
from torch_geometric.nn.conv import agnn_conv, gat_conv, gatv2_conv, gcn_conv, sage_conv, transformer_conv
from torch_geometric.utils import coalesce, remove_self_loops

import gnnbench
from gnnbench import convs, patch
from gnnbench.backends import isplib
from gnnbench.errors import UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.ops.kernels import Kernels
from gnnbench.patch.status import TALLY
from tests.patch.test_patch_convs import Arguments, outcome, rand, weights
from tests.support.dropin import BACKEND

pytestmark = pytest.mark.usefixtures("always")
WIDE, NARROW, NODES = 6, 4, 12
EDGES = torch.randint(NODES - 2, (2, 50), generator=torch.Generator().manual_seed(5))
EDGES = remove_self_loops(coalesce(EDGES))[0]
EDGES = EDGES[:, torch.randperm(EDGES.size(1), generator=torch.Generator().manual_seed(6))]
CSR = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(EDGES.size(1), dtype=torch.float64), (NODES, NODES))
CSR = CSR.coalesce().to_sparse_csr()

CONVS: dict[str, Callable[[], Any]] = {
    "gcn": lambda: pyg.GCNConv(WIDE, NARROW),
    "gcn widening": lambda: pyg.GCNConv(NARROW, WIDE),
    "gcn cached": lambda: pyg.GCNConv(WIDE, NARROW, cached=True),
    "sage": lambda: pyg.SAGEConv(WIDE, NARROW),
    "sage project": lambda: pyg.SAGEConv(NARROW, WIDE, aggr="max", project=True),
    "gin": lambda: pyg.GINConv(nn.Sequential(nn.Linear(WIDE, NARROW), nn.ReLU()), train_eps=True, eps=0.3),
    "gin of one linear": lambda: pyg.GINConv(nn.Linear(NARROW, WIDE), eps=0.3),
    "graph conv": lambda: pyg.GraphConv(WIDE, NARROW),
    "gat": lambda: pyg.GATConv(WIDE, NARROW, heads=2, concat=False),
    "gat edges": lambda: pyg.GATConv(WIDE, NARROW, heads=2, edge_dim=3, residual=True),
    "gatv2 edges": lambda: pyg.GATv2Conv(WIDE, NARROW, heads=2, edge_dim=3),
    "transformer": lambda: pyg.TransformerConv(WIDE, NARROW, heads=2, concat=False),
    "transformer edges": lambda: pyg.TransformerConv(WIDE, NARROW, heads=2, edge_dim=3, beta=True),
    "agnn": lambda: pyg.AGNNConv(),
}


def built(case: str) -> Any:
    torch.manual_seed(0)
    conv = CONVS[case]().double()
    for parameter in conv.parameters():
        nn.init.normal_(parameter)
    return conv


def forms(case: str) -> Iterator[Arguments]:
    """The ways to call a conv, each of which PyG runs by code of its own."""
    narrow, of_edges = case in ("gcn widening", "sage project", "gin of one linear"), EDGES.size(1)
    x = rand(NODES, NARROW if narrow else WIDE)
    yield {"x": x, "edge_index": EDGES}
    yield {"x": x, "edge_index": CSR}
    if case.startswith(("gcn", "graph")):
        yield {"x": x, "edge_index": EDGES, "edge_weight": weights(of_edges)}
    if case.endswith("edges"):
        yield {"x": x, "edge_index": EDGES, "edge_attr": rand(of_edges, 3, seed=2)}


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, type):
        assert found is expected
    else:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def agree(conv: Any, twin: Any, arguments: Arguments) -> Any:
    """The twin, patched, computes what `conv` does without the patch, which is returned."""
    expected = outcome(conv, arguments)
    with gnnbench.patched(BACKEND):
        same(outcome(twin, arguments), expected)
    return expected


def known(case: str, conv: Any) -> Any:
    """A conv that ran patched until it is known, so that what changes from now on has to be noticed."""
    with gnnbench.patched(BACKEND):
        for _ in range(3):
            outcome(conv, next(forms(case)))
    return conv


def ran() -> bool:
    return bool(gnnbench.patch_status().accelerated.keys() & convs.table().keys())


class Doubled(SumAggregation):
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return 2 * super().forward(*args, **kwargs)


def hooked(module: nn.Module) -> nn.Module:
    module = copy.deepcopy(module)
    module.register_forward_hook(lambda module, inputs, out: 2 * out)
    return module


def replaced(module: nn.Module) -> nn.Module:
    module = copy.deepcopy(module)
    module.forward = lambda x, *args, **kwargs: x.cos()
    return module


def alternatives(name: str, value: Any) -> list[Any]:
    """Other values for an attribute of a conv."""
    if name == "fill_value":
        return ["max", 0.5]
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int):
        return [1, -2, None]
    if isinstance(value, float):
        return [0.9, 1]
    if isinstance(value, str):
        return ["max", "mean", "add", "target_to_source", None]
    if isinstance(value, Tensor):
        shapes = [value.shape, (1,), (WIDE,)] if value.dim() < 2 else [value.shape, (1, *value.shape[1:])]
        return [None, *(nn.Parameter(rand(*shape).detach()) for shape in shapes)]
    if isinstance(value, Aggregation):
        others = [MeanAggregation(), MaxAggregation(), Doubled(), MultiAggregation(["sum"]), None]
        return [*others, hooked(value), replaced(value)]
    if isinstance(value, nn.Module):
        first = value[0] if isinstance(value, nn.Sequential) else value
        rows, cols = first.weight.shape
        other = nn.Linear(cols, rows).double()
        others = [other, nn.Sequential(other, nn.Tanh()), nn.Linear(cols, 2 * rows).double(), None]
        return [*others, hooked(value), replaced(value), lambda x: x @ other.weight.detach().t()]
    return []


def attributes(conv: Any) -> Iterator[str]:
    own = vars(conv)
    for each in (own, own["_modules"], own["_parameters"], own["_buffers"]):
        yield from (name for name in each if not name.startswith("_") and name != "training")
    yield from ("explain", "decomposed_layers")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("case", "name"), [(case, name) for case in CONVS for name in attributes(built(case)) if name != "inspector"]
)
def test_attributes(case: str, name: str) -> None:
    original = built(case).eval()
    for arguments in forms(case):
        for value in alternatives(name, getattr(original, name)):
            twins = copy.deepcopy(original), known(case, copy.deepcopy(original))
            for conv in twins:
                if case == "gcn cached":
                    conv(rand(NODES, WIDE), EDGES)
                if not isinstance(value, (nn.Module, Tensor, type(None))) and name in conv._modules:
                    delattr(conv, name)
                setattr(conv, name, copy.deepcopy(value))
            agree(*twins, arguments)


def test_modules_in_an_ordered_dictionary() -> None:
    """Take a module out of a Sequential, which makes its dictionary ordered, and move another one in that."""
    net = nn.Sequential(nn.Linear(WIDE, WIDE), nn.Tanh(), nn.ReLU(), nn.ReLU())
    original = pyg.GINConv(net).double().eval()
    del original.nn[3]
    twins, arguments = (copy.deepcopy(original), known("gin", copy.deepcopy(original))), next(forms("gin"))
    agree(*twins, arguments)
    assert ran()
    for conv in twins:
        conv.nn._modules.move_to_end("0")
    agree(*twins, arguments)


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    """A wrapper that tells about itself what the function tells, as careful programs write them."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        return (out[0], out[1] if out[1] is None else 2 * out[1]) if isinstance(out, tuple) else 2 * out

    return run


def unused(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: (args[0][:, ::2], None) if "loops" in function.__name__ else args[0].cos()


WHERE: dict[str, tuple[str, Any, str, Callable[..., Any]]] = {
    "a method of PyG's class": ("gcn", pyg.GCNConv, "message", twice),
    "a method of another of its classes": ("gcn", pyg.GCNConv, "message", lambda _: pyg.MessagePassing.message),
    "the method that is looked up in MessagePassing": ("sage", pyg.MessagePassing, "aggregate", twice),
    "what it lifts by": ("gin", pyg.MessagePassing, "_index_select", twice),
    "compiled propagation": ("graph conv", pyg.GraphConv, "propagate", twice),
    "compiled edge update": ("gatv2 edges", pyg.GATv2Conv, "edge_updater", twice),
    "edge update": ("gat", pyg.GATConv, "edge_update", twice),
    "aggregation": ("sage project", MaxAggregation, "forward", twice),
    "reduction": ("sage", Aggregation, "reduce", twice),
    "scatter": ("graph conv", aggr_base, "scatter", twice),
    "normalisation": ("gcn", gcn_conv, "gcn_norm", twice),
    "what normalisation calls": ("gcn", gcn_conv, "scatter", twice),
    "softmax of gat": ("gat", gat_conv, "softmax", twice),
    "softmax of gatv2": ("gatv2 edges", gatv2_conv, "softmax", twice),
    "softmax of transformer": ("transformer", transformer_conv, "softmax", twice),
    "loops of agnn": ("agnn", agnn_conv, "remove_self_loops", unused),
    "loops of gat": ("gat", gat_conv, "add_self_loops", unused),
    "product": ("sage", sage_conv, "spmm", twice),
    "plain linear": ("gcn widening", pyg.Linear, "forward", twice),
    "linear of torch": ("gin", nn.Linear, "forward", twice),
    "every module's call": ("gcn", nn.Module, "__call__", twice),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("where", WHERE)
def test_functions_replaced_in_classes_and_modules(
    where: str, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the patch and within it; and once they are back, so are the kernels."""
    case, owner, name, other = WHERE[where]
    twins = built(case), built(case)
    for arguments in forms(case):
        with monkeypatch.context() as program:
            program.setattr(owner, name, other(getattr(owner, name)))
            expected = outcome(twins[0], arguments)
        with monkeypatch.context() as program:
            if not inside:
                program.setattr(owner, name, other(getattr(owner, name)))
            with gnnbench.patched(BACKEND):
                if inside:
                    known(case, twins[1])
                    program.setattr(owner, name, other(getattr(owner, name)))
                same(outcome(twins[1], arguments), expected)
                program.undo()
    TALLY.clear()
    with gnnbench.patched(BACKEND):
        outcome(twins[1], next(forms(case)))
    assert ran()


@pytest.mark.parametrize("name", ["message", "propagate", "aggregate", "edge_updater", "edge_update", "_lift"])
@pytest.mark.parametrize("case", ["gat", "sage", "gcn"])
def test_methods_replaced_in_an_instance(case: str, name: str) -> None:
    twins = built(case), known(case, built(case))
    TALLY.clear()
    for conv in twins:
        setattr(conv, name, twice(getattr(conv, name)))
    assert convs.unsupported(twins[1])[0].endswith(f"overrides {name}()")
    for arguments in forms(case):
        agree(*twins, arguments)
    assert not ran()


def test_a_known_conv_can_be_freed_whatever_refers_back_to_it() -> None:
    conv = known("gcn", built("gcn"))
    conv.register_forward_hook(lambda *_, back=conv: None)
    forgotten = weakref.ref(known("gcn", conv))
    del conv
    gc.collect()
    assert forgotten() is None


def test_what_pyg_itself_puts_on_an_instance_is_no_change() -> None:
    conv = built("gcn")
    conv.explain = True
    conv.explain = False
    assert "propagate" in vars(conv)
    with gnnbench.patched(BACKEND):
        outcome(conv, next(forms("gcn")))
        outcome(copy.deepcopy(conv), next(forms("gcn")))
    assert gnnbench.patch_status().accelerated == {"GCNConv": 2}


def test_a_forward_of_pygs_class_that_a_program_replaced_runs_in_a_bound_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    conv, (arguments, *_) = built("gcn"), forms("gcn")
    with monkeypatch.context() as patched:
        patched.setattr(pyg.GCNConv, "forward", twice(pyg.GCNConv.forward))
        expected = outcome(conv, arguments)
        same(outcome(gnnbench.accelerate(conv, BACKEND), arguments), expected)
        assert not ran()
        with pytest.raises(UnsupportedOp, match=r"overrides forward\(\)"):
            convs.bind(conv, Kernels(), transform_first=True, fold_norm=True)


EARLY = """
import torch, torch_geometric
from torch_geometric import nn, utils
from torch_geometric.nn.conv import gat_conv, gcn_conv
x, edges = torch.randn(200, 8), torch.randint(200, (2, 4000))
layers = [nn.GCNConv(8, 8), nn.GATConv(8, 8), nn.SAGEConv(8, 8), nn.GraphConv(8, 8)]

def other(function):
    return lambda *args, **kwargs: function(*args, **kwargs)

gcn_conv.gcn_norm = lambda *args: (args[0], None)
gat_conv.softmax = lambda alpha, *args: alpha
utils.softmax = lambda src, *args: src
nn.SAGEConv.forward = lambda conv, x, edge_index: x
nn.GraphConv.message = lambda conv, x_j, edge_weight: 2 * x_j
run = lambda: [layer(x, edges) for layer in layers] + [utils.softmax(x, edges[0, :200])]
expected = run()
import gnnbench
from gnnbench.patch.policy import Policy
gnnbench.patch._policy = Policy(min_gathered=0)
gnnbench.patch_pyg("reference")
torch.testing.assert_close(run(), expected)
gnnbench.unpatch_pyg()
torch.testing.assert_close(run(), expected)
"""


def test_what_was_replaced_before_gnnbench_was_imported() -> None:
    subprocess.run([sys.executable, "-c", EARLY], check=True)


@pytest.mark.parametrize(
    ("case", "arguments"),
    [
        ("gcn", {"edge_weight": weights(EDGES.size(1)).detach().view(-1, 1).requires_grad_()}),
        ("gcn cached", {"edge_weight": weights(EDGES.size(1)).detach().view(-1, 1)}),
        ("graph conv", {"edge_weight": weights(EDGES.size(1)).detach().view(-1, 1).requires_grad_()}),
        ("sage", {"size": (NODES, None)}),
        ("graph conv", {"size": (None, NODES)}),
        ("gin", {"size": [None, None]}),
        ("sage", {"size": (NODES, NODES + 1)}),
        ("sage", {"size": (NODES,)}),
        ("sage", {"size": NODES}),
        ("gat", {"size": (NODES, None)}),
    ],
)
def test_weights_in_a_column_and_sizes_left_open(case: str, arguments: Arguments) -> None:
    expected = agree(built(case), built(case), next(forms(case)) | arguments)
    assert ran() == (not isinstance(expected, type) and case != "gcn cached")


def test_a_pair_of_the_same_features_is_a_pair() -> None:
    x = rand(NODES, WIDE)
    for case in CONVS:
        twins = built(case), built(case)
        for conv in twins:
            conv.share_weights = True  # of which GATv2Conv makes no use here
        agree(*twins, {"x": (x, x), "edge_index": EDGES})


def test_a_plain_linear_in_the_place_of_pygs_is_accelerated() -> None:
    for case, name in (("gcn", "lin"), ("gcn widening", "lin"), ("sage", "lin_r"), ("graph conv", "lin_rel")):
        conv = built(case)
        rows, cols = getattr(conv, name).weight.shape
        setattr(conv, name, nn.Linear(cols, rows).double())
        twin = copy.deepcopy(conv)
        for arguments in forms(case):
            TALLY.clear()
            agree(conv, twin, arguments)
            assert ran()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CONVS)
def test_hooks_on_all_modules_see_all_calls(case: str) -> None:
    seen: list[list[str]] = []
    conv, arguments = built(case), list(forms(case))[-1]
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, *rest: seen[-1].append(type(module).__name__)
    )
    try:
        for run in (gnnbench.unpatched, lambda: gnnbench.patched(BACKEND)):
            seen.append([])
            with run():
                conv(**arguments)
    finally:
        handle.remove()
    assert seen[0] == seen[1]
    with gnnbench.patched(BACKEND):
        conv(**arguments)
    assert ran() == (case != "gcn cached")  # whose weights need a gradient


@pytest.mark.parametrize("case", ["gat edges", "gatv2 edges", "transformer edges"])
def test_hooks_on_a_layer_of_edges_see_them_in_pygs_order(case: str) -> None:
    seen: list[Tensor] = []
    twins = built(case), built(case)
    for conv in twins:
        conv.lin_edge.register_forward_hook(lambda module, given, out: seen.append(given[0]))
        conv.lin_edge.register_full_backward_hook(lambda module, given, out: seen.append(out[0]))
    for arguments in forms(case):
        seen.clear()
        agree(*twins, arguments)
        half = len(seen) // 2
        torch.testing.assert_close(seen[:half], seen[half:], rtol=1e-9, atol=1e-11)
    assert ran()


def test_function_modes_see_pygs_own_calls() -> None:
    class Doubling(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = function(*args, **(kwargs or {}))
            return 2 * out if function is Tensor.index_select else out

    for case in CONVS:
        arguments = next(forms(case))
        with Doubling():
            agree(built(case), built(case), arguments)
        assert not ran()


def test_the_default_device_is_not_where_graphs_are_built() -> None:
    for case in ("gcn", "gat", "sage project"):
        arguments = next(forms(case))
        conv, twin = built(case), built(case)
        with torch.device("meta"), gnnbench.patched(BACKEND):
            out = twin(**arguments)
        torch.testing.assert_close(out, conv(**arguments))
        assert ran()
        TALLY.clear()


BOUND: dict[str, tuple[str, Callable[[Any], None]]] = {
    "no normalisation": ("gcn", lambda conv: setattr(conv, "normalize", False)),
    "another aggregation": ("sage", lambda conv: setattr(conv, "aggr_module", MaxAggregation())),
    "a hooked linear": ("sage", lambda conv: setattr(conv, "lin_l", hooked(conv.lin_l))),
    "a message": ("gin", lambda conv: setattr(conv, "message", twice(conv.message))),
    "another flow": ("graph conv", lambda conv: setattr(conv, "flow", "target_to_source")),
    "a hook": ("gat", lambda conv: conv.register_aggregate_forward_hook(lambda *args: None)),
    "a linear with a bias": ("gcn widening", lambda conv: setattr(conv, "lin", nn.Linear(4, 6).double())),
}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("change", BOUND)
def test_a_bound_conv_that_was_changed_says_so_or_computes_what_pyg_would(change: str, keep: bool) -> None:
    case, edit = BOUND[change]
    conv, x, graph = built(case), next(forms(case))["x"].detach(), Graph.from_edge_index(EDGES, NODES)
    twin = copy.deepcopy(conv)
    convs.bind(conv, Kernels(), transform_first=True, fold_norm=True, keep_aggregation=keep)
    torch.testing.assert_close(conv(x, graph), twin(x, EDGES))
    edit(conv)
    edit(twin)
    if keep and change in ("another aggregation", "a hooked linear"):  # which the first conv applies afterwards
        torch.testing.assert_close(conv(x, graph), twin(x, EDGES))
        return
    with pytest.raises(UnsupportedOp, match=r"changed after it was bound .*; prepare the model again"):
        conv(x, graph)


@pytest.mark.parametrize(("case", "name"), [("gcn", "add_self_loops"), ("sage", "aggr"), ("sage", "root_weight")])
def test_an_option_of_a_bound_conv_counts_in_the_next_call(case: str, name: str) -> None:
    conv, x, graph = built(case), next(forms(case))["x"].detach(), Graph.from_edge_index(EDGES, NODES)
    twin = copy.deepcopy(conv)
    convs.bind(conv, Kernels(), transform_first=True, fold_norm=True, keep_aggregation=True)
    conv(x, graph)
    for each in (conv, twin):
        setattr(each, name, "max" if name == "aggr" else False)
    torch.testing.assert_close(conv(x, graph), twin(x, EDGES))


def test_where_nothing_is_compiled_a_warning_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isplib._compiled, "MISSING", "No module named 'gnnbench.backends.isplib._spmm'")
    monkeypatch.setattr(patch, "_engines", {})
    monkeypatch.setattr(patch, "_warned", set())
    with pytest.warns(UserWarning, match="everything on cpu to PyG: backend 'isplib'") as caught:
        gnnbench.patch_pyg()
    (warning,) = (each for each in caught if "cpu" in str(each.message))
    assert warning.filename == __file__
    assert "run `pip install -e .`" in str(warning.message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        patch._setting("auto", None, strict=True)
    status = gnnbench.patch_status()
    assert status.missing.keys() >= {"cpu"}
    assert "\nno kernels on cpu, which is left to PyG: backend 'isplib' is unavailable: its kernels" in str(status)
    gnnbench.unpatch_pyg()
    assert gnnbench.patch_status().missing == {}
