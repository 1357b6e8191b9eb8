"""The gate passes right kernels and catches every wrong one, through the same path that is timed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench import models
from gnnbench.backends import isplib, pyg
from gnnbench.backends.isplib import choices
from gnnbench.comparison import parity
from gnnbench.comparison.parity import TensorError, dropout, steps
from gnnbench.comparison.parity import judge as judging
from gnnbench.comparison.parity.judge import EVALUATION, Snapshot, judge, judge_trained
from gnnbench.config import BackendConfig, TrainConfig
from gnnbench.ops.kernels import Kernels
from gnnbench.training import setup
from gnnbench.training.batching.full import Full
from gnnbench.training.loop import Trainer
from tests.support.wrong_kernels import (
    CLASSES,
    MODELS,
    WRONG,
    WRONG_DROPOUT,
    Bound,
    LateKernels,
    OwnGenerator,
    SoftmaxWithoutShift,
    backward_of,
    beside_a_hub,
    dataset,
    loud,
    reference,
    run_config,
    spmm_of,
    verdict,
    with_rows,
)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kernels", [Kernels, isplib.IsplibKernels])
def test_right_kernels_are_green(model: str, kernels: type[Kernels]) -> None:
    if kernels is isplib.IsplibKernels and isplib.MISSING:
        pytest.skip(isplib.MISSING)
    found = verdict(model, Bound(kernels()))
    assert found.ok, found.reason
    assert set(found.tensors) > {"logits", "logits in evaluation", "gradient at nodes"}
    assert found.rel_rms is not None
    assert found.rel_rms <= parity.TOLERANCE


def test_scores_too_large_for_exp_are_green_with_a_stable_softmax() -> None:
    assert verdict("gat", Bound(Kernels()), loud).ok


@pytest.mark.parametrize("plant", WRONG)
def test_wrong_kernels_are_red(plant: str) -> None:
    model, backend = WRONG[plant]
    found = verdict(model, backend)
    assert found.ok is False
    assert found.worst_tensor is not None
    assert found.worst_tensor in found.reason


def test_softmax_that_overflows_is_red() -> None:
    found = verdict("gat", Bound(SoftmaxWithoutShift()), loud)
    assert found.ok is False
    assert "NaN or infinity" in found.reason


def judged(change: Callable[[dict[str, Tensor]], Any]) -> parity.BackendParity:
    expected = {
        "logits": torch.randn(50_000, 7, generator=torch.Generator().manual_seed(0)),
        "gradient of weight": torch.ones(7, 3),
        "gradient of bias": torch.full((7,), 1e-7),
    }
    found = {name: tensor.clone() for name, tensor in expected.items()}
    change(found)
    rounding = {"gradient of bias": torch.tensor(1e-7)}
    return judge(Snapshot(found), Snapshot(expected, rounding=rounding))


def test_one_wrong_row_of_many_is_red_though_its_rms_is_within_tolerance() -> None:
    found = judged(lambda tensors: tensors["logits"][40_000].mul_(1.01))
    assert found.tensors["logits"].rel_rms is not None
    assert found.tensors["logits"].rel_rms < parity.TOLERANCE
    assert found.tensors["logits"].worst_row_index == 40_000
    assert found.ok is False


def test_rows_are_judged_in_blocks_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = judged(lambda tensors: tensors["logits"][-1].mul_(1.1))
    monkeypatch.setattr(judging, "BLOCK_ROWS", 999)
    assert judged(lambda tensors: tensors["logits"][-1].mul_(1.1)).worst_tensor == whole.worst_tensor == "logits"


@pytest.mark.parametrize(("value", "green"), [(-1e-6, True), (1e-4, False)])
def test_a_gradient_of_rounding_alone_is_measured_against_the_largest(value: float, green: bool) -> None:
    assert judged(lambda tensors: tensors["gradient of bias"].fill_(value)).ok is green


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.pop("gradient of weight"), "missing"),
        (lambda tensors: tensors.update(extra=torch.ones(1)), "not in pyg"),
        (lambda tensors: tensors.update(logits=tensors["logits"][1:]), r"\[49999, 7\]"),
        (lambda tensors: tensors.update(logits=tensors["logits"].double()), "float64"),
        (lambda tensors: tensors["logits"][7].fill_(torch.inf), "NaN or infinity in row 7"),
    ],
)
def test_tensors_that_cannot_be_compared_are_red(change: Callable[[dict[str, Tensor]], Any], words: str) -> None:
    found = judged(change)
    assert found.ok is False
    assert re.search(words, found.reason)
    assert parity.BackendParity.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    ("wrong", "green"),
    [
        ({"gradient at nodes": 2}, True),
        ({"gradient at nodes": 3}, False),
        ({"gradient at nodes in evaluation": 2}, True),
        ({"gradient at nodes": 1, "gradient at nodes in evaluation": 1}, False),  # of the same nodes
        ({"logits": 1}, False),
        ({"gradient of att": 1}, True),
        ({"gradient of att": 1, "gradient of att in evaluation": 1}, False),
        ({"gradient of weight": 2000}, False),  # by 14 times the tolerance
    ],
)
def test_few_nodes_may_lie_at_a_kink_in_one_of_both_steps(wrong: dict[str, int], green: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    names = ("logits", "gradient at nodes", "gradient of att", "gradient of weight")
    expected = {
        name + step: torch.randn(2000, 8, generator=generator) for name in names for step in ("", EVALUATION)
    }
    snapshot = Snapshot({name: tensor.clone() for name, tensor in expected.items()})
    for name, rows in wrong.items():
        snapshot.tensors[name][:rows] *= 1.0014
    judged = judge(snapshot, Snapshot(expected, kinks=True))
    assert judged.ok is green
    trained = Snapshot({name: tensor for name, tensor in snapshot.tensors.items() if name.endswith(EVALUATION)})
    assert judge_trained(trained, Snapshot(expected, kinks=True), "pyg").ok or not green
    assert sum(error.kinks for error in judged.tensors.values()) == (sum(wrong.values()) if green else 0)
    assert judge(snapshot, Snapshot(expected)).ok is False


@pytest.mark.parametrize(("off", "green"), [(1.9, True), (2.1, False), (torch.nan, False)])
def test_what_is_as_near_to_float64_as_the_reference_is_green(off: float, green: bool) -> None:
    exact = {"logits": torch.ones(50, 3, dtype=torch.float64)}
    theirs = Snapshot({"logits": torch.full((50, 3), 1.01)})
    ours = Snapshot({"logits": torch.full((50, 3), 1 - 0.01 * off)})
    assert judge(ours, theirs).ok is False
    found = judge(ours, replace(theirs, exact=exact))
    assert found.ok is green
    assert found.exact


@pytest.mark.parametrize("model", ["gat", "gin"])
def test_steps_in_float64_are_those_of_float32(model: str) -> None:
    expected = reference(model)
    assert expected.exact.keys() == expected.tensors.keys()
    found = Snapshot({name: tensor.float() for name, tensor in expected.exact.items()})
    assert judge(found, replace(expected, exact={})).ok


def test_a_reference_with_nan_makes_nothing_green() -> None:
    expected = {"logits": torch.full((3, 2), torch.nan)}
    assert "of pyg" in judge(Snapshot(expected), Snapshot(expected)).reason


def test_zero_everywhere_agrees_with_itself_only() -> None:
    zero = {"logits": torch.zeros(3, 2), "gradient of weight": torch.zeros(2)}
    assert judge(Snapshot(zero), Snapshot(zero)).ok
    assert judge(Snapshot(zero | {"logits": torch.full((3, 2), 1e-30)}), Snapshot(zero)).ok is False


@pytest.mark.parametrize(("tolerance", "green"), [(1e-4, False), (2e-2, True)])
def test_files_are_compared_as_tensors_are(tmp_path: Path, tolerance: float, green: bool) -> None:
    expected = reference("gcn with batch norm")
    moved = expected.rounding["gradient of convs.0.bias"]
    assert moved > 0.01 * expected.tensors["gradient of convs.0.bias"].norm()
    wrong = expected.tensors | {"logits": expected.tensors["logits"] * 1.01}
    right = TensorError(rel_rms=0.0, worst_row=0.0)
    Snapshot(wrong, tolerance, dropout={"mean": right}).save(tmp_path / "ours.pt")
    expected.save(tmp_path / "theirs.pt")
    ours, theirs = (Snapshot.load(tmp_path / name) for name in ("ours.pt", "theirs.pt"))
    assert judge(theirs, theirs).ok
    found = judge(ours, theirs)
    assert (found.ok, found.tolerance, "logits" in found.reason) == (green, tolerance, not green)
    assert found.tensors["mean"] == right


@pytest.mark.parametrize("model", ["gcn", "gcn with batch norm", "sage mean", "gin"])
def test_sums_in_bf16_are_green_by_their_own_tolerance_only(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "L2_BYTES", 1e-9)
    monkeypatch.setattr(choices, "EDGES_PER_SOURCE", 0)
    own = isplib.Backend(BackendConfig(name="isplib", gather="bf16")).tolerance
    kernels = isplib.IsplibKernels(gather="bf16")
    computed = steps.computed(run_config(model), Bound(kernels), dataset(), False).tensors
    assert own is not None
    green_by_its_own(Snapshot(computed, own), reference(model))


@pytest.mark.parametrize("model", MODELS)
def test_products_in_bf16_are_green_by_a_tolerance_of_their_own(model: str) -> None:
    wanted = run_config(model).model_copy(update={"train": TrainConfig(precision="bf16")})
    expected = steps.computed(wanted, pyg.Backend(BackendConfig()), dataset(), as_reference=True)
    assert all(torch.equal(tensor, reference(model).tensors[name]) for name, tensor in expected.tensors.items())
    found = steps.computed(wanted, Bound(Kernels()), dataset(), as_reference=False)
    green_by_its_own(found, expected)
    assert judge(found, expected).tolerance == 2e-2


def green_by_its_own(found: Snapshot, expected: Snapshot) -> None:
    assert judge(Snapshot(found.tensors), expected).ok is False
    assert judge(found, expected).ok, judge(found, expected).reason
    wrong = {**found.tensors, "logits": found.tensors["logits"] * 1.1}
    assert judge(replace(found, tensors=wrong), expected).ok is False


def test_jitter_leaves_the_dataset_alone() -> None:
    before = dataset().x.clone(), dataset().edge_index.clone()
    steps.computed(run_config("gcn"), pyg.Backend(BackendConfig()), replace(dataset()), as_reference=True)
    assert all(map(torch.equal, before, (dataset().x, dataset().edge_index)))


@pytest.mark.parametrize("model", ["sage sum", "gin deep"])
def test_a_hub_is_no_false_alarm(model: str) -> None:
    """Before batch norms the order of summation alone moves PyG's own gradients by more than the tolerance."""
    found = verdict(model, Bound(Kernels()), beside_a_hub)
    assert found.ok, found.reason


@pytest.mark.parametrize(("change", "tensor"), [(spmm_of, "logits"), (backward_of, "gradient at nodes")])
def test_an_ordinary_row_off_by_4_percent_is_red_beside_a_hub(change: Any, tensor: str) -> None:
    backend = change(lambda graph, x, out: with_rows(out, 500, out[500] * 1.04))
    found = verdict("sage sum", backend, beside_a_hub)
    assert found.ok is False
    error = found.tensors[tensor]
    assert error.worst_row_index == 500
    assert 0.01 < (error.worst_row or 0.0) < 0.1


@pytest.mark.parametrize("model", ["gat", "gatv2", "transformer"])
@pytest.mark.parametrize("kernels", [Kernels, isplib.IsplibKernels])
def test_attention_dropout_is_green_where_it_is_right(model: str, kernels: type[Kernels]) -> None:
    if kernels is isplib.IsplibKernels and isplib.MISSING:
        pytest.skip(isplib.MISSING)
    found, unchecked = dropout.measured(run_config(model, 0.4), Bound(kernels()), dataset())
    assert unchecked == []
    assert {error.problem for error in found.values()} == {""}
    assert len(found) == 4


@pytest.mark.parametrize("plant", WRONG_DROPOUT)
def test_wrong_attention_dropout_is_red(plant: str) -> None:
    backend, words = WRONG_DROPOUT[plant]
    found, _ = dropout.measured(run_config("gat", 0.4), backend, dataset())
    problems = " ".join(f"{name}: {error.problem}" for name, error in found.items() if error.problem)
    assert re.search(words, problems), problems


def test_masks_of_a_generator_of_ones_own_are_said_to_be_unchecked() -> None:
    found, unchecked = dropout.measured(run_config("gat", 0.4), Bound(OwnGenerator()), dataset())
    assert {error.problem for error in found.values()} == {""}
    assert "does not repeat" in unchecked[0]


def test_pygs_own_dropout_is_left_alone() -> None:
    assert dropout.measured(run_config("gat", 0.4), pyg.Backend(BackendConfig()), dataset()) == ({}, [])


@pytest.mark.parametrize("kernels", [Kernels, LateKernels])
def test_a_model_that_was_trained_is_checked_once_more(kernels: type[Kernels]) -> None:
    """Kernels that go wrong from the third epoch on are right in the gate's two steps."""
    config = run_config("gcn")
    assert verdict("gcn", Bound(kernels())).ok
    torch.manual_seed(0)
    model = models.build(config.model, dataset().x.size(1), CLASSES)
    backend = Bound(kernels())
    trainer = Trainer(model, Full(dataset(), backend.prepare(model, dataset()).adj, backend.device), config.train)
    for _ in range(3):
        trainer.train()
    found = steps.trained(config, backend, model, trainer.batching, setup.ModelDims.of(dataset()))
    judged = judge_trained(found, reference("gcn"), "pyg")
    assert judged.ok is (kernels is Kernels)
    assert judged.ok or "in evaluation" in judged.reason


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ([2.0, 1.9, 1.5, 1.0, 0.6, 0.4, 0.3, 9.0, 0.2], ""),  # a spike that is not the lowest
        ([2.01, 1.9, 1.5, 1.0, 0.6, 0.4, 0.2], "the first loss is 2.01, and 2 with pyg"),
        ([2.0, 1.9, 1.5, 1.1, 0.6, 0.4, 0.2], "the loss of epoch 4 is 1.1, and 1 with pyg"),
        ([2.0, 1.9, 1.5, 1.0, 0.6, 0.4, 0.4, 0.9, 0.9], ""),
        ([2.0, 1.9, 1.5, 1.0, 0.6, 0.4, 0.4, float("nan"), 0.9], ""),
        ([2.0, 1.9, 1.5, 1.0, 0.6, 0.4, -0.6, 0.9, 0.9], "the lowest loss is -0.6, and 0.2 with pyg"),
    ],
)
def test_losses_are_held_tightly_first_and_loosely_later(losses: list[float], words: str) -> None:
    expected = [2.0, 1.9, 1.5, 1.0, 0.6, 0.4, 0.2, 0.2, 0.2]
    assert parity.drifting(losses, expected[: len(losses)], "pyg", parity.TOLERANCE) == words


def test_what_is_checked_is_said() -> None:
    drawn = run_config("gat", 0.4).model.model_dump()
    exact = run_config("sage max", 0.0, 0.0).model.model_dump()
    assert "attention dropout" in " ".join(parity.checked(drawn))
    assert "losses" in " ".join(parity.unchecked(drawn))
    assert "losses" in " ".join(parity.checked(exact))
    assert "maximum" in " ".join(parity.unchecked(exact))


@pytest.mark.parametrize(("share", "agrees"), [(1.0, True), (0.9, False)])
def test_a_gradient_is_judged_by_a_step_within_which_a_layer_hardly_bends(share: float, agrees: bool) -> None:
    model = torch.nn.Linear(4, 3, bias=False)
    torch.nn.init.ones_(model.weight)

    def value() -> float:
        return float((60 * (model.weight.double() - 1)).exp().sum() / 60)

    model.weight.grad = torch.full_like(model.weight, share)  # of the gradient, which is one
    with torch.no_grad():
        misses = [dropout._miss(model, value, size) for size in dropout.STEPS]
    assert misses[0] > dropout.SLACK
    assert (misses[1] <= dropout.SLACK) == agrees
    assert torch.allclose(model.weight, torch.ones(3, 4))
