"""Trained weights at work: every way gives PyG's outputs, goes on after a stop, and says what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.nn import SAGEConv

import gnnbench
from gnnbench import config, datasets, inference
from gnnbench.backends import isplib
from gnnbench.errors import ConfigError
from gnnbench.inference import _process
from gnnbench.inference._process import Job
from gnnbench.training import layerwise
from tests.support.commands import run

pytestmark = [
    pytest.mark.skipif(bool(isplib.MISSING), reason="the kernels are not built"),
    pytest.mark.usefixtures("folder"),
]
SECTIONS: dict[str, Any] = {
    "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.1, "features": 16},
    "model": {"name": "sage", "hidden": 8},
    "batch": {"kind": "neighbors", "size": 13, "fanouts": [4, 3]},
    "train": {"epochs": 5},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    gnnbench.train(SECTIONS, backend="isplib", out=folder, quiet=True)
    return folder


def asked(mode: str, weights: Path | None, backends: str = "pyg,isplib", **changes: Any) -> inference.Asked:
    wanted = config.validate(SECTIONS | changes, "test")
    return inference.asked(wanted, mode, backends.split(","), weights)


def test_every_way_gives_the_outputs_of_pyg(trained: Path) -> None:
    kept = json.loads((trained / "results.json").read_text())
    best = max(kept["evaluations"], key=lambda evaluation: evaluation["val"])
    for mode in ("layerwise", "sampled"):
        result = gnnbench.infer(checkpoint=trained, mode=mode, rounds=1, quiet=True)
        ours = result.rows[1]
        assert (result.status, result.agreement.ok, result.exit_code) == ("ok", True, 0)
        assert ours.speedup["pyg"]
        assert ours.outputs_per_s == pytest.approx(271 / ours.pass_s.median)
        assert min(ours.peak_memory_bytes, result.rows[0].memory_increase_bytes + 1) > 0
        if mode != "sampled":
            assert ours.scores.test == pytest.approx(best["test"])
        assert gnnbench.load_result(result.path.parent) == result
        assert not [*result.path.parent.rglob("tensors.pt")]
    links = {
        "model": SECTIONS["model"],
        "dataset": {"source": "synthetic_links", "preset": "collab", "scale": 0.002},
    }
    for sections, mode in (
        ({**links, "batch": {"kind": "link_neighbors", "fanouts": [4, 3]}}, "layerwise"),
        (
            {"dataset": {"source": "synthetic_types", "scale": 0.0005}, "model": {"name": "rgcn", "hidden": 8}},
            "layerwise",
        ),
    ):
        result = gnnbench.infer(sections, mode=mode, rounds=1, backends="pyg,isplib:layers=false", quiet=True)
        assert (result.agreement.ok, result.rows[1].scores) == (True, None)


def test_a_model_that_pyg_cannot_do_in_layers_is_held_against_it_at_once() -> None:
    wanted = {**SECTIONS, "model": {"name": "gcn", "hidden": 8}, "batch": {"kind": "full"}}
    result = gnnbench.infer(wanted, mode="layerwise", rounds=1, quiet=True)
    assert [row.status for row in result.rows] == ["unsupported", "ok"]
    assert (result.agreement.ok, result.agreement.reference) == (True, "pyg")
    assert result.rows[1].speedup == {"pyg": None, "fastest_pyg": None}


def test_predictions_are_those_of_pygs_own_layers(trained: Path) -> None:
    result = gnnbench.infer(checkpoint=trained, rounds=0, out="p.npz", quiet=True)
    assert result.predictions.backend == "isplib"
    weights = torch.load(trained / "best.pt", weights_only=True)
    data = datasets.load(config.validate(SECTIONS, "test").dataset, datasets.roots())
    layers = SAGEConv(16, 8), SAGEConv(8, 7)
    x = data.x
    for number, layer in enumerate(layers):
        start = f"convs.{number}."
        layer.load_state_dict({name.removeprefix(start): each for name, each in weights.items() if start in name})
        x = layer(x if number == 0 else x.relu(), data.edge_index)
    written = np.load("p.npz")
    np.testing.assert_allclose(written["outputs"], x.detach(), rtol=1e-5, atol=1e-5)
    assert (written["prediction"] == written["outputs"].argmax(1)).all()


def test_a_stopped_prediction_goes_on_at_its_block(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnbench.measure import code

    def job() -> Job:
        made = asked("layerwise", trained / "best.pt")
        work = inference._Inferring(made, 0, Path("out"), datasets.roots(), lambda _: None)
        work.codes = {"isplib": code.digest()}
        result = work._job("isplib", Path("out"))
        result.predictions = Path("p.npz")
        return result

    monkeypatch.setattr(layerwise, "LEAST", 64)
    monkeypatch.setattr(layerwise, "COPIES", 1 << 50)  # so that blocks are the smallest
    put, steps = layerwise.Rows.put, []

    def stopping(rows: layerwise.Rows, name: str, begin: int, own: Any) -> None:
        if len(steps) == 3:
            raise KeyboardInterrupt
        put(rows, name, begin, own)
        steps.append((name, begin))

    monkeypatch.setattr(layerwise.Rows, "put", stopping)
    with pytest.raises(KeyboardInterrupt):
        _process.made(job())
    assert Path("p.npz.partial").is_dir()
    first = [*steps]
    monkeypatch.setattr(layerwise.Rows, "put", lambda *args: (steps.append(args[1:3]), put(*args)))
    _process.made(job())
    assert len({*steps}) == len(steps) > len(first)  # no block twice
    assert not Path("p.npz.partial").exists()
    interrupted = np.load("p.npz")["outputs"]
    gnnbench.infer(checkpoint=trained, rounds=0, out="whole.npz", quiet=True)
    assert (np.load("whole.npz")["outputs"] == interrupted).all()


def test_what_is_done_is_kept_and_another_inference_refused(trained: Path) -> None:
    started: list[str] = []
    for rounds in (1, 2, 2):
        result = inference.infer(
            asked("full", trained / "best.pt"),
            rounds=rounds,
            out=Path("out"),
            roots=datasets.roots(),
            on_event=lambda event: started.append(f"{event.stage}, {event.backend}"),
        )
    assert (result.agreement.ok, [row.status for row in result.rows]) == (True, ["ok", "ok"])
    assert started == [
        *("round 1 of 1, pyg", "round 1 of 1, isplib"),
        *("round 1 of 2, pyg", "round 2 of 2, isplib", "round 2 of 2, pyg"),  # whose outputs are needed again
    ]
    for wanted in (asked("full", None), asked("layerwise", trained / "best.pt")):
        with pytest.raises(ConfigError, match=r"another configuration \((checkpoint|mode) differs\)"):
            inference.infer(wanted, rounds=1, out=Path("out"), roots=datasets.roots())


def test_what_does_not_fit_is_one_sentence(trained: Path) -> None:
    Path("empty").mkdir()
    Path("there.npz").touch()
    Path("text.pt").write_text("just no weights")
    torch.save([1], "list.pt")
    shown = "--checkpoint", trained, "--rounds", "1"
    for options, words in {
        (
            *shown,
            "--set",
            "model.hidden=16",
        ): "weights of another model: size mismatch for convs.0.lin_l.weight",
        ("--checkpoint", "text.pt"): "text.pt: is not a readable file of weights",
        ("--checkpoint", "list.pt"): "list.pt: holds no weights by name",
        ("--checkpoint", "absent.pt"): "absent.pt: is not there; give the folder of a run",
        ("--checkpoint", "empty"): "empty: holds no run; give a folder such as",
        (*shown, "--mode", "layer"): "--mode layer: is none of full, layerwise, sampled; did you mean",
        ("--mode", "sampled"): "--mode sampled is of batches that draw neighbours, and batch.kind is full",
        ("gin_mutag", "--mode", "layerwise"): "--mode layerwise is of one graph, and batch.kind=graphs is of many",
        ("--backends", "pyg,isplib:workers=2"): "isplib:workers=2: workers is of training, and not of inference",
        ("--rounds", "0"): "--rounds 0 times nothing; give --out predictions.npz",
        ("--out", "there.npz"): "there.npz is there; choose another --out, or replace it with --force",
        ("--out", "no/p.npz"): "--out no/p.npz: there is no folder no",
        ("--set", "dataset.reorder=rcm", "--out", "p.npz"): "which dataset.reorder=rcm changes; leave it out",
    }.items():
        output = run("infer", *options)
        assert (output.code, output.stdout) == (2, ""), (options, output.stderr)
        assert words in output.stderr
        assert output.stderr.count("\n") == 1, output.stderr
