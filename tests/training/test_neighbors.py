"""Batches of sampled neighbourhoods: every step, on every backend, is what PyG computes on the same batch."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_geometric.typing
from torch_geometric.sampler import NeighborSampler, SamplerOutput

import gnnbench
from gnnbench import backends, config, datasets
from gnnbench.backends import isplib
from gnnbench.comparison.parity import BackendParity, judge, steps
from gnnbench.comparison.record import OWN_DRAWS, Comparison
from gnnbench.datasets import mapped as maps
from gnnbench.errors import ConfigError
from gnnbench.results.schema import Result
from gnnbench.training import run, setup
from gnnbench.training.batching import neighbors
from gnnbench.training.batching.full import Full

pytestmark = pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")


def asked(
    backend: str = "isplib", *, batch: dict[str, Any] | None = None, **sections: dict[str, Any]
) -> config.Run:
    raw: dict[str, Any] = {
        "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.2},
        "model": {"name": "sage", "hidden": 16, "dropout": 0.0, **sections.get("model", {})},
        "batch": {"kind": "neighbors", "size": 10, "fanouts": [5, 3], **(batch or {})},
        "train": {"epochs": 4, "eval_every": 4, **sections.get("train", {})},
        "measure": {"warmup": 1},
        "backend": {"name": backend},
    }
    return config.validate(raw, "test")


def trained(wanted: config.Run, out: Path | None = None, **how: Any) -> Result:
    return run.run(wanted, roots=datasets.roots(), out=out, **how)


@pytest.mark.parametrize("model", ["gcn", "sage", "gin", "gat", "transformer"])
def test_every_backend_computes_what_pyg_does(model: str) -> None:
    """Outputs and gradients on three batches, in training, and in evaluation from other weights."""
    data = datasets.load(asked().dataset, datasets.roots())

    def computed(backend: str, as_reference: bool = False) -> judge.Snapshot:
        wanted = asked(backend, model={"name": model})
        return steps.computed(wanted, backends.load(wanted.backend, wanted.train), data, as_reference)

    expected = computed("pyg", as_reference=True)
    assert "logits of batch 3 in evaluation" in expected.tensors
    for backend in ("reference", "isplib", "patched"):
        verdict = judge.judge(computed(backend), expected)
        assert verdict.ok, (backend, verdict.reason)


def test_losses_metrics_and_figures_of_a_run(tmp_path: Path) -> None:
    """Repeat it on every backend and in a run that was stopped twice; evaluation is that of the whole graph."""
    results = {backend: trained(asked(backend)) for backend in ("pyg", "isplib")}

    def stop(event: run.Event) -> None:
        if event.kind == "step" and event.steps == 2:
            if len(event.result.samples) == 1:
                signal.raise_signal(signal.SIGINT)
            elif len(event.result.samples) == 2:
                raise ZeroDivisionError

    often = asked(train={"checkpoint_every": 1})
    assert trained(often, tmp_path, on_event=stop).status == "interrupted"
    with pytest.raises(ZeroDivisionError):
        trained(often, tmp_path, resume=True, on_event=stop)
    resumed = trained(often, tmp_path, resume=True)
    assert [sample.loss for sample in resumed.samples] == [sample.loss for sample in results["isplib"].samples]
    for backend, result in results.items():
        assert result.status == "ok", (backend, result.reason)
        losses, expected = ([sample.loss for sample in r.samples] for r in (result, results["pyg"]))
        assert losses == pytest.approx(expected, rel=1e-4), backend
        assert result.metrics == results["pyg"].metrics
        assert [sample.edges for sample in result.samples] == [s.edges for s in results["pyg"].samples]
        assert result.edges_per_s
        for sample in result.samples:
            phases = (sample.load_s, sample.forward_s, sample.backward_s, sample.optimizer_s)
            assert sum(filter(None, phases)) <= sample.epoch_s
            assert sample.loading_s


def test_an_epoch_has_every_training_node_once_and_draws_anew() -> None:
    wanted = asked("pyg", batch={"trim": False})
    data = datasets.load(wanted.dataset, datasets.roots())
    assert isinstance(data, datasets.NodeDataset)
    data.x = torch.arange(data.num_nodes).float().view(-1, 1)
    model = setup.build(wanted, setup.ModelDims.of(data))
    batching = setup.prepare(wanted, model, backends.load(wanted.backend), data).batching
    drawn = []
    for seed, number in ((0, 1), (0, 2), (0, 1)):
        batches = [*batching.epoch(seed, number)]
        assert len(batches) == batching.steps
        seeds = torch.cat([batch.x[: batch.targets, 0] for batch in batches]).long()
        assert torch.equal(seeds.sort().values, data.train_mask.nonzero().flatten())
        edges = torch.cat([batch.x[batch.adj].flatten() for batch in batches])
        assert batching.edges == edges.numel() // 2
        drawn.append(edges)
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0].sort().values, drawn[1].sort().values)


@pytest.mark.parametrize("trim", [True, False])
def test_all_neighbours_are_a_full_batch(trim: bool) -> None:
    """In one batch of all training nodes with whole neighbourhoods, where nothing but them is computed too."""
    data = datasets.load(asked().dataset, datasets.roots())
    assert isinstance(data, datasets.NodeDataset)
    batch = {"size": int(data.train_mask.sum()), "fanouts": [-1, -1], "shuffle": False, "trim": trim}
    whole = trained(asked(batch=batch))
    full = config.validate({**asked().model_dump(serialize_as_any=True), "batch": {"kind": "full"}}, "test")
    expected = [sample.loss for sample in trained(full).samples]
    assert [sample.loss for sample in whole.samples] == pytest.approx(expected, rel=1e-5)


def test_a_mapped_graph_trains_to_the_same_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, on neighbourhoods as in evaluation; its edges are never put into memory for our kernels."""
    data = datasets.load(asked().dataset, datasets.roots())
    assert isinstance(data, datasets.NodeDataset)
    maps.write(data, tmp_path / "maps")
    section = {"source": "mapped", "path": str(tmp_path / "maps")}

    def mapped(backend: str, **batch: Any) -> Result:
        raw = {**asked(backend, batch=batch).model_dump(serialize_as_any=True), "dataset": section}
        return trained(config.validate({**raw, "backend": {"name": backend}}, "test"))

    for backend in ("pyg", "isplib"):
        with monkeypatch.context() as patched:
            if backend == "isplib":
                patched.setattr(datasets.MappedDataset, "edge_index", None)
            result, expected = mapped(backend), trained(asked(backend))
        assert [sample.loss for sample in result.samples] == [sample.loss for sample in expected.samples]
        assert result.metrics == expected.metrics

    estimated = mapped("isplib", evaluation="sampled", fanouts=[-1, -1])
    exact = mapped("isplib", fanouts=[-1, -1])
    assert estimated.metrics == exact.metrics  # where samples leave nothing out
    assert neighbors.ESTIMATED in estimated.warnings
    assert neighbors.ESTIMATED not in exact.warnings


@pytest.mark.skipif(sys.platform != "linux", reason="maps are described by Linux")
def test_training_reads_the_features_that_it_samples_and_no_others(tmp_path: Path) -> None:
    """Map a ring of nodes with 32 MB of them: the pages around what three nodes reach."""
    nodes = 1 << 17
    src = torch.arange(nodes)
    train, none = torch.zeros(2, nodes, dtype=torch.bool)
    train[[5, 6, nodes // 2]] = True
    ring = datasets.NodeDataset(
        "ring",
        torch.stack([src, src.roll(-1)]),
        torch.randn(nodes, 64),
        src % 3,
        train,
        none,
        none,
        3,
    )
    maps.write(ring, tmp_path / "maps")
    wanted = asked(batch={"size": 2})
    section = {"source": "mapped", "path": str(tmp_path / "maps")}
    wanted = config.validate({**wanted.model_dump(serialize_as_any=True), "dataset": section}, "test")
    data = datasets.load(wanted.dataset, datasets.roots())
    model = setup.build(wanted, setup.ModelDims.of(data))
    batching = setup.prepare(wanted, model, backends.load(wanted.backend), data).batching
    for number in range(3):
        for batch in batching.epoch(0, number):
            batch.loss(batch.outputs(model)).backward()
    described = Path("/proc/self/smaps").read_text().partition(str(tmp_path / "maps" / "x.npy"))[2]
    resident = next(line for line in described.splitlines() if line.startswith("Rss:"))
    assert 0 < int(resident.split()[1]) << 10 < data.x.nbytes / 4  # where the system maps 2 MB at a time


def test_evaluation_beyond_the_limit_is_a_layer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so, or what to do where a model cannot be computed in that way."""
    asked_for = {name: trained(asked(name, batch={"evaluation": "layerwise"})) for name in ("isplib", "pyg")}
    expected = trained(asked()).metrics

    def exhausted(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(Full, "outputs", exhausted)
    result = trained(asked())
    assert neighbors.LAYERWISE in result.warnings
    assert neighbors.LAYERWISE not in asked_for["isplib"].warnings
    for each in (result, *asked_for.values()):
        assert each.metrics == expected, each.reason
    result = trained(asked("pyg", model={"name": "gcn"}))
    assert result.status == "oom"
    assert "set batch.evaluation to sampled" in result.reason
    assert trained(asked("pyg", model={"name": "gcn"}, batch={"evaluation": "layerwise"})).status == "unsupported"


@pytest.mark.parametrize(
    ("batch", "backend", "words"),
    [
        ({"fanouts": [5]}, "isplib", "batch.fanouts is [5], but the model has 2 layers; give one number for each"),
        ({"fanouts": [5, -2]}, "isplib", "batch.fanouts.1: must be greater than or equal to -1, found -2"),
        ({"size": 10**6}, "isplib", "batch.size is 1000000, but synthetic cora x0.2 has"),
        ({"size": 0}, "isplib", "batch.size: must be greater than 0, found 0"),
    ],
)
def test_what_does_not_fit_is_refused(batch: dict[str, Any], backend: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        trained(asked(backend, batch=batch))


def test_a_backend_that_prepares_one_graph_is_unsupported() -> None:
    result = trained(asked("pyg-sparse"))
    assert result.status == "unsupported"
    assert "on samples or types" in result.reason


def test_pygs_own_loader_is_unavailable_without_its_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where ours would serve it."""
    for package in ("PYG_LIB", "TORCH_SPARSE"):
        monkeypatch.setattr(torch_geometric.typing, f"WITH_{package}", False)
    wanted = of_pyg()
    with gnnbench.patched():
        result = trained(wanted)
    assert result.status == "unavailable"
    assert "needs pyg-lib or torch-sparse, and neither is installed" in result.reason
    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    with gnnbench.patched(names=["sampler"]):
        result = trained(wanted)
    assert result.status == "unavailable"
    assert "call gnnbench.unpatch_pyg() first" in result.reason


def test_pygs_own_loader_trains_on_draws_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat it in every run, whatever else is random; pyg-lib is played by our sampler, with torch's numbers."""

    def sampled(self: NeighborSampler, seeds: torch.Tensor, *_: Any, **__: Any) -> SamplerOutput:
        key = int(torch.randint(2**62, ()))
        rows = isplib.Neighbors(self.colptr, self.row)
        drawn = rows.sample(seeds, self.num_neighbors.get_mapped_values(), key)
        return SamplerOutput(*drawn[:4], num_sampled_nodes=drawn.num_nodes, num_sampled_edges=drawn.num_edges)

    monkeypatch.setattr(torch_geometric.typing, "WITH_PYG_LIB", True)
    monkeypatch.setattr(NeighborSampler, "_sample", sampled)
    by_processes = trained(of_pyg(2))
    assert (by_processes.status, by_processes.reason) == ("ok", "")
    assert all(each.edges for each in by_processes.samples)
    first, again = (trained(of_pyg(dropout=0.5)) for _ in range(2))
    assert (first.status, first.reason) == ("ok", "")
    assert [each.loss for each in first.samples] == [each.loss for each in again.samples]
    edges = [each.edges for each in first.samples]
    assert len({*edges}) > 1
    assert edges != [each.edges for each in trained(asked("pyg")).samples]
    assert first.metrics
    assert first.metrics.test

    record = Comparison(
        config=of_pyg().model_dump(mode="json", serialize_as_any=True), rounds=1, epochs=4, rows=[]
    )
    record.parity.reference = "pyg"
    record.parity.backends = {name: BackendParity(status="ok", ok=True) for name in ("pyg", "pyg:loader=pyg")}
    for _ in range(2):
        record.update({"pyg": [trained(asked("pyg"))], "pyg:loader=pyg": [first]}, [])
    verdict = record.parity.backends["pyg:loader=pyg"]
    assert (verdict.losses, verdict.unchecked) == ("", [OWN_DRAWS])


def of_pyg(workers: int = 0, **model: Any) -> config.Run:
    raw = asked("pyg", model=model).model_dump(serialize_as_any=True)
    return config.validate({**raw, "backend": {"name": "pyg", "loader": "pyg", "loader_workers": workers}}, "test")
