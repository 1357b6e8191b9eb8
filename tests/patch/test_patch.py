"""The drop-in is installed and taken away without a trace, nests, and leaves to PyG what it cannot do exactly."""

from __future__ import annotations

import copy
import math
import pickle
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.explain.algorithm.utils import set_masks

import gnnbench
from gnnbench import convs, patch
from gnnbench.backends import isplib
from gnnbench.convs import gcn
from gnnbench.errors import BackendUnavailable, ConfigError, UnsupportedOp
from gnnbench.patch.policy import AS_FAST, NEW, Policy
from tests.convs.test_convs import Doubling
from tests.support.dropin import BACKEND

CLASSES = [getattr(pyg, name) for name in convs.table()]
ORIGINAL = {kind: kind.forward for kind in CLASSES}
NODES = 200
EDGES = torch.randint(NODES, (2, 20_000), generator=torch.Generator().manual_seed(3))


def conv(seed: int = 0) -> pyg.GCNConv:
    torch.manual_seed(seed)
    return pyg.GCNConv(32, 32)


def features() -> Tensor:
    return torch.randn(NODES, 32, generator=torch.Generator().manual_seed(1))


def patched_now() -> bool:
    found = {kind.forward is not ORIGINAL[kind] for kind in CLASSES}
    assert len(found) == 1
    return found.pop()


def test_patching_twice_and_unpatching_once_restores_the_identical_functions() -> None:
    gnnbench.patch_pyg(BACKEND)
    forward = pyg.GCNConv.forward
    gnnbench.patch_pyg(BACKEND)
    assert pyg.GCNConv.forward is forward
    gnnbench.unpatch_pyg()
    assert {kind: vars(kind)["forward"] for kind in CLASSES} == ORIGINAL
    gnnbench.unpatch_pyg()


def test_what_a_class_tells_about_its_forward_stays() -> None:
    before = pyg.GATConv.forward
    with gnnbench.patched(BACKEND):
        now = pyg.GATConv.forward
        assert now is not before
        assert (now.__name__, now.__qualname__, now.__doc__) == (
            before.__name__,
            before.__qualname__,
            before.__doc__,
        )


def test_contexts_nest_in_any_order_with_the_functions() -> None:
    with gnnbench.patched(BACKEND):
        with gnnbench.unpatched():
            assert not patched_now()
            with gnnbench.patched(BACKEND, names=["GCNConv"]):
                assert [kind for kind in CLASSES if kind.forward is not ORIGINAL[kind]] == [pyg.GCNConv]
            gnnbench.patch_pyg(BACKEND)
            assert not patched_now()
        assert patched_now()
    assert patched_now()
    with gnnbench.patched(BACKEND):
        gnnbench.unpatch_pyg()
        assert patched_now()
    assert not patched_now()


def test_a_context_ends_with_an_exception() -> None:
    with pytest.raises(KeyError), gnnbench.patched(BACKEND):
        raise KeyError
    assert not patched_now()


def test_decorator() -> None:
    @gnnbench.accelerated
    def first() -> bool:
        return patched_now()

    @gnnbench.accelerated(backend=BACKEND)
    def second(a: int, *, b: int) -> tuple[bool, int]:
        return patched_now(), a + b

    assert second(1, b=2) == (True, 3)
    assert first()
    assert first.__name__ == "first"
    assert not patched_now()


def test_calls_are_counted_and_print_readably() -> None:
    layer, x = conv(), features()
    gnnbench.patch_pyg(BACKEND)
    layer(x, EDGES)
    layer(x, EDGES)
    layer(x.bfloat16().float(), EDGES)
    status = gnnbench.patch_status()
    assert status.accelerated == {"GCNConv": 3}
    assert (status.graphs, status.declined) == (1, {})
    assert status.graph_bytes > 4 * EDGES.size(1)
    assert "accelerated: GCNConv, 3 calls" in str(status)
    assert re.search("patched: [0-9]+ layers, gcn_norm, sampler, softmax, spmm", str(status))
    gnnbench.unpatch_pyg()
    assert (gnnbench.patch_status().graphs, gnnbench.patch_status().patched) == (0, ())


def test_a_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    layer = pyg.GCNConv(32, 4, decomposed_layers=2)
    with gnnbench.patched(BACKEND), caplog.at_level("INFO", logger="gnnbench"):
        layer(features(), EDGES)
        layer(features(), EDGES)
    assert [record.getMessage() for record in caplog.records] == [
        "GCNConv runs PyG's own code: GCNConv has decomposed_layers=2; only 1 is supported"
    ]
    ((name, _), count), *_ = gnnbench.patch_status().declined.items()
    assert (name, count) == ("GCNConv", 2)


def test_strict_raises_instead() -> None:
    with gnnbench.patched(BACKEND, strict=True), pytest.raises(UnsupportedOp, match="decomposed_layers=2"):
        pyg.GCNConv(32, 4, decomposed_layers=2)(features(), EDGES)


@pytest.mark.usefixtures("no_gpu")
def test_wrong_names_and_missing_backends_say_so() -> None:
    with pytest.raises(ConfigError, match="unknown layer 'GCNConf'; did you mean 'GCNConv'"):
        gnnbench.patch_pyg(names=["GCNConf"])
    with pytest.raises(ConfigError, match="unknown backend 'isplip'"):
        gnnbench.patch_pyg("isplip")
    with pytest.raises(ConfigError, match="backend 'pyg' runs PyG's own code"):
        gnnbench.patch_pyg("pyg")
    with pytest.raises(BackendUnavailable, match="'cuda' is unavailable"):
        gnnbench.patch_pyg("cuda")
    assert not patched_now()


@pytest.mark.usefixtures("always")
def test_other_devices_are_left_to_pyg() -> None:
    layer = pyg.SAGEConv(32, 4).to("meta")
    with gnnbench.patched():
        layer(features().to("meta"), EDGES.to("meta"))
    assert ("SAGEConv", "no kernels run on meta") in gnnbench.patch_status().declined


class Wrapping(pyg.GCNConv):
    """Has a forward of its own, which calls PyG's."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return 3 * super().forward(x, edge_index)


def test_subclasses_keep_what_they_override() -> None:
    for kind in (Doubling, Wrapping):
        torch.manual_seed(0)
        layer = kind(32, 32)
        expected = layer(features(), EDGES)
        with gnnbench.patched(BACKEND):
            torch.testing.assert_close(layer(features(), EDGES), expected)
    status = gnnbench.patch_status()
    assert status.accelerated == {"GCNConv": 1}
    assert status.declined["GCNConv", "Doubling overrides message()"] == 1


def hooked(layer: pyg.GCNConv) -> None:
    layer.register_message_forward_hook(lambda module, inputs, out: 0 * out)


def explained(layer: pyg.GCNConv) -> None:
    set_masks(layer, nn.Parameter(torch.randn(EDGES.size(1))), EDGES)


@pytest.mark.parametrize("change", [hooked, explained])
def test_what_is_done_to_an_instance_counts_at_once(change: Callable[[pyg.GCNConv], None]) -> None:
    layer, x = conv(), features()
    with gnnbench.patched(BACKEND):
        layer(x, EDGES)
        change(layer)
        found = layer(x, EDGES)
    torch.testing.assert_close(found, layer(x, EDGES))
    assert sum(gnnbench.patch_status().declined.values()) == 1


def _forward_mode(layer: Any, x: Tensor) -> Tensor:
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.unpack_dual(
            layer(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)), EDGES)
        ).tangent


RUNS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "jvp": lambda layer, x: torch.func.jvp(lambda x: layer(x, EDGES), (x,), (x,))[1],
    "grad": lambda layer, x: torch.func.grad(lambda x: layer(x, EDGES).square().sum())(x),
    "forward mode": _forward_mode,
    "traced": lambda layer, x: torch.jit.trace(layer, (x, EDGES), check_trace=False)(x, EDGES),
    "scripted": lambda layer, x: torch.jit.script(layer)(x, EDGES),
    "compiled": lambda layer, x: torch.compile(layer, backend="eager", fullgraph=True)(x, EDGES),
    "exported": lambda layer, x: torch.export.export(layer, (x, EDGES)).module()(x, EDGES),
}


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:torch.jit.TracerWarning")
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
def test_transforms_and_compilers_see_pygs_own_code(run: Callable[[Any, Tensor], Tensor]) -> None:
    if torch.__version__.startswith("2.8.") and run is RUNS["compiled"]:
        pytest.skip("torch 2.8 cannot compile PyG's layer as one graph")
    torch._dynamo.reset()
    layer, x = conv(), features()
    expected = run(layer, x)
    with gnnbench.patched(BACKEND):
        torch._dynamo.reset()
        found = run(layer, x)
    assert torch.equal(found, expected)
    assert gnnbench.patch_status().accelerated == {}


def test_each_class_can_be_compiled_as_often_as_unpatched() -> None:
    """Compilers count by code object, and stop at a limit that classes are not to share."""
    kinds = pyg.GCNConv, pyg.SAGEConv, pyg.GINConv, pyg.GATConv, pyg.GraphConv
    with gnnbench.patched(BACKEND):
        assert len({id(kind.forward.__code__) for kind in kinds}) == len(kinds)


def test_what_was_compiled_unpatched_stays_as_it_was() -> None:
    torch._dynamo.reset()
    layer, x = conv(), features()
    compiled = torch.compile(layer, backend="eager")
    expected = compiled(x, EDGES)
    with gnnbench.patched(BACKEND):
        assert torch.equal(compiled(x, EDGES), expected)
    assert torch.equal(compiled(x, EDGES), expected)


def test_accelerate_is_of_one_model_only() -> None:
    model, other, x = nn.ModuleList([conv()]), conv(), features()
    expected = model[0](x, EDGES)
    names = list(model.state_dict())
    assert gnnbench.accelerate(model, BACKEND) is model
    assert not patched_now()
    torch.testing.assert_close(model[0](x, EDGES), expected)
    other(x, EDGES)
    assert gnnbench.patch_status().accelerated == {"GCNConv": 1}
    assert list(model.state_dict()) == names


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_of_an_accelerated_model_are_accelerated_with_weights_of_their_own(
    again: Callable[[Any], Any],
) -> None:
    model, x = gnnbench.accelerate(conv(), BACKEND), features()
    expected = model(x, EDGES)
    twin = again(model)
    torch.testing.assert_close(twin(x, EDGES), expected)
    nn.init.zeros_(twin.lin.weight)
    torch.testing.assert_close(model(x, EDGES), expected)
    assert twin(x, EDGES).eq(twin.bias).all()
    assert gnnbench.patch_status().accelerated == {"GCNConv": 4}


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_made_while_patched_are_plain(again: Callable[[Any], Any]) -> None:
    with gnnbench.patched(BACKEND):
        twin = again(conv())
    assert "forward" not in vars(twin)
    twin(features(), EDGES)
    assert gnnbench.patch_status().accelerated == {}


def test_accelerate_leaves_a_forward_of_ones_own() -> None:
    model = nn.ModuleList([Wrapping(32, 32), conv()])
    gnnbench.accelerate(model, BACKEND)
    assert [name for name in ("0", "1") if "forward" in vars(model.get_submodule(name))] == ["1"]
    with pytest.raises(UnsupportedOp, match=r"0: Wrapping overrides forward\(\)"):
        gnnbench.accelerate(nn.ModuleList([Wrapping(32, 32)]), BACKEND, strict=True)


@pytest.mark.parametrize("kind", [pyg.GCNConv, pyg.SAGEConv, pyg.GINConv, pyg.GATConv])
def test_tiny_graphs_are_left_to_pyg_however_often_they_come(kind: type) -> None:
    layer, x = kind(nn.Linear(32, 32)) if kind is pyg.GINConv else kind(32, 32), features()
    small, name = EDGES[:, :500].clone(), kind.__name__
    expected = layer(x, small)
    with gnnbench.patched(BACKEND):
        for edges in [small] * 20 + [small.clone() for _ in range(20)]:
            assert torch.equal(layer(x, edges), expected)
    assert gnnbench.patch_status().accelerated == {}
    assert gnnbench.patch_status().declined[name, AS_FAST] == 40
    with gnnbench.patched(BACKEND, strict=True):
        torch.testing.assert_close(layer(x, small), expected)
    assert gnnbench.patch_status().accelerated == {name: 1}


def test_a_large_graph_is_sorted_at_once_and_found_again_by_narrower_convs() -> None:
    before = gnnbench.patch_status()
    with gnnbench.patched(BACKEND):
        for edges in (EDGES, EDGES.clone()):
            for layer in (conv(), pyg.GCNConv(32, 1)):
                layer(features(), edges)
    after = gnnbench.patch_status()
    assert (after.accelerated, after.declined) == ({"GCNConv": 4}, {})
    assert (after.graphs_built - before.graphs_built, after.graphs_found - before.graphs_found) == (1, 3)


def test_edges_that_a_layer_makes_in_every_call_are_sorted_once() -> None:
    layer, x, before = pyg.SGConv(32, 4), features(), gnnbench.patch_status()
    expected = layer(x, EDGES)
    with gnnbench.patched(BACKEND, names=["SGConv"]):  # without gcn_norm, whose edges are kept
        for _ in range(20):
            out = layer(x, EDGES)
            torch.testing.assert_close(out, expected)
    after = gnnbench.patch_status()
    accelerated, built = after.accelerated["SGConv"], after.graphs_built - before.graphs_built
    assert (accelerated >= 10, built, after.graphs_found - before.graphs_found) == (True, 2, accelerated - 2)


@pytest.mark.parametrize("view", [False, True])
def test_a_graph_of_middling_size_is_sorted_once_it_comes_again_and_again(view: bool) -> None:
    """But not by the last conv of a batch, however near each call comes to paying for it."""
    nodes, edges, layers = 4000, EDGES[:, :2600].clone(), [conv(seed) for seed in range(3)]
    x, price = torch.randn(nodes, 32), gcn.COST.training.price(2600, 32)
    assert price.build / 2 < price.saved < price.build
    built = gnnbench.patch_status().graphs_built
    with gnnbench.patched(BACKEND):
        for shift in range(10):
            batch = edges.roll(1 + shift, 1)
            for layer in layers:
                layer(x, batch)
        assert gnnbench.patch_status().declined == {("GCNConv", NEW): 30}
        for _ in range(10):
            layers[0](x, edges.view_as(edges) if view else edges)
    left = math.ceil(Policy().calls * price.build / price.saved) - 1
    assert gnnbench.patch_status().declined == {("GCNConv", NEW): 30 + left}
    assert gnnbench.patch_status().accelerated == {"GCNConv": 10 - left}
    assert gnnbench.patch_status().graphs_built - built == 1


def test_the_graph_of_an_inference_tensor_is_found_by_its_contents() -> None:
    built, layer = gnnbench.patch_status().graphs_built, conv()
    with torch.inference_mode(), gnnbench.patched(BACKEND):
        small, large = EDGES[:, :4000].clone(), EDGES.clone()
        for edges in (small, large):
            for _ in range(20):
                layer(torch.randn(NODES, 32), edges)
    assert gnnbench.patch_status().graphs_built - built == 4
    assert gnnbench.patch_status().accelerated["GCNConv"] > 30


def test_edits_in_place_and_freed_memory_are_noticed() -> None:
    layer, x = conv(), features()
    for seed in range(20):
        edges = torch.randint(NODES, EDGES.shape, generator=torch.Generator().manual_seed(seed))
        for _ in range(2):
            expected = layer(x, edges)
            with gnnbench.patched(BACKEND):
                torch.testing.assert_close(layer(x, edges), expected)
            edges[:, 7] = seed
        del edges
    assert gnnbench.patch_status().accelerated == {"GCNConv": 40}
    assert gnnbench.patch_status().graphs == 0


def test_several_graphs_and_models_in_turn() -> None:
    layers, x = [conv(seed) for seed in range(3)], features()
    graphs = [EDGES, EDGES.flip(0).contiguous(), EDGES[:, ::2].contiguous()]
    expected = [[layer(x, edges) for layer in layers] for edges in graphs]
    with gnnbench.patched(BACKEND):
        for _ in range(2):
            torch.testing.assert_close([[layer(x, edges) for layer in layers] for edges in graphs], expected)
    assert gnnbench.patch_status().graphs == 3


def test_threads_share_the_patch() -> None:
    layer, x, wrong = conv().eval(), features(), []
    expected = layer(x, EDGES)

    def work() -> None:
        for _ in range(20):
            with gnnbench.patched(BACKEND), torch.inference_mode():
                if not torch.allclose(layer(x, EDGES), expected, atol=1e-5):
                    wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert gnnbench.patch_status().accelerated == {"GCNConv": 80}
    assert not patched_now()


@pytest.mark.usefixtures("no_gpu")
def test_the_device_decides_where_nothing_is_asked() -> None:
    engine = patch._setting("auto", None, False).engine
    assert engine is not None
    assert "backend 'cuda'" in engine.missing["cuda"]
    if isplib.MISSING:
        assert "backend 'isplib'" in engine.missing["cpu"]
    else:
        assert engine.by_device["cpu"][0].name == "isplib"
