"""Training on graphs of several types: every backend computes what PyG does, and models learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gnnbench import backends, config, datasets, profiling
from gnnbench.backends import isplib
from gnnbench.comparison.parity import judge, steps
from gnnbench.errors import ConfigError
from gnnbench.training import run, setup
from gnnbench.training.layerwise import TypedLayerwise

BACKENDS = ["reference", *["isplib", "patched"] * (not isplib.MISSING)]
needs_kernels = pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
MODELS: dict[str, dict[str, Any]] = {
    "rgcn": {"bases": 3},
    "hetero_sage": {"relations_aggr": "mean"},
    "hetero_gat": {"heads": 2},
    "hgt": {"heads": 2},
}

BY_RELATION = {
    "author affiliated_with institution": [0, 0],  # so that no batch has any institution
    "institution rev_affiliated_with author": [0, 0],
    "author writes paper": [4, -1],
    "paper rev_writes author": [0, 3],
    "paper cites paper": [3, 2],
    "paper has_topic field_of_study": [2, 2],
    "field_of_study rev_has_topic paper": [2, 0],
}
BATCHES: dict[str, dict[str, Any]] = {"full": {}}
if not isplib.MISSING:
    BATCHES["sampled"] = {"kind": "neighbors", "size": 10, "fanouts": [4, 3]}
    BATCHES["by relation"] = {**BATCHES["sampled"], "fanouts": BY_RELATION}


def asked(backend: str = "pyg", spec: str = "synthetic:mag:0.001", **sections: Any) -> config.Run:
    raw: dict[str, Any] = {
        "dataset": {**datasets.parse(spec), **sections.get("dataset", {})},
        "model": {"name": "rgcn", "hidden": 8, "dropout": 0.0, **sections.get("model", {})},
        "batch": sections.get("batch", {}),
        "train": {"epochs": 3, **sections.get("train", {})},
        "measure": {"warmup": 1},
        "backend": {"name": backend, "loader": sections.get("loader", "ours")},
    }
    return config.validate(raw, "test")


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("model", MODELS)
def test_every_backend_computes_what_pyg_does(model: str, batch: str) -> None:
    """Logits and gradients, of trained vectors too, in training, and in evaluation from other weights."""
    section = {"name": model, **MODELS[model]}
    data = datasets.load(asked(model=section).dataset, datasets.roots())

    def computed(backend: str, as_reference: bool = False) -> judge.Snapshot:
        wanted = asked(backend, model=section, batch=BATCHES[batch])
        return steps.computed(wanted, backends.load(wanted.backend, wanted.train), data, as_reference)

    expected = computed("pyg", as_reference=True)
    assert "gradient of embed.author.weight" in expected.tensors
    assert ("logits of batch 3 in evaluation" in expected.tensors) == (batch != "full")
    unreached = expected.tensors["gradient of embed.institution.weight"]
    assert bool(unreached.any()) == (batch != "by relation")
    for backend in BACKENDS:
        verdict = judge.judge(computed(backend), expected)
        assert verdict.ok, (backend, verdict.reason)


def sampled(fanouts: Any) -> dict[str, Any]:
    return {"batch": {"kind": "neighbors", "size": 10, "fanouts": fanouts}}


def test_a_model_learns_what_was_planted() -> None:
    wanted = asked(BACKENDS[-1], "synthetic:mag:0.002", train={"epochs": 15}, model={"hidden": 32})
    result = run.run(wanted, roots=datasets.roots(), out=None)
    assert result.metrics is not None
    assert result.metrics.test is not None
    assert result.metrics.test > 0.5
    facts: Any = result.dataset_facts
    assert (facts.node_types, facts.edge_types, facts.embedding_bytes > 0) == (4, 7, True)


@needs_kernels
@pytest.mark.parametrize("model", MODELS)
def test_all_neighbours_are_a_full_batch(model: str) -> None:
    """One batch of all training nodes has the losses of the whole graph, and estimates its metrics."""
    section = {"name": model, **MODELS[model]}
    data: Any = datasets.load(asked().dataset, datasets.roots())
    batch = {"kind": "neighbors", "size": int(data.train_mask.sum()), "fanouts": [-1, -1], "evaluation": "sampled"}
    whole, result = (
        run.run(asked(BACKENDS[-1], model=section, batch=each), roots=datasets.roots(), out=None)
        for each in ({}, batch)
    )
    expected = [sample.loss for sample in whole.samples]
    assert [sample.loss for sample in result.samples] == pytest.approx(expected, rel=1e-5)
    assert result.metrics == whole.metrics


@needs_kernels
def test_what_is_drawn_follows_from_seed_and_epoch_alone() -> None:
    """Draw at most as many edges of a relation as are asked for, with losses of PyG's convs and of another run."""
    batch = {**BATCHES["by relation"], "size": 100}
    wanted = asked(BACKENDS[-1], batch=batch)
    data: Any = datasets.load(wanted.dataset, datasets.roots())
    model = setup.build(wanted, setup.ModelDims.of(data))
    batching: Any = setup.prepare(wanted, model, backends.load(wanted.backend), data).batching
    sample = batching._drawn(data.train_mask.nonzero().flatten()[:10], 7)
    assert sample.sizes["institution"] == 0
    cites = sample.edges["paper", "cites", "paper"]
    assert int(cites.graph().rowptr.diff().max()) == 3
    of_graph = {*map(tuple, data.relations["paper", "cites", "paper"].edge_index.T.tolist())}
    assert {*map(tuple, sample.node["paper"][cites.edge_index].T.tolist())} <= of_graph

    results = [
        run.run(asked(name, batch=batch), roots=datasets.roots(), out=None)
        for name in (BACKENDS[-1], BACKENDS[-1], "pyg")
    ]
    first, again, other = ([sample.loss for sample in result.samples] for result in results)
    assert first == again
    assert first == pytest.approx(other, rel=1e-4)
    assert len({tuple(sample.edges for sample in result.samples) for result in results}) == 1


def test_a_profile_tells_relations_and_types_apart() -> None:
    for model, layer in (("hetero_sage", "convs.1.convs.<author___writes___paper>"), ("rgcn", "encode.paper")):
        profile = profiling.profile(asked(model={"name": model}), epochs=1, roots=datasets.roots())
        assert {"forward", "backward"} <= {op.phase for op in profile.ops if op.layer == layer}


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"spec": "synthetic:cora:0.1"}, "model rgcn is of graphs of several types, and this one has one; choose"),
        (
            {"model": {"name": "gcn"}},
            "model gcn is of graphs of one type, and this one has 4 types of nodes; choose hetero_gat, "
            "hetero_sage, hgt or rgcn",
        ),
        (
            sampled({"paper cite paper": [1, 1]}),
            "batch.fanouts: synthetic mag x0.001 has no relation 'paper cite paper'; did you mean 'paper cites",
        ),
        (
            sampled({"paper cites paper": [1, 1]}),
            "batch.fanouts has no numbers for relation 'author affiliated_with institution' of synthetic",
        ),
        (
            sampled({"paper cites paper": [1]}),
            "batch.fanouts of 'paper cites paper' is [1], but the model has 2 layers; give one number for each",
        ),
        (sampled({"paper cites paper": [1, -2]}), "batch.fanouts.paper cites paper.1: must be greater than or"),
        (sampled({"paper cites paper": 3}), "batch.fanouts.paper cites paper: must be a valid tuple, found 3"),
        (
            {**sampled({"a to b": [1, 1]}), "spec": "synthetic:cora:0.1", "model": {"name": "sage"}},
            "batch.fanouts is by relation, and synthetic cora x0.1 has one type of edges; give one list of",
        ),
        ({**sampled([1, 1]), "loader": "pyg"}, "backend.loader=pyg makes batches of one type of nodes, and"),
        (
            {"spec": "synthetic:cora:0.1", "dataset": {"embedding": 8}, "model": {"name": "gcn"}},
            "dataset.embedding is for task links and for types without features",
        ),
        ({"model": {"norm": "batch"}}, "model.norm: must be 'none', found 'batch'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(how: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run.run(asked(**how), roots=datasets.roots(), out=None)
    assert reason in str(refused.value)


@needs_kernels
@pytest.mark.parametrize("model", MODELS)
@torch.no_grad()
def test_a_layer_at_a_time_gives_the_outputs_of_the_whole_graph(model: str, tmp_path: Path) -> None:
    data: Any = datasets.load(asked().dataset, datasets.roots())
    for backend in ("pyg", "isplib"):
        wanted = asked(
            backend,
            model={"name": model, **MODELS[model]},
            batch={**BATCHES["sampled"], "evaluation": "layerwise"},
        )
        built = setup.build(wanted, setup.ModelDims.of(data)).eval()
        batching: Any = setup.prepare(wanted, built, backends.load(wanted.backend), data).batching
        whole = batching._whole.outputs(built)
        torch.testing.assert_close(batching.outputs(built), whole, rtol=1e-5, atol=1e-5)
        blocks = TypedLayerwise(built, data, batching.backend)(200, tmp_path / backend, "key")
        torch.testing.assert_close(blocks, whole, rtol=1e-5, atol=1e-5)
        assert torch.equal(TypedLayerwise(built, data, batching.backend)(64, tmp_path / backend, "key"), blocks)


def test_parts_are_of_one_type() -> None:
    data = datasets.load(asked().dataset, datasets.roots())
    wanted = asked(batch={"kind": "parts"})
    model = setup.build(wanted, setup.ModelDims.of(data))
    with pytest.raises(ConfigError, match=r"batch\.kind=parts is of one; leave batch.kind and train.workers"):
        setup.prepare(wanted, model, backends.load(wanted.backend), data)
