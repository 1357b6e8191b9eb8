"""The gate passes right kernels and catches every wrong one, through the same path that is timed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gnnbench.backends import isplib, pyg
from gnnbench.backends.isplib import choices
from gnnbench.compare import parity
from gnnbench.config import BackendConfig
from gnnbench.ops.kernels import Kernels
from tests.support.wrong_kernels import (
    MODELS,
    WRONG,
    Bound,
    SoftmaxWithoutShift,
    dataset,
    reference,
    run_config,
    verdict,
)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kernels", [Kernels, isplib.IsplibKernels])
def test_right_kernels_are_green(model: str, kernels: type[Kernels]) -> None:
    if kernels is isplib.IsplibKernels and isplib.MISSING:
        pytest.skip(isplib.MISSING)
    found = verdict(model, Bound(kernels()))
    assert found.ok, found.reason
    assert set(found.tensors) > {"logits", "logits in evaluation"}
    assert found.rel_rms is not None
    assert found.rel_rms <= parity.TOLERANCE


def test_scores_too_large_for_exp_are_green_with_a_stable_softmax() -> None:
    assert verdict("gat", Bound(Kernels()), loudness=1000.0).ok


@pytest.mark.parametrize("plant", WRONG)
def test_wrong_kernels_are_red(plant: str) -> None:
    model, backend = WRONG[plant]
    found = verdict(model, backend)
    assert found.ok is False
    assert found.worst_tensor is not None
    assert found.worst_tensor in found.reason


def test_softmax_that_overflows_is_red() -> None:
    found = verdict("gat", Bound(SoftmaxWithoutShift()), loudness=1000.0)
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
    return parity.judge(found, expected, rounding=["gradient of bias"])


def test_one_wrong_row_of_many_is_red_though_its_rms_is_within_tolerance() -> None:
    found = judged(lambda tensors: tensors["logits"][40_000].mul_(1.01))
    assert found.tensors["logits"].rel_rms is not None
    assert found.tensors["logits"].rel_rms < parity.TOLERANCE
    assert found.tensors["logits"].worst_row_index == 40_000
    assert found.ok is False


def test_rows_are_judged_in_blocks_as_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = judged(lambda tensors: tensors["logits"][-1].mul_(1.1))
    monkeypatch.setattr(parity, "BLOCK_ROWS", 999)
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


def test_a_reference_with_nan_makes_nothing_green() -> None:
    expected = {"logits": torch.full((3, 2), torch.nan)}
    assert "of pyg" in parity.judge(expected, expected, []).reason


def test_zero_everywhere_agrees_with_itself_only() -> None:
    zero = {"logits": torch.zeros(3, 2), "gradient of weight": torch.zeros(2)}
    assert parity.judge(zero, zero, ["gradient of weight"]).ok
    assert parity.judge(zero | {"logits": torch.full((3, 2), 1e-30)}, zero, []).ok is False


@pytest.mark.parametrize(("tolerance", "green"), [(1e-4, False), (2e-2, True)])
def test_files_are_compared_as_tensors_are(tmp_path: Any, tolerance: float, green: bool) -> None:
    expected, rounding = reference("gcn with batch norm")
    assert "gradient of convs.0.bias" in rounding
    for name, tensors in (("ours.pt", expected | {"logits": expected["logits"] * 1.01}), ("theirs.pt", expected)):
        saved = {"tensors": tensors, "rounding": rounding, "tolerance": tolerance if name == "ours.pt" else 1e-4}
        torch.save(saved, tmp_path / name)
    assert parity.check(tmp_path / "theirs.pt", tmp_path / "theirs.pt", "pyg").ok
    found = parity.check(tmp_path / "ours.pt", tmp_path / "theirs.pt", "pyg")
    assert (found.ok, found.tolerance, "logits" in found.reason) == (green, tolerance, not green)


@pytest.mark.parametrize("model", ["gcn", "gcn with batch norm", "sage mean", "gin"])
def test_bf16_is_green_by_its_own_tolerance_only(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "L2_BYTES", 1e-9)
    monkeypatch.setattr(choices, "EDGES_PER_SOURCE", 0)
    own = isplib.Backend(BackendConfig(name="isplib", precision="bf16")).tolerance
    computed, _ = parity.tensors(
        run_config(model), Bound(isplib.IsplibKernels(precision="bf16")), dataset(), False
    )
    expected = reference(model)
    assert own is not None
    assert parity.judge(computed, *expected).ok is False
    assert parity.judge(computed, *expected, tolerance=own).ok, parity.judge(
        computed, *expected, tolerance=own
    ).reason
    assert parity.judge({**computed, "logits": computed["logits"] * 1.1}, *expected, tolerance=own).ok is False


def test_jitter_leaves_the_dataset_alone() -> None:
    before = dataset().x.clone()
    parity.tensors(run_config("gcn"), pyg.Backend(BackendConfig()), replace(dataset()), as_reference=True)
    assert torch.equal(dataset().x, before)
