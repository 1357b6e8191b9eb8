"""Batches of many graphs: every step, on every backend, is what PyG computes on PyG's own batches."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnbench import backends, config, datasets
from gnnbench.backends import isplib
from gnnbench.comparison.parity import dropout, judge, steps
from gnnbench.datasets import GraphsDataset
from gnnbench.errors import ConfigError
from gnnbench.results.schema import Result
from gnnbench.training import run, setup
from gnnbench.training.batching import _batch
from gnnbench.training.batching._batch import ahead
from tests.support.batches import graphs_dataset

BACKENDS = ["pyg:loader=pyg", "reference", "isplib", "patched", "pyg-sparse"]
MODELS = ["gcn", "sage", "gin", "gat", "gatv2", "transformer", "agnn"]


def asked(
    backend: str = "isplib", *, batch: dict[str, Any] | None = None, **sections: dict[str, Any]
) -> config.Run:
    raw: dict[str, Any] = {
        "dataset": {"source": "synthetic", "preset": "cora"},
        "model": {"name": "gin", "hidden": 16, "dropout": 0.0, "readout": "sum", **sections.get("model", {})},
        "batch": {"kind": "graphs", "size": 4, **(batch or {})},
        "train": {"epochs": 3, "eval_every": 3, **sections.get("train", {})},
        "measure": {"warmup": 1},
        "backend": config.backend_sections(backend)[0],
    }
    return config.validate(raw, "test")


def trained(
    monkeypatch: pytest.MonkeyPatch, wanted: config.Run, data: GraphsDataset, out: Path | None = None, **how: Any
) -> Result:
    monkeypatch.setattr(datasets, "read", lambda *_: data)
    return run.run(wanted, roots=datasets.roots(), out=out, **how)


def needs(backend: str) -> None:
    if backend in ("isplib", "patched") and isplib.MISSING:
        pytest.skip(f"the kernels are not built: {isplib.MISSING}")


@pytest.mark.parametrize("readout", ["none", "sum", "mean", "max"])
@pytest.mark.parametrize("model", MODELS)
def test_every_backend_computes_what_pyg_does(model: str, readout: str) -> None:
    """Outputs and gradients on three batches, in training, and in evaluation from other weights."""
    compare_to_pyg(graphs_dataset(per_node=readout == "none"), {"name": model, "readout": readout})


@pytest.mark.parametrize("model", ["gine", "gat", "gatv2", "transformer"])
def test_features_of_edges(model: str) -> None:
    data = graphs_dataset()
    data.edge_attr = torch.randn(data.edge_index.size(1), 3, generator=torch.Generator().manual_seed(1))
    attends = {} if model == "gine" else {"edge_features": True}
    compare_to_pyg(data, {"name": model, "readout": "sum", **attends})
    with pytest.raises(ConfigError, match=f"model {model} takes features of edges, which the dataset lacks"):
        setup.build(asked(model={"name": model, **attends}), setup.ModelDims.of(graphs_dataset()))


def compare_to_pyg(data: GraphsDataset, model: dict[str, Any]) -> None:
    section = {"head_layers": 2, "norm": "layer", "residual": True, **model}

    def computed(backend: str, as_reference: bool = False) -> judge.Snapshot:
        wanted = asked(backend, model=section)
        return steps.computed(wanted, backends.load(wanted.backend, wanted.train), data, as_reference)

    expected = computed("pyg", as_reference=True)
    assert "logits of batch 3 in evaluation" in expected.tensors
    assert expected.rounding["logits"].max() < 1e-5 * expected.tensors["logits"].norm()
    for backend in BACKENDS:
        needs(backend)
        if backend == "pyg-sparse" and model["name"] not in ("sage", "gin"):  # no sparse product, or self-loops
            continue
        verdict = judge.judge(computed(backend), expected)
        assert verdict.ok, (backend, verdict.reason)


def test_losses_metrics_and_figures_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    data = graphs_dataset()
    results = {}
    for backend in ("pyg", *BACKENDS):
        needs(backend)
        results[backend] = trained(monkeypatch, asked(backend, model={"mlp_norm": False}), data)
    for backend, result in results.items():
        assert result.status == "ok", (backend, result.reason)
        losses, expected = ([sample.loss for sample in r.samples] for r in (result, results["pyg"]))
        assert losses == pytest.approx(expected, rel=1e-4), backend
        assert result.metrics == results["pyg"].metrics
        facts = result.dataset_facts
        assert facts is not None
        assert (facts.graphs, facts.train_graphs) == (22, 14)
        assert facts.train_edges == int(data.edge_ptr[14])
        assert result.epoch_s is not None
        assert result.edges_per_s == pytest.approx(facts.train_edges / result.epoch_s.median)
        for sample in result.samples:
            phases = (sample.load_s, sample.forward_s, sample.backward_s, sample.optimizer_s)
            assert sum(filter(None, phases)) <= sample.epoch_s
            assert sample.loading_s is not None
            assert sample.loading_s > 0


def test_dropout_is_the_same_whoever_makes_the_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    data = graphs_dataset()
    losses = [
        [sample.loss for sample in trained(monkeypatch, asked(backend, model={"dropout": 0.5}), data).samples]
        for backend in ("pyg", "pyg:loader=pyg", "pyg:loader=pyg:loader_workers=2")
    ]
    assert losses[0] == losses[1] == losses[2]
    wanted = asked("pyg:loader=pyg", model={"dropout": 0.5})
    assert dropout.of_features(wanted, backends.load(wanted.backend), data) == {}  # torch draws it


def test_an_epoch_sees_every_training_graph_once_in_an_order_of_its_own() -> None:
    nodes = graphs_dataset().num_nodes
    data = graphs_dataset(x=torch.arange(nodes).float().view(-1, 1))
    wanted = asked("pyg", batch={"size": 5})
    model = setup.build(wanted, setup.ModelDims.of(data))
    batching = setup.prepare(wanted, model, backends.load(wanted.backend), data).batching
    orders = []
    for seed, number in ((0, 1), (0, 2), (1, 1), (0, 1)):
        batches = [batch.x.flatten() for batch in batching.epoch(seed, number)]
        assert len(batches) == batching.steps == 3
        order = torch.cat(batches).tolist()
        assert sorted(order) == list(range(int(data.graph_ptr[14])))
        orders.append(order)
    assert orders[0] == orders[3]
    assert orders[0] != orders[1] != orders[2] != orders[0]


def test_a_resumed_run_reaches_the_same_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, wanted = (
        graphs_dataset(),
        asked("reference", train={"epochs": 5, "checkpoint_every": 2, "eval_every": 5}),
    )
    whole = trained(monkeypatch, wanted, data)

    def stop(event: run.Event) -> None:
        if event.kind == "step" and len(event.result.samples) == 3 and event.steps == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trained(monkeypatch, wanted, data, tmp_path, on_event=stop)
    resumed = trained(monkeypatch, wanted, data, tmp_path, resume=True)
    assert [sample.loss for sample in resumed.samples] == [sample.loss for sample in whole.samples]
    assert resumed.metrics == whole.metrics


@pytest.mark.parametrize(
    ("target", "y", "by_hand"),
    [
        (
            "labels",
            [[1.0, math.nan], [0.0, 1.0]],
            lambda p: -(p[0, 0].log() + (1 - p[1, 0]).log() + p[1, 1].log()) / 3,
        ),
        ("value", [[0.2, 0.4], [0.6, 0.8]], None),
    ],
)
def test_missing_labels_and_values(target: str, y: list[list[float]], by_hand: Any) -> None:
    outputs, truth = torch.randn(2, 2), torch.tensor(y)
    expected = by_hand(outputs.sigmoid()) if by_hand else (outputs - truth).abs().mean()
    torch.testing.assert_close(_batch.loss_function(target, truth)(outputs), expected)
    assert _batch.count_targets(target, truth) == (3 if by_hand else 4)


def test_a_thread_makes_batches_ahead_and_ends_with_its_user() -> None:
    made: list[int] = []

    def batches() -> Any:
        for number in range(100):
            made.append(number)
            yield number

    taken = ahead(batches(), 2)
    assert [next(taken) for _ in range(3)] == [0, 1, 2]
    taken.close()
    assert len(made) <= 3 + 2 + 2
    assert list(ahead(iter(range(5)), 0)) == list(ahead(iter(range(5)), 3)) == list(range(5))

    with pytest.raises(ZeroDivisionError):
        list(ahead((1 // number for number in (1, 0)), 1))

    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert [*ahead((torch.get_num_threads() for _ in range(1)), 1), torch.get_num_threads()] == [1, 3]
    finally:
        torch.set_num_threads(threads)


def test_a_batch_of_one_row_under_batch_norm_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    single = replace(
        graphs_dataset(),
        graph_ptr=torch.arange(23),
        edge_ptr=torch.zeros(23).long(),
        edge_index=torch.zeros(2, 0).int(),
        x=torch.randn(22, 5),
    )
    result = trained(monkeypatch, asked("reference", batch={"size": 13}), single)
    assert result.status == "failed"
    assert "a batch of epoch 1 has a single row, which batch norm cannot normalise" in result.reason


@pytest.mark.parametrize(
    ("batch", "model", "backend", "words"),
    [
        ({"kind": "full"}, {}, "pyg", "holds 22 graphs, and batch.kind=full is of one graph"),
        ({}, {"readout": "none"}, "pyg", "targets of whole graphs, which model.readout=none does not give"),
        ({}, {}, "pyg:loader_workers=2", "only loaders of PyG and DGL have workers; give backend"),
        ({}, {}, "isplib:loader=pyg", "backend 'isplib' takes batches by ours only, found 'pyg'"),
        ({"kind": "graphs", "sizes": 3}, {}, "pyg", "batch.sizes: unknown key; did you mean 'size'?"),
        ({"kind": "graph"}, {}, "pyg", "batch.kind: unknown kind 'graph'; did you mean 'graphs'?"),
    ],
)
def test_what_does_not_fit_is_refused(
    batch: dict[str, Any], model: dict[str, Any], backend: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs(backend.partition(":")[0])
    raw = {
        "dataset": {"source": "synthetic", "preset": "cora"},
        "model": {"name": "gin", "readout": "sum", **model},
        "batch": {"kind": "graphs", **batch},
        "backend": config.backend_sections(backend)[0],
    }
    with pytest.raises(ConfigError, match=re.escape(words)):
        trained(monkeypatch, config.validate(raw, "test"), graphs_dataset())


def test_recorded_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = asked("pyg", train={"cuda_graph": True, "epochs": 6})
    result = trained(monkeypatch, wanted, graphs_dataset())
    assert result.status == "unsupported"
    assert "steps on different batches cannot be one recording" in result.reason
