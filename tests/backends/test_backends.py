"""Backends: all of them agree on a model, say why they cannot run, and can come from another package."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

import gnnbench
from gnnbench import backends, benchmarks, models, patch, registry
from gnnbench.backends import base, cuda, isplib, pyg_sparse
from gnnbench.config import BackendConfig, TrainConfig
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable, ConfigError, UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.kinds import bench as report
from gnnbench.measure import clock
from gnnbench.patch.policy import Policy
from gnnbench.tuning import search, store
from tests.support import gpu

RUNNABLE = ("pyg", "pyg-sparse", "reference", "isplib", "patched", "cuda")
SPARSE = {"gcn": {}, "sage": {"aggr": "max"}, "gin": {}}
DENSE = {"gat": {}, "gatv2": {}, "transformer": {}, "agnn": {}}


def dataset(edge_index: Tensor | None = None, nodes: int = 20) -> NodeDataset:
    if edge_index is None:
        edge_index = torch.randint(nodes - 1, (2, 80), generator=torch.Generator().manual_seed(0))
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    x = torch.randn(nodes, 9, generator=torch.Generator().manual_seed(1))
    y = torch.arange(nodes) % 3
    mask = torch.ones(nodes, dtype=torch.bool)
    return NodeDataset("random", edge_index, x, y, mask, mask, mask, 3)


def asked(name: str, **keys: bool) -> base.Backend:
    if name in ("isplib", "patched") and isplib.MISSING:
        pytest.skip(f"the kernels are not built: {isplib.MISSING}")
    return backends.load(BackendConfig(name=name, **keys))


def step(name: str, model_name: str, data: NodeDataset, repeats: int = 1, **keys: object) -> dict[str, Tensor]:
    """Logits and all gradients of the last of so many forward and backward passes without dropout."""
    if name == "cuda" and gpu.MISSING:
        pytest.skip(gpu.MISSING)
    torch.manual_seed(0)
    chosen = registry.find("models", model_name).Config(
        name=model_name, dropout=0.0, hidden=16, **{"norm": "batch", **keys}
    )
    model = models.build(chosen, data.x.size(1), data.num_classes)
    backend = asked(name)
    prepared = backend.prepare(model.to(backend.device), data)
    for _ in range(repeats):
        model.zero_grad()
        logits = model(data.x.to(backend.device), prepared.adj)
        torch.nn.functional.cross_entropy(logits, data.y.to(backend.device)).backward()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    return {
        key: found.detach().cpu() for key, found in {"logits": logits, **gradients}.items() if found is not None
    }


def test_the_names() -> None:
    assert backends.names()[:8] == [
        *("cuda", "dgl", "isplib", "patched", "pyg", "pyg-compile", "pyg-sparse", "reference")
    ]
    for name in RUNNABLE:
        assert backends.backend_type(name).name == name


@pytest.mark.parametrize(
    ("model", "backend"),
    [
        *product(SPARSE, ["pyg-sparse", "reference", "isplib", "cuda"]),
        *product(DENSE, ["reference", "isplib", "cuda"]),
    ],
)
def test_every_backend_computes_what_pyg_computes(model: str, backend: str) -> None:
    keys = {**SPARSE, **DENSE}[model]
    expected = step("pyg", model, dataset(), **keys)
    torch.testing.assert_close(step(backend, model, dataset(), **keys), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", [*SPARSE, *DENSE])
def test_patched_pyg_runs_on_our_kernels_where_a_graph_pays(model: str) -> None:
    edge_index = torch.randint(500, (2, 20_000), generator=torch.Generator().manual_seed(0))
    data, keys = dataset(edge_index, 500), {**SPARSE, **DENSE}[model]
    before = sum(gnnbench.patch_status().accelerated.values())
    found, expected = step("patched", model, data, 12, **keys), step("pyg", model, data, **keys)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert sum(gnnbench.patch_status().accelerated.values()) > before + 2  # the last two convs, at least


@pytest.mark.parametrize("model", DENSE)
def test_pyg_sparse_declines_convs_without_a_sparse_product(model: str) -> None:
    with pytest.raises(UnsupportedOp, match=r"has no sparse product for \w+Conv"):
        step("pyg-sparse", model, dataset())


def test_pyg_sparse_keeps_duplicate_edges() -> None:
    data = dataset()
    twice = dataset(torch.cat([data.edge_index, data.edge_index[:, :30]], dim=1))
    for model in ("gcn", "gin"):
        found = step("pyg-sparse", model, twice)
        torch.testing.assert_close(found, step("pyg", model, twice), rtol=1e-4, atol=1e-5)


def test_pyg_sparse_declines_gcn_on_self_loops_because_it_would_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    looped = dataset(torch.tensor([[0, 1, 2, 2], [1, 2, 0, 2]]), nodes=3)
    with pytest.raises(UnsupportedOp, match="the graph has self-loops"):
        step("pyg-sparse", "gcn", looped)
    step("pyg-sparse", "sage", looped)  # needs no loops of its own
    monkeypatch.setattr(pyg_sparse, "contains_self_loops", lambda edge_index: False)
    found, expected = step("pyg-sparse", "gcn", looped), step("pyg", "gcn", looped)
    assert not torch.allclose(found["logits"], expected["logits"], atol=1e-3)


@pytest.mark.parametrize("backend", ["reference", "isplib"])
def test_rewrites_can_be_switched_off(backend: str) -> None:
    model_config = registry.find("models", "gcn").Config(name="gcn")
    model = models.build(model_config, 9, 3)
    on = asked(backend).prepare(model, dataset()).bindings
    model = models.build(model_config, 9, 3)
    switches = dict.fromkeys(("transform_first", "fold_norm", "dropout", "layers"), False)
    off = asked(backend, **switches).prepare(model, dataset()).bindings
    assert on[0].rewrites == ["aggregate_first", "fold_norm"]
    assert ("Linear" in {binding.conv for binding in on}) == (backend == "isplib")
    assert [binding.rewrites for binding in off] == [[], []]


@pytest.mark.parametrize("backend", ["pyg", "pyg-sparse"])
def test_pyg_takes_no_rewrites(backend: str) -> None:
    with pytest.raises(ConfigError, match=f"backend.fold_norm: backend '{backend}' takes no rewrites"):
        asked(backend, fold_norm=True)


def test_a_type_that_a_backend_does_not_gather_in() -> None:
    assert asked("isplib", gather="bf16").tolerance == 2e-2
    assert asked("isplib", gather="float32").tolerance is None
    with pytest.raises(ConfigError, match="backend 'reference' gathers in float32 only, found 'bf16'"):
        asked("reference", gather="bf16")


def test_pyg_sparse_has_no_products_in_bfloat16_on_the_cpu() -> None:
    train = TrainConfig(precision="bf16", device="cpu")
    assert backends.load(BackendConfig(name="pyg"), train).name == "pyg"
    sentence = "train.precision=bf16 is not supported: PyTorch multiplies no sparse matrix"
    with pytest.raises(UnsupportedOp, match=sentence):
        backends.load(BackendConfig(name="pyg-sparse"), train)


@pytest.mark.usefixtures("no_gpu")
def test_cuda_says_why_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda._triton, "MISSING", "No module named 'triton'")
    for version, reason in ((None, "was built without CUDA"), ("13.0", "no CUDA device or driver was found")):
        monkeypatch.setattr(torch.version, "cuda", version)
        with pytest.raises(BackendUnavailable, match=f"Triton is not installed; .*{reason}"):
            asked("cuda")


def test_a_misspelt_backend() -> None:
    with pytest.raises(ConfigError, match=r"unknown backend 'isplb'; did you mean 'isplib'\?"):
        asked("isplb")


TINY = """
from gnnbench.backends import base, reference
from gnnbench.ops.kernels import Kernels, choice_key

class TinyKernels(Kernels):
    name = "tiny"
    device_type = "mps"
    off = 0.0

    def choices(self, op, graph, width, dtype, heads=1):
        return [{"way": 0}, {"way": 1}]

    def chosen(self, op, graph, width, dtype, heads=1):
        return graph.cache.get(choice_key(op, width, dtype, heads), {"way": 0})

    def spmm(self, graph, x, value, reduce):
        return super().spmm(graph, x, value, reduce) + self.off

class Backend(reference.Backend):
    name = "tiny"
    kernels = TinyKernels
    automatic_on = "mps"
    prepared = 0

    def prepare(self, model, dataset):
        type(self).prepared += 1
        return super().prepare(model, dataset)

class NotABackend:
    pass
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed distribution that brings backends: a module and the metadata that pip would write."""
    (tmp_path / "tiny_backend.py").write_text(TINY)
    info = tmp_path / "tiny_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-backend\nVersion: 1.0\n")
    points = ["tiny = tiny_backend:Backend", "pyg = tiny_backend:Backend", "wrong = tiny_backend:NotABackend"]
    points += ["missing = no_such_module:Backend", "empty = tiny_backend:Nothing"]
    (info / "entry_points.txt").write_text("\n".join(["[gnnbench.backends]", *points]) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("tiny_backend", None)


@pytest.mark.usefixtures("tiny", "brief")
class TestFromAnotherPackage:
    def test_it_runs(self) -> None:
        assert "tiny" in backends.names()
        found, expected = step("tiny", "gcn", dataset()), step("pyg", "gcn", dataset())
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert backends.backend_type("tiny").prepared == 1  # type: ignore[attr-defined]
        assert backends.module_of("tiny") == "tiny_backend"

    def test_its_kernels_are_tuned(self, tmp_path: Path) -> None:
        kind, _ = search.kernels_of("tiny")
        graph, wanted = Graph.from_edge_index(dataset().edge_index, 20), search.Request("graph", "spmm", 4)
        tuned = search.tune(graph, "random", [wanted], now=clock.cpu, kernels=kind())
        search.keep(tuned, tmp_path, graph)
        assert store.apply(graph, kind(), torch.nn.Linear(4, 4), tmp_path) == (tuned, [])
        if not isplib.MISSING:  # whose choices are others
            assert store.apply(graph, isplib.IsplibKernels(), torch.nn.Linear(4, 4), tmp_path) == (None, [])

    def test_its_kernels_are_checked_and_timed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        grid = benchmarks.Grid("spmm", (4,), against=("reference",), backend="tiny")
        for off, status, code in ((0.0, "ok", 0), (1.0, "wrong", 3)):
            monkeypatch.setattr(backends.backend_type("tiny").kernels, "off", off)
            found = benchmarks.bench(grid, dataset(), out=tmp_path, cache=tmp_path)
            assert [(row.implementation, row.status) for row in found.rows] == [
                ("tiny", status),
                ("reference", "ok"),
            ]
            assert (found.backend, found.exit_code) == ("tiny", code)
            assert "tiny vs\nreference" in report.table(found).heading
        with pytest.raises(ConfigError, match=r"backend 'pyg' has no kernels; allowed: .*isplib.*tiny"):
            benchmarks.Grid("spmm", backend="pyg")

    def test_its_kernels_are_taken_where_there_are_no_others(self) -> None:
        engine = patch._engine("auto", False, Policy())
        assert engine.by_device["mps"][0].name == "tiny"
        assert "mps" not in engine.missing

    def test_it_cannot_replace_the_baseline(self) -> None:
        assert backends.backend_type("pyg").__module__ == "gnnbench.backends.pyg"
        assert backends.names().count("pyg") == 1

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("missing", "No module named 'no_such_module'"),
            ("empty", "no attribute 'Nothing'"),
            ("wrong", "NotABackend'> is not a subclass of gnnbench.backends.base.Backend"),
        ],
    )
    def test_a_broken_one_is_unavailable(self, name: str, reason: str) -> None:
        with pytest.raises(BackendUnavailable, match=f"backend '{name}' cannot be loaded.*{reason}"):
            asked(name)
