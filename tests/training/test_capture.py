"""Recorded training steps: the same losses as without, fresh random numbers, and errors that say what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench import backends, config, datasets, models
from gnnbench.backends import base, isplib
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable, ConfigError, UnsupportedOp
from gnnbench.results.schema import Result
from gnnbench.training import loop, run
from gnnbench.training.batching.full import Full
from gnnbench.training.loop import Trainer
from tests.support import graphs
from tests.support.gpu import DEVICE, needs_triton
from tests.support.tape import Tape, capturable, losses, nothing_waits  # noqa: F401

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU to record on")
needs_isplib = pytest.mark.skipif(bool(isplib.MISSING), reason=f"the kernels are not built: {isplib.MISSING}")
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"norm": "batch"},
    "sage": {"aggr": "mean", "residual": True},
    "sage of maxima": {"aggr": "max"},
    "gin": {"train_eps": True},
    "gat": {"heads": 2, "attention_dropout": 0.5},
    "gatv2": {"heads": 2, "attention_dropout": 0.5},
    "transformer": {"heads": 2, "attention_dropout": 0.5},
    "agnn": {},
}


def dataset(graph: str = "duplicates") -> NodeDataset:
    edge_index, nodes, _ = graphs.zoo()[graph]
    x = torch.randn(nodes, 6, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(nodes, dtype=torch.bool)
    return NodeDataset("zoo", edge_index, x, torch.arange(nodes) % 3, mask, mask, mask, 3)


def trainer(backend: str, model: str, *, recorded: bool, data: NodeDataset, **train: Any) -> Trainer:
    """A model with dropout, its weights and random numbers those of one seed."""
    name = model.split()[0]
    kernels = {"layers": False} if backend == "isplib" else {}  # on CPUs alone, and no torch ops for a tape to see
    raw = {
        "dataset": {"source": "synthetic", "preset": "cora"},
        "model": {"name": name, "hidden": 8, **MODELS[model]},
        "train": {"cuda_graph": recorded, **train},
        "backend": {"name": backend, **kernels},
    }
    asked = config.validate(raw, "test")
    placed = base.Backend.home if DEVICE.type == "cpu" or backend == "isplib" else DEVICE
    found = backends.load(asked.backend, asked.train)
    found.home = placed
    torch.manual_seed(0)
    built = models.build(asked.model, data.x.size(1), data.num_classes).to(found.device)
    prepared = found.prepare(built, data)
    torch.manual_seed(1)
    return loop.trainer(built, Full(data, prepared.adj, found.device), asked.train)


@pytest.fixture
def taped(monkeypatch: pytest.MonkeyPatch, capturable: None) -> None:  # noqa: F811
    monkeypatch.setattr(loop, "CudaGraph", Tape)


@needs_isplib
@pytest.mark.usefixtures("taped")
@pytest.mark.parametrize("model", MODELS)
def test_replays_are_steps(model: str) -> None:
    expected = losses(trainer("isplib", model, recorded=False, data=dataset("hub")), 9)
    recorded = trainer("isplib", model, recorded=True, data=dataset("hub"))
    assert losses(recorded, 9) == pytest.approx(expected, rel=1e-5)
    assert len(set(expected)) == 9
    assert recorded.epoch == 9
    assert recorded._graph.rehearsed == [False, False, True]


@pytest.mark.usefixtures("taped")
@pytest.mark.skipif(DEVICE.type != "cpu", reason="a tape is for the interpreter")
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize(("backend", "model"), [("pyg", "sage"), ("pyg-sparse", "gin")])
def test_untouched_pyg_and_other_optimizers_are_recorded_too(backend: str, model: str, optimizer: str) -> None:
    found = [
        losses(trainer(backend, model, recorded=recorded, data=dataset(), optimizer=optimizer), 7)
        for recorded in (False, True)
    ]
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@needs_triton
@pytest.mark.parametrize("model", MODELS)
def test_no_step_on_cuda_kernels_waits_for_the_gpu(
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capturable: None,  # noqa: F811
) -> None:
    stepped = trainer("cuda", model, recorded=False, data=dataset())
    for group in stepped.optimizer.param_groups:
        group["capturable"] = True
    first = stepped.check(stepped.train())
    with nothing_waits(monkeypatch):
        second = stepped.train()
    assert stepped.check(second) != first


@needs_triton
@pytest.mark.usefixtures("taped")
@pytest.mark.skipif(DEVICE.type != "cpu", reason="a tape is for the interpreter")
def test_replays_are_steps_on_cuda_kernels() -> None:
    found = [losses(trainer("cuda", "gat", recorded=each, data=dataset("one node")), 7) for each in (False, True)]
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.usefixtures("taped")
def test_what_cannot_be_recorded_is_named() -> None:
    """PyG's GAT looks for self-loops in every step, by a mask."""
    recorded = trainer("pyg", "gat", recorded=True, data=dataset())
    losses(recorded, 2)
    sentence = r"train\.cuda_graph is not supported: this step cannot be recorded \(called a sync.*Tensor\); leave"
    with pytest.raises(UnsupportedOp, match=sentence):
        recorded.train()


@pytest.mark.usefixtures("taped")
def test_memory_that_runs_out_is_no_obstacle_to_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any, **__: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    recorded = trainer("pyg", "sage", recorded=True, data=dataset())
    losses(recorded, 3)
    monkeypatch.setattr(Tape, "record", exhausted)
    with pytest.raises(torch.OutOfMemoryError):
        recorded.train()


RUN: dict[str, dict[str, Any]] = {
    "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.1, "features": 16},
    "model": {"name": "sage", "hidden": 8},
    "train": {"epochs": 9, "checkpoint_every": 3},
    "backend": {"name": "pyg"},
}


def ran(folder: Path, out: Path | None = None, **options: Any) -> Result:
    train = {**RUN["train"], **options.pop("train", {})}
    settings = config.validate({**RUN, "train": train}, "test")
    return run.run(settings, roots=datasets.Roots(folder, folder), out=out, **options)


@pytest.mark.usefixtures("taped")
@pytest.mark.skipif(DEVICE.type != "cpu", reason="a tape is for the interpreter")
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_run_reports_replays_as_a_whole_and_goes_on_after_a_stop(precision: str, tmp_path: Path) -> None:
    recorded = {"cuda_graph": True, "precision": precision}
    straight = ran(tmp_path, train={**recorded, "repeats": 2})
    eager = ran(tmp_path, train={"precision": precision, "repeats": 2})
    assert [sample.loss for sample in straight.samples] == pytest.approx(
        [sample.loss for sample in eager.samples], rel=1e-5
    )
    assert [sample.warmup for sample in straight.samples] == 2 * ([True] * 4 + [False] * 5)
    assert {sample.forward_s for sample in straight.samples} == {None}
    assert straight.epoch_s
    assert (straight.epoch_s.count, straight.forward_s, straight.optimizer_s) == (10, None, None)
    assert [sample.peak_memory_bytes > Tape.held_bytes for sample in straight.samples[:9]] == [False] * 4 + [
        True
    ] * 5
    assert straight.metrics == eager.metrics

    def stop(event: run.Event) -> None:
        if event.sample and event.sample.epoch == 7:
            raise KeyboardInterrupt

    out = tmp_path / "stopped"
    assert ran(tmp_path, out, train=recorded, on_event=stop).status == "interrupted"
    resumed = ran(tmp_path, out, train=recorded, resume=True)
    assert [sample.epoch for sample in resumed.samples] == list(range(1, 10))
    assert [sample.loss for sample in resumed.samples] == pytest.approx(
        [sample.loss for sample in straight.samples[:9]], rel=1e-5
    )


def test_without_a_gpu_it_is_unsupported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = ran(tmp_path, train={"cuda_graph": True})
    assert found.status == "unsupported"
    assert found.reason.startswith("train.cuda_graph is not supported: the run is on the cpu, and CUDA graphs ")
    assert ran(tmp_path, train={"device": "cuda"}).status == "unavailable"


def test_where_backends_run_that_run_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    auto, gpu = config.TrainConfig(), config.TrainConfig(device="cuda")
    graph, cpu = config.TrainConfig(cuda_graph=True), config.TrainConfig(device="cpu", cuda_graph=True)
    for name in ("pyg", "pyg-sparse", "pyg-compile", "reference"):
        asked = config.BackendConfig(name=name)
        devices = [backends.load(asked, train).device for train in (auto, gpu, graph, cpu)]
        assert [str(device) for device in devices] == ["cpu", "cuda:1", "cuda:1", "cpu"]
        assert str(backends.load(asked).device) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert str(backends.load(asked, graph).device) == "cpu"
    with pytest.raises(BackendUnavailable, match=r"train\.device is cuda, but no CUDA device"):
        backends.load(asked, gpu)


def test_epochs_are_left_to_replay() -> None:
    with pytest.raises(ConfigError, match=r"train: cuda_graph records epoch 4 .* raise epochs \(now 4\)"):
        config.validate({**RUN, "train": {"cuda_graph": True, "epochs": 4}}, "test")


def test_it_may_stand_among_the_options_of_a_backend(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("dataset: {source: synthetic, preset: cora}\nmodel: {name: gcn}\n")
    found = config.load(path, backend="cuda:cuda_graph=true:fold_norm=false")
    assert (found.train.cuda_graph, found.backend.name, found.backend.fold_norm) == (True, "cuda", False)
    assert config.load(path, ["train.cuda_graph=false"], backend="cuda:cuda_graph=true").train.cuda_graph is False


@needs_gpu
@pytest.mark.parametrize(("backend", "model"), [("pyg", "sage"), *(("cuda", model) for model in MODELS)])
def test_replays_are_steps_on_a_gpu(backend: str, model: str) -> None:
    found = [losses(trainer(backend, model, recorded=each, data=dataset("hub")), 9) for each in (False, True)]
    assert found[1] == pytest.approx(found[0], rel=1e-3)
