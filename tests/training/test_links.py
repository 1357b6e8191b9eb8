"""Training on links: negatives depend on seed, epoch and batch alone; every backend computes what PyG does."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.nn import GAE

from gnnbench import backends, config, datasets
from gnnbench.backends import isplib
from gnnbench.comparison.parity import judge, steps
from gnnbench.convs import _parts
from gnnbench.errors import ConfigError
from gnnbench.models import Pairs
from gnnbench.models._stack import DistMult
from gnnbench.ops.kernels import Kernels
from gnnbench.ops.pairs import pair_dot
from gnnbench.results.schema import Result
from gnnbench.training import run, setup

BACKENDS = ["reference", *["isplib", "patched"] * (not isplib.MISSING)]


def asked(backend: str = "pyg", **sections: dict[str, Any]) -> config.Run:
    raw: dict[str, Any] = {
        "dataset": {**datasets.parse("synthetic:cora:0.1"), "task": "links", **sections.get("dataset", {})},
        "model": {"name": "gcn", "hidden": 16, "out_channels": 8, "dropout": 0.0, **sections.get("model", {})},
        "batch": {"kind": "links", "size": 150, "negatives": 2, **sections.get("batch", {})},
        "train": {"epochs": 4, "eval_every": 2, **sections.get("train", {})},
        "measure": {"warmup": 1},
        "backend": {"name": backend},
    }
    return config.validate(raw, "test")


def trained(wanted: config.Run, out: Path | None = None, **how: Any) -> Result:
    return run.run(wanted, roots=datasets.roots(), out=out, **how)


def prepared(wanted: config.Run) -> tuple[Any, Any]:
    data = datasets.load(wanted.dataset, datasets.roots())
    backend = backends.load(wanted.backend, wanted.train)
    model = setup.build(wanted, setup.ModelDims.of(data))
    return model, setup.prepare(wanted, model, backend, data).batching


CASES: dict[str, dict[str, Any]] = {
    "dot": {},
    "mlp": {"model": {"name": "sage", "decoder": "mlp", "head_layers": 2}, "dataset": {"embedding": 12}},
    "distmult": {"model": {"decoder": "distmult"}, "batch": {"sampling": "corrupt", "exclude_edges": False}},
    "dropped targets": {"batch": {"drop_target_links": True}},
}
SAMPLED = {"kind": "link_neighbors", "fanouts": [5, 3], "size": 40}
if not isplib.MISSING:
    CASES["neighbors of gcn"] = {"batch": SAMPLED, "dataset": {"embedding": 12}}
    CASES["neighbors of sage"] = {"batch": {**SAMPLED, "drop_target_links": True}, "model": {"name": "sage"}}


@pytest.mark.parametrize("case", CASES)
def test_every_backend_computes_what_pyg_does(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of links and gradients on three batches, in training, and in evaluation from other weights."""
    monkeypatch.setattr(_parts, "SORTED", 0)
    monkeypatch.setattr(_parts, "STREAMED", 0)
    data = datasets.load(asked(**CASES[case]).dataset, datasets.roots())

    def computed(backend: str, as_reference: bool = False) -> judge.Snapshot:
        wanted = asked(backend, **CASES[case])
        return steps.computed(wanted, backends.load(wanted.backend, wanted.train), data, as_reference)

    expected = computed("pyg", as_reference=True)
    assert "logits of batch 3 in evaluation" in expected.tensors
    for backend in BACKENDS:
        verdict = judge.judge(computed(backend), expected)
        assert verdict.ok, (backend, verdict.reason)


@pytest.mark.parametrize("relations", [1, 3])
def test_distmult_is_a_dot_product_of_its_ends(relations: int) -> None:
    torch.manual_seed(0)
    decoder, z = DistMult(6, relations), torch.randn(9, 6, requires_grad=True)
    relation = torch.randint(relations, (40,)) if relations > 1 else None
    pairs = Pairs(torch.randint(9, (2, 40)), relation)
    scores = decoder(z, pairs), pair_dot(Kernels(), *decoder.ends(z, pairs))
    grads = [torch.autograd.grad(each.square().sum(), [z, decoder.weight]) for each in scores]
    torch.testing.assert_close([scores[1], *grads[1]], [scores[0], *grads[0]])
    rows, _, _ = decoder.ends(z, pairs)
    assert len(rows) == (9 if relation is None else len((relation * 9 + pairs.nodes[0]).unique()))


def test_the_reference_scores_pairs_in_another_order_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyG's gradient of a decoder's last layer rounds by 1% on 85,000 pairs, which their order alone tells."""
    wanted, seen, forward = asked(model={"decoder": "distmult"}), [], DistMult.forward
    monkeypatch.setattr(DistMult, "forward", lambda *args: (seen.append(args[2].nodes), forward(*args))[1])
    data = datasets.load(wanted.dataset, datasets.roots())
    expected = steps.computed(wanted, backends.load(wanted.backend, wanted.train), data, as_reference=True)
    first, again = seen[: len(seen) // 3], seen[len(seen) // 3 : len(seen) // 3 * 2]
    assert all(torch.equal(nodes, other.flip(1)) for nodes, other in zip(first, again, strict=True))
    assert max(expected.rounding["logits"]) < 1e-3


def test_a_step_is_that_of_pygs_graph_auto_encoder() -> None:
    """Compare its loss but for what PyG adds under the logarithm, from the same weights, links and negatives."""
    model, batching = prepared(asked(batch={"size": 10_000}))
    (batch,) = batching.epoch(0, 1)
    gae = GAE(model.convs[0])
    z = model(batch.x, batch.adj)
    links, negatives = batch.pairs.nodes[:, : batch.targets], batch.pairs.nodes[:, batch.targets :]
    assert negatives.size(1) == 2 * batch.targets
    loss = batch.loss(batch.outputs(model))
    torch.testing.assert_close(loss, gae.recon_loss(z, links, negatives), rtol=1e-5, atol=1e-5)
    scores = ((z[pairs[0]] * z[pairs[1]]).sum(-1).sigmoid().detach() for pairs in (links, negatives))
    assert gae.test(z, links, negatives)[0] == pytest.approx(batching.dataset.score(*scores))


def test_runs_are_repeatable_on_every_backend_and_resumed(tmp_path: Path) -> None:
    results = {backend: trained(asked(backend)) for backend in ("pyg", *BACKENDS)}

    def stop(event: run.Event) -> None:
        if event.kind == "step" and event.steps == 2 and len(event.result.samples) == 1:
            signal.raise_signal(signal.SIGINT)

    often = asked(train={"checkpoint_every": 1}, batch={"prefetch": 1})
    assert trained(often, tmp_path, on_event=stop).status == "interrupted"
    resumed = trained(often, tmp_path, resume=True)
    assert [sample.loss for sample in resumed.samples] == [sample.loss for sample in results["pyg"].samples]
    for backend, result in results.items():
        assert result.status == "ok", (backend, result.reason)
        losses, expected = ([sample.loss for sample in r.samples] for r in (result, results["pyg"]))
        assert losses == pytest.approx(expected, rel=1e-4), backend
        for sample in result.samples:
            assert sample.encoder_s + sample.decoder_s + sample.loss_s <= sample.forward_s
            assert sample.negatives_s <= sample.loading_s <= sample.epoch_s
        assert result.links_per_s
        assert result.metrics.name == "auc"
        assert None not in (result.metrics.train, result.metrics.val, result.metrics.test)


def test_negatives_differ_between_batches_epochs_and_seeds() -> None:
    _, batching = prepared(asked())
    drawn = [
        batch.pairs.nodes[:, batch.targets :]
        for place in ((0, 1), (0, 2), (1, 1), (0, 1))
        for batch in batching.epoch(*place)
    ]
    count = len(drawn) // 4
    assert all(torch.equal(first, last) for first, last in zip(drawn[:count], drawn[-count:], strict=True))
    assert len({tuple(pairs.flatten().tolist()) for pairs in drawn}) == 3 * count


def test_dropped_targets_are_not_in_the_graph_of_their_batch() -> None:
    _, batching = prepared(asked(batch={"drop_target_links": True}))
    edges, nodes = batching.dataset.edge_index, batching.dataset.num_nodes
    for batch in batching.epoch(0, 1):
        links = batch.pairs.nodes[:, : batch.targets]
        wanted = torch.isin(
            edges[0] * nodes + edges[1], torch.cat([links, links.flip(0)], 1).T @ torch.tensor([nodes, 1])
        )
        assert wanted.sum() == 2 * batch.targets
        assert torch.equal(batch.adj, edges[:, ~wanted])


@pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
@pytest.mark.parametrize("drops", [False, True])
def test_all_neighbours_of_links_give_the_scores_of_the_whole_graph(drops: bool) -> None:
    every = {**SAMPLED, "fanouts": [-1, -1], "drop_target_links": drops, "evaluation": "sampled"}
    model, sampled = prepared(asked(model={"name": "sage"}, batch=every))
    whole_model, whole = prepared(asked(model={"name": "sage"}, batch={"size": 40, "drop_target_links": drops}))
    whole_model.load_state_dict(model.state_dict())
    for ours, theirs in zip(sampled.epoch(0, 1), whole.epoch(0, 1), strict=True):
        torch.testing.assert_close(ours.outputs(model), theirs.outputs(whole_model))
    assert sampled.edges > 0
    layerwise = prepared(asked(model={"name": "sage"}, batch={**every, "evaluation": "layerwise"}))[1]
    with torch.no_grad():
        expected = pytest.approx(whole.metrics(whole_model.eval()))
        assert sampled.metrics(model.eval()) == layerwise.metrics(model) == expected
    fewer = trained(asked(batch={**SAMPLED, "evaluation": "sampled"}))
    assert "metrics are estimates" in " ".join(fewer.warnings)
    assert fewer.metrics.test > 0.5


@pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built")
@pytest.mark.parametrize("batch", [{}, SAMPLED])
def test_a_graph_that_is_sorted_is_not_sorted_again(batch: dict[str, Any]) -> None:
    batching = prepared(asked("isplib", batch=batch))[1]
    assert batching.graph is batching.adj


def test_it_learns_and_ranks() -> None:
    learned = trained(asked(dataset={"negatives": 20}, train={"epochs": 40, "eval_every": 40}))
    assert learned.metrics.name == "mrr"
    assert learned.metrics.test > 2 * sum(1 / rank for rank in range(1, 22)) / 21 / 1.5


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        (
            {"batch": {"kind": "full"}},
            "has links to predict, and batch.kind=full predicts nodes; set batch.kind=links",
        ),
        (
            {"dataset": {"task": "nodes"}},
            "nodes to predict, and batch.kind=links predicts links; set dataset.task",
        ),
        ({"model": {"readout": "sum"}}, "model.readout=sum is of whole graphs, not of links; leave it out"),
    ],
)
def test_what_does_not_fit_is_refused(sections: dict[str, Any], reason: str) -> None:
    raw = asked().model_dump(mode="json", serialize_as_any=True)
    raw["backend"] = {"name": "pyg"}
    for section, keys in sections.items():
        raw[section] = {"kind": "full"} if keys == {"kind": "full"} else {**raw[section], **keys}
    with pytest.raises(ConfigError) as refused:
        trained(config.validate(raw, "test"))
    assert reason in str(refused.value)
