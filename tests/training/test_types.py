"""Training on graphs of several types: every backend computes what PyG does, and models learn."""

from __future__ import annotations

from typing import Any

import pytest

from gnnbench import backends, config, datasets, profiling
from gnnbench.backends import isplib
from gnnbench.comparison.parity import judge, steps
from gnnbench.errors import ConfigError
from gnnbench.training import run

BACKENDS = ["reference", *["isplib", "patched"] * (not isplib.MISSING)]
MODELS: dict[str, dict[str, Any]] = {
    "rgcn": {"bases": 3},
    "hetero_sage": {"relations_aggr": "mean"},
    "hetero_gat": {"heads": 2},
    "hgt": {"heads": 2},
}


def asked(backend: str = "pyg", spec: str = "synthetic:mag:0.001", **sections: Any) -> config.Run:
    raw: dict[str, Any] = {
        "dataset": {**datasets.parse(spec), **sections.get("dataset", {})},
        "model": {"name": "rgcn", "hidden": 8, "dropout": 0.0, **sections.get("model", {})},
        "batch": sections.get("batch", {}),
        "train": {"epochs": 3, **sections.get("train", {})},
        "measure": {"warmup": 1},
        "backend": {"name": backend},
    }
    return config.validate(raw, "test")


@pytest.mark.parametrize("model", MODELS)
def test_every_backend_computes_what_pyg_does(model: str) -> None:
    """Logits and gradients, of trained vectors too, in training, and in evaluation from other weights."""
    section = {"name": model, **MODELS[model]}
    data = datasets.load(asked(model=section).dataset, datasets.roots())

    def computed(backend: str, as_reference: bool = False) -> judge.Snapshot:
        wanted = asked(backend, model=section)
        return steps.computed(wanted, backends.load(wanted.backend, wanted.train), data, as_reference)

    expected = computed("pyg", as_reference=True)
    assert "gradient of embed.author.weight" in expected.tensors
    for backend in BACKENDS:
        verdict = judge.judge(computed(backend), expected)
        assert verdict.ok, (backend, verdict.reason)


def test_a_model_learns_what_was_planted() -> None:
    wanted = asked(BACKENDS[-1], "synthetic:mag:0.002", train={"epochs": 15}, model={"hidden": 32})
    result = run.run(wanted, roots=datasets.roots(), out=None)
    assert result.metrics is not None
    assert result.metrics.test is not None
    assert result.metrics.test > 0.5
    facts: Any = result.dataset_facts
    assert (facts.node_types, facts.edge_types, facts.embedding_bytes > 0) == (4, 7, True)


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
        ({"batch": {"kind": "neighbors"}}, "has several types of nodes, and batch.kind=neighbors is of one"),
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
