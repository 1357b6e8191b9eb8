"""The schema of results.json: every field is written and read back, and files are never left half-written."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from gnnbench.errors import GnnbenchError
from gnnbench.results import files, schema
from gnnbench.results.schema import Binding, DatasetFacts, Evaluation, Metrics, Result, Status, Summary
from tests.support.samples import sample

EVALUATIONS = [
    Evaluation(repeat=0, epoch=1, train=0.5, val=0.25, test=0.125),
    Evaluation(repeat=0, epoch=2, train=0.75, val=0.5, test=0.5),
    Evaluation(repeat=1, epoch=1, train=1.0, val=0.75, test=0.625),
    Evaluation(repeat=1, epoch=2, train=1.0, val=0.75, test=0.25),
]
SAMPLES = [
    sample(1, 64.0, peak_memory_bytes=9000),
    sample(2, 8.0, peak_memory_bytes=2000),
    sample(3, 8.0),
    sample(1, 64.0, repeat=1),
    sample(2, 16.0, repeat=1),
]


WORKER = dict.fromkeys(schema.Worker.model_fields, 3)


def complete() -> Result:
    """A result in which no field has its default."""
    summary = Summary(median=1.5, low=1.25, high=1.75, mad=0.125, count=7)
    return Result(
        status="interrupted",
        reason="stopped",
        code="0123abcd",
        backend="isplib",
        dataset="Cora (features synthetic)",
        dataset_facts=DatasetFacts(
            name="Cora",
            synthetic_parts=["features"],
            nodes=2708,
            edges=10556,
            features=1433,
            classes=7,
            metric="accuracy",
            reorder="rcm",
            reorder_s=0.25,
        ),
        config={"train": {"lr": 0.01}},
        environment={"python": "3.11", "gpus": []},
        bindings=[
            Binding(module="convs.0", conv="GCNConv", kernels={"spmm": "isplib"}, rewrites=["transform_first"])
        ],
        choices=[
            schema.ChoiceRecord(
                adjacency="graph",
                op="spmm",
                width=16,
                dtype="float32",
                choice={"algorithm": "blocked", "shift": 14},
                default={"algorithm": "row"},
                time_s=0.5,
                gain=schema.Ratio(ratio=2.0, low=1.5, high=2.5),
                speedup=schema.Ratio(ratio=4.0, low=3.5, high=4.5),
            )
        ],
        tuning_s=1.5,
        prepare_s=0.125,
        epoch_s=summary,
        load_s=summary,
        loading_s=summary,
        negatives_s=summary,
        encoder_s=summary,
        decoder_s=summary,
        loss_s=summary,
        links_per_s=10.0,
        graphs_per_s=20.0,
        edges_per_s=400.0,
        energy_j=2.5,
        forward_s=summary,
        backward_s=summary,
        exchange_s=summary,
        optimizer_s=summary,
        resting_memory_bytes=10,
        peak_memory_bytes=30,
        memory_increase_bytes=20,
        metrics=Metrics(name="accuracy", train=1.0, val=0.75, test=0.5, test_std=0.25, per_repeat=EVALUATIONS[:1]),
        workers=[schema.Worker(**WORKER)],
        largest=WORKER,
        samples=SAMPLES,
        evaluations=EVALUATIONS,
        warnings=["noisy"],
    )


def differing_from_default(record: BaseModel) -> list[str]:
    fields = type(record).model_fields
    return [name for name, field in fields.items() if getattr(record, name) != field.default]


def test_every_field_is_read_back(tmp_path: Path) -> None:
    result = complete()
    path = tmp_path / "run" / "results.json"
    files.save_json(result, path)
    assert files.load(Result, path) == result
    raw = json.loads(path.read_text())
    assert set(raw) == set(Result.model_fields)
    assert set(differing_from_default(result)) == set(Result.model_fields) - {"schema_version"}
    assert raw["schema_version"] == schema.SCHEMA_VERSION == 1


def test_the_schema_describes_what_a_name_does_not_say() -> None:
    schema = Result.model_json_schema()
    assert "evaluation excluded" in schema["$defs"]["Sample"]["properties"]["epoch_s"]["description"]
    assert "CSR" in schema["properties"]["prepare_s"]["description"]
    assert all(definition.get("description") for definition in schema["$defs"].values())
    assert schema["properties"]["status"]["enum"] == list(get_args(Status))


def test_summaries_leave_warm_up_out() -> None:
    summary = schema.summary(schema.rounds(SAMPLES, "epoch"))
    assert (summary.median, summary.mad, summary.count) == (8.0, 0.0, 3)
    assert summary.low == 8.0
    assert summary.high == 16.0
    assert schema.summary(schema.rounds(SAMPLES, "backward")).median == 4.0
    assert schema.rounds(SAMPLES, "forward") == [[2.0, 2.0], [4.0]]


def test_one_epoch_counts_even_if_all_are_warm_up() -> None:
    cold = [sample(1, 8.0), sample(2, 4.0, warmup=True)]
    assert schema.summary(schema.rounds(cold, "epoch")).median == 4.0


def test_metrics_are_those_of_the_best_validation_epoch_of_each_repeat() -> None:
    found = schema.metrics(EVALUATIONS, "accuracy")
    assert found is not None
    assert [(best.repeat, best.epoch) for best in found.per_repeat] == [(0, 2), (1, 1)]
    assert (found.train, found.val, found.test) == (0.875, 0.625, 0.5625)
    assert found.test_std == pytest.approx(0.125 / 2**0.5)


def test_without_validation_the_last_epoch_counts() -> None:
    blind = [entry.model_copy(update={"val": None, "test": None}) for entry in EVALUATIONS[:2]]
    found = schema.metrics(blind, "accuracy")
    assert found is not None
    assert (found.per_repeat[0].epoch, found.train) == (2, 0.75)
    assert (found.val, found.test, found.test_std) == (None, None, None)
    assert schema.metrics([], "accuracy") is None


def test_one_repeat_has_no_deviation() -> None:
    found = schema.metrics(EVALUATIONS[:2], "accuracy")
    assert found is not None
    assert found.test_std == 0.0


def test_refresh_draws_everything_from_the_samples() -> None:
    result = complete()
    result.refresh()
    assert (result.largest, result.peak_memory_bytes) == ({name: 3 for name in WORKER if name != "rank"}, 3)
    result.workers = []
    result.refresh()
    assert result.epoch_s == schema.summary(schema.rounds(SAMPLES, "epoch"))
    assert result.optimizer_s == schema.summary(schema.rounds(SAMPLES, "optimizer"))
    assert result.peak_memory_bytes == 2000  # the peak of a warm-up epoch is left out
    assert result.memory_increase_bytes == 1990
    assert result.metrics == schema.metrics(EVALUATIONS, "accuracy")


def test_refresh_of_a_run_that_never_began() -> None:
    result = Result(status="unavailable", backend="cuda", dataset="planetoid", config={})
    result.refresh()
    assert (result.metrics, result.epoch_s, result.peak_memory_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not a result of schema 1"),
        ("[]", "is not a result of schema 1"),
        ('{"status": "ok"}', "is not a result of schema 1"),
    ],
    ids=["missing", "cut off", "no result", "incomplete"],
)
def test_unreadable_results_are_one_sentence(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "results.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(GnnbenchError, match=sentence) as found:
        files.load(Result, path)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("change", [{"schema_version": 2}, {"colour": "red"}, {"status": "fine"}])
def test_another_schema_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({**json.loads(complete().model_dump_json()), **change}))
    with pytest.raises(GnnbenchError, match="is not a result of schema 1"):
        files.load(Result, path)


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, fill_disk: Callable[[], None]) -> None:
    path = tmp_path / "results.json"
    files.save_text("old", path)
    fill_disk()
    with pytest.raises(GnnbenchError, match="cannot be written: No space left on device; choose another --out"):
        files.save_text("new", path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_killed_process_left_of_a_file_is_removed_and_no_other(tmp_path: Path) -> None:
    path, own = tmp_path / "results.json", files.temporary_name("results.json")
    ended = subprocess.Popen(["true"])
    ended.wait()
    by_others = own.replace(str(os.getpid()), str(ended.pid))
    for name in (by_others, f"{by_others}-drawn", own, f"{own}-drawn", ".results.json.elsewhere-1"):
        (tmp_path / name).touch()
    files.save_text("new", path)
    left = {".results.json.elsewhere-1", f"{own}-drawn", path.name}
    assert {each.name for each in tmp_path.iterdir()} == left


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GnnbenchError, match=r"cannot be written: (File exists|Not a directory)"):
        files.save_json(complete(), tmp_path / "file" / "results.json")
