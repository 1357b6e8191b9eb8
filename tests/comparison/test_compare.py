"""Comparing: order, cells, continuing after a kill or Ctrl-C, bad input, a full disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gnnbench import backends
from gnnbench.comparison import stored
from gnnbench.comparison.parity import EXACT
from gnnbench.comparison.process import Job
from gnnbench.comparison.record import Comparison
from gnnbench.comparison.turns import Progress
from gnnbench.config import TrainConfig
from gnnbench.errors import ConfigError, GnnbenchError
from gnnbench.measure import code
from gnnbench.results import files
from gnnbench.results.schema import Result
from tests.support.compare_runner import EPOCHS, Runner, cell, compared, row, run_config


def test_rounds_are_interleaved_and_every_backend_starts_equally_often(tmp_path: Path) -> None:
    runner = Runner()
    compared(tmp_path, runner)
    trained = [name for task, name in runner.jobs if task == "train"]
    assert trained[:3] == ["pyg", "pyg-sparse", "isplib"]
    assert trained[3:6] == ["pyg-sparse", "isplib", "pyg"]
    assert sorted(trained[::3]) == sorted({*trained})
    assert [task for task, _ in runner.jobs[:3]] == ["reference", "parity", "parity"]


@pytest.mark.parametrize("status", ["oom", "unsupported", "unavailable", "failed"])
@pytest.mark.parametrize("task", ["train", "parity"])
def test_a_backend_that_cannot_run_becomes_a_cell_and_is_not_tried_again(
    tmp_path: Path, status: str, task: str
) -> None:
    runner = Runner(isplib=cell(status, task))
    found = compared(tmp_path, runner)
    isplib = row(found, "isplib")
    assert (isplib.status, isplib.reason) == (status, f"is {status}")
    assert isplib.epoch_s is None
    assert runner.jobs.count(("train", "isplib")) == (task == "train")
    assert row(found, "pyg").status == row(found, "pyg-sparse").status == "ok"
    assert found.exit_code == 0


def test_a_reference_that_was_not_asked_for_gets_no_row(tmp_path: Path) -> None:
    runner = Runner(pyg=cell("oom", "reference"), pyg_sparse=cell("unsupported", "reference"))
    found = compared(tmp_path, runner, "isplib")
    assert found.parity.reference == "reference"
    assert found.parity.ok is True
    assert [row.backend for row in found.rows] == ["isplib"]
    assert ("train", "reference") not in runner.jobs


def test_one_backend_with_different_options_is_several_rows(tmp_path: Path) -> None:
    specs, jobs = ["pyg", "isplib", "isplib:transform_first=true:fold_norm=false"], []

    class Watching(Runner):
        def __call__(self, job: Job) -> Result:
            jobs.append((job.task, job.config["backend"]))
            return super().__call__(job)

    told: list[Progress] = []
    found = compared(tmp_path, Watching(), *specs, config=run_config(transform_first=False), on_event=told.append)
    assert [row.backend for row in found.rows] == [*found.parity.backends] == specs
    assert [row.status for row in found.rows] == ["ok"] * 3
    for task in ("parity", "train"):
        options = {tuple(backend.items()) for stage, backend in jobs if stage == task}
        assert (("name", "isplib"), ("transform_first", False)) in options
        assert (("name", "isplib"), ("transform_first", True), ("fold_norm", False)) in options
    assert {event.backend for event in told} == {*specs}
    assert {path.name for path in (tmp_path / "rounds" / "1").iterdir()} == {
        "pyg",
        "isplib",
        "isplib,transform_first=true,fold_norm=false",
    }
    again = Runner()
    assert compared(tmp_path, again, *specs, config=run_config(transform_first=False)) == found
    assert again.jobs == []


def test_recorded_steps_have_a_row_beside_eager_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # so that PyG is to run there too
    trains = []

    class Watching(Runner):
        def __call__(self, job: Job) -> Result:
            trains.append(
                (job.config["backend"]["name"], *(job.config["train"][key] for key in ("device", "cuda_graph")))
            )
            return super().__call__(job)

    settings = run_config().model_copy(update={"train": TrainConfig(epochs=9, cuda_graph=True)})
    found = compared(tmp_path, Watching(), "pyg", "isplib", "isplib:cuda_graph=true", config=settings)
    assert [row.backend for row in found.rows] == [
        "pyg",
        "pyg:cuda_graph=true",
        "isplib",
        "isplib:cuda_graph=true",
    ]
    assert {*trains} == {(name, "cuda", graph) for name in ("pyg", "isplib") for graph in (False, True)}
    assert found.warnings == []
    assert found.rows[1].speedup["pyg"] is not None
    assert compared(tmp_path / "2", Runner(), config=run_config()).config["train"]["device"] == "auto"


def test_products_in_bfloat16_have_a_row_beside_float32(tmp_path: Path) -> None:
    jobs = set()

    class Watching(Runner):
        def __call__(self, job: Job) -> Result:
            jobs.add((job.task, job.config["backend"]["name"], job.config["train"]["precision"]))
            return super().__call__(job)

    settings = run_config().model_copy(update={"train": TrainConfig(epochs=9, precision="bf16")})
    found = compared(tmp_path, Watching(), "pyg", "isplib:precision=float32", config=settings)
    specs = ["pyg", "pyg:precision=bf16", "isplib:precision=float32"]
    assert [row.backend for row in found.rows] == specs
    assert {job for job in jobs if job[0] != "train"} == {
        ("reference", "pyg", "bf16"),  # which computes in float32, and how far bfloat16 moves
        ("parity", "pyg", "bf16"),
        ("parity", "isplib", "float32"),
    }
    assert {job[1:] for job in jobs if job[0] == "train"} == {
        ("pyg", "float32"),
        ("pyg", "bf16"),
        ("isplib", "float32"),
    }
    asked = run_config().model_copy(update={"train": TrainConfig(epochs=9)})
    assert [row.backend for row in compared(tmp_path / "2", Runner(), *specs, config=asked).rows] == specs


def test_recorded_steps_that_learn_something_else_have_no_speedup(tmp_path: Path) -> None:
    class Stale(Runner):
        def __call__(self, job: Job) -> Result:
            self.losses = [3.0, 2.0, 2.0, 2.0] if job.config["train"]["cuda_graph"] else [3.0, 2.0, 1.0, 0.5]
            return super().__call__(job)

    settings = run_config().model_copy(update={"train": TrainConfig(epochs=9)})
    found = compared(tmp_path, Stale(), "pyg", "isplib", "isplib:cuda_graph=true", config=settings)
    assert [row.speedup["pyg"] is None for row in found.rows] == [False, False, True]
    assert found.warnings == [
        "isplib:cuda_graph=true: the loss of epoch 3 is 2, and 1 without cuda_graph; no speedup is given"
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compared(tmp_path_factory.mktemp("whole"), Runner(), rounds=2)


@pytest.mark.parametrize("kill_after", range(9))
def test_a_kill_at_any_moment_loses_no_finished_cell(tmp_path: Path, kill_after: int, whole: Comparison) -> None:
    class Killed(BaseException):
        """Not caught by anything, as a kill is not."""

    first = Runner()

    def dies(job: Job) -> Result:
        if len(first.jobs) == kill_after:
            raise Killed
        return first(job)

    with pytest.raises(Killed):
        compared(tmp_path, dies, rounds=2)  # type: ignore[arg-type]
    stored = files.load(Comparison, tmp_path / "comparison.json")
    assert stored.status == "running"
    second = Runner()
    found = compared(tmp_path, second, rounds=2)
    assert found == whole
    repeated = set(first.jobs) & {job for job in second.jobs if job[0] == "parity"}
    assert not repeated
    trained = [job for job in first.jobs + second.jobs if job[0] == "train"]
    assert len(trained) == 6


def test_ctrl_c_keeps_everything_and_the_same_call_continues(tmp_path: Path) -> None:
    def interrupt(job: Job) -> Result:
        raise KeyboardInterrupt

    runner = Runner(isplib=lambda job: interrupt(job) if job.task == "train" else Runner().good(job))
    found = compared(tmp_path, runner)
    assert (found.status, found.exit_code) == ("interrupted", 1)
    assert row(found, "pyg").status == "pending"
    assert row(found, "pyg").epoch_s is not None
    again = Runner()
    assert compared(tmp_path, again).status == "ok"
    assert ("reference", "pyg") not in again.jobs


def test_more_rounds_and_backends_reuse_what_is_there(tmp_path: Path) -> None:
    compared(tmp_path, Runner(), "pyg", "pyg-sparse", rounds=1)
    runner = Runner()
    found = compared(tmp_path, runner, "pyg", "isplib", rounds=2)
    assert runner.jobs == [
        ("reference", "pyg"),  # its tensors were deleted, and are needed again
        ("parity", "isplib"),
        ("train", "isplib"),
        ("train", "isplib"),
        ("train", "pyg"),
    ]
    assert found.rows[0].round_epoch_s == pytest.approx([0.8, 0.8])
    assert not list(tmp_path.rglob("*.pt"))


def test_other_code_is_judged_and_timed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared(tmp_path, Runner(), "pyg", "isplib", rounds=3)
    monkeypatch.setattr(code, "digest", lambda module="": "rebuilt")
    doubled = Runner()
    doubled.wrong = "isplib"
    found = compared(tmp_path, doubled, "pyg", "isplib", rounds=1)
    assert doubled.jobs == [
        ("reference", "pyg"),
        ("parity", "isplib"),
        ("exact", "pyg"),
        ("train", "pyg"),
        ("train", "isplib"),
    ]
    assert (found.parity.ok, found.exit_code, row(found, "isplib").speedup["pyg"]) == (False, 3, None)
    assert {one.code for one in found.parity.backends.values()} == {"rebuilt"}
    assert [len(stored(tmp_path, name)) for name in ("pyg", "isplib")] == [1, 1]  # none of rounds 2 and 3
    again = Runner()
    assert compared(tmp_path, again, "pyg", "isplib", rounds=1) == found
    assert again.jobs == []


def test_another_package_that_changed_takes_its_own_backend_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = ["1"]
    monkeypatch.setattr(backends, "module_of", lambda name: name if name == "isplib" else "")
    monkeypatch.setattr(code, "digest", lambda module="": module + changed[0] * bool(module))
    compared(tmp_path, Runner(), "pyg", "isplib", rounds=1)
    changed[0] = "2"
    runner = Runner()
    compared(tmp_path, runner, "pyg", "isplib", rounds=1)
    assert runner.jobs == [("reference", "pyg"), ("parity", "isplib"), ("train", "isplib")]


def test_what_an_older_version_left_is_measured_anew(tmp_path: Path) -> None:
    whole = compared(tmp_path, Runner(), "pyg", "isplib", rounds=1)
    for path in tmp_path.rglob("*.json"):
        known = json.loads(path.read_text())
        known.pop("code", None)
        if path.name == "comparison.json":
            for new in ("checked", "unchecked"):
                del known["parity"][new]
            for one in known["parity"]["backends"].values():
                for new in ("code", "rounds", "losses", "unchecked"):
                    del one[new]
        path.write_text(json.dumps(known))
    assert files.load(Comparison, tmp_path / "comparison.json").parity.ok is True
    runner = Runner()
    assert compared(tmp_path, runner, "pyg", "isplib", rounds=1) == whole
    assert len(runner.jobs) == 4


def test_a_reference_farther_from_float64_than_a_backend_is_not_its_fault(tmp_path: Path) -> None:
    runner = Runner()
    runner.wrong = "pyg"
    found = compared(tmp_path, runner, "pyg", "isplib", rounds=1)
    assert found.parity.ok
    assert found.parity.checked[-1] == EXACT
    assert runner.jobs[:3] == [("reference", "pyg"), ("parity", "isplib"), ("exact", "pyg")]
    runner.jobs.clear()
    more = compared(tmp_path, runner, "pyg", "isplib", rounds=2)
    assert (more.parity.ok, more.parity.checked) == (True, found.parity.checked)
    assert runner.jobs == [("reference", "pyg"), ("exact", "pyg"), ("train", "isplib"), ("train", "pyg")]


def test_a_backend_that_goes_wrong_while_it_is_timed_is_red(tmp_path: Path) -> None:
    runner = Runner()
    runner.wrong_in_the_end = "isplib"
    found = compared(tmp_path, runner, rounds=2)
    assert (found.parity.ok, found.exit_code) == (False, 3)
    assert found.parity.reason == "isplib: after the last epoch of round 1: logits in evaluation: off by 5e-01"
    assert [one.ok for one in found.parity.backends["isplib"].rounds] == [False, False]
    assert row(found, "isplib").speedup["pyg"] is None
    assert row(found, "pyg-sparse").speedup["pyg"] is not None
    assert compared(tmp_path, Runner(), rounds=2) == found  # read back, not run again


def test_losses_are_compared_where_nothing_is_dropped(tmp_path: Path) -> None:
    def other(job: Job) -> Result:
        runner = Runner()
        runner.losses = [3.0, 2.0, 1.5, 0.5]
        return runner.good(job)

    drawn = compared(tmp_path / "drawn", Runner(isplib=other), "pyg", "isplib", rounds=1)
    assert drawn.parity.ok is True
    settings = run_config()
    model = settings.model.model_copy(update={"dropout": 0.0, "attention_dropout": 0.0})
    settings = settings.model_copy(update={"model": model})
    found = compared(tmp_path / "exact", Runner(isplib=other), "pyg", "isplib", rounds=1, config=settings)
    assert (found.parity.ok, found.exit_code) == (False, 3)
    assert found.parity.reason == "isplib: the loss of epoch 3 is 1.5, and 1 with pyg"
    assert row(found, "isplib").speedup["pyg"] is None
    right = Runner()
    assert compared(tmp_path / "right", right, "pyg", "isplib", rounds=1, config=settings).parity.ok is True
    assert ("rounding", "pyg") not in right.jobs

    def rounded(job: Job) -> Result:
        runner = Runner()
        runner.losses = [3.0, 2.0, 1.2, 0.5] if job.task == "rounding" else runner.losses
        return runner.good(job)

    runner = Runner(pyg=rounded, isplib=other)
    found = compared(tmp_path / "rounded", runner, "pyg", "isplib", rounds=2, config=settings)
    assert (found.parity.ok, found.parity.rounded) == (True, [3.0, 2.0, 1.2, 0.5])
    assert row(found, "isplib").speedup["pyg"] is not None
    assert runner.jobs.count(("rounding", "pyg")) == 1


def test_another_configuration_in_the_same_folder_is_refused_and_force_replaces_it(tmp_path: Path) -> None:
    compared(tmp_path, Runner(), "pyg", rounds=1)
    with pytest.raises(ConfigError, match=r"train\.epochs differs.*--force"):
        compared(tmp_path, Runner(), "pyg", rounds=1, epochs=9)
    runner = Runner()
    assert compared(tmp_path, runner, "pyg", rounds=1, epochs=9, force=True).epochs == 9
    assert ("train", "pyg") in runner.jobs


def test_a_folder_with_another_file_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "comparison.json").write_text('{"schema_version": 0}')
    with pytest.raises(GnnbenchError, match="is not a comparison"):
        compared(tmp_path, Runner())


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        (("pyg", "isplb"), {}, "did you mean 'isplib'"),
        (("pyg", "isplib:fold_norn=false"), {}, r"backend\.fold_norn: unknown key; did you mean 'fold_norm'"),
        (("pyg", "isplib:fold_norm"), {}, "backend 'isplib:fold_norm': write it as NAME:key=value"),
        (("pyg",), {"rounds": 0}, "0 rounds"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(tmp_path: Path, names: Any, options: Any, words: str) -> None:
    runner = Runner()
    with pytest.raises(ConfigError, match=words):
        compared(tmp_path, runner, *names, **options)
    assert not runner.jobs


def test_rewrites_reach_the_backends_that_take_them(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def note(job: Job) -> Result:
        seen[job.config["backend"]["name"]] = job.config["backend"]
        return Runner().good(job)

    compared(tmp_path, Runner(pyg=note, isplib=note), "pyg", "isplib", config=run_config(fold_norm=False))
    assert seen == {"pyg": {"name": "pyg"}, "isplib": {"name": "isplib", "fold_norm": False}}


def test_all_backends_run_the_same_epochs_once_per_round(tmp_path: Path) -> None:
    found = compared(tmp_path, Runner(), "pyg", rounds=1)
    train = found.config["train"]
    assert (train["repeats"], train["patience"], train["epochs"]) == (1, 0, EPOCHS)


def test_progress_tells_what_comes_next(tmp_path: Path) -> None:
    seen: list[Progress] = []
    compared(tmp_path, Runner(), "pyg", "isplib", rounds=2, on_event=seen.append)
    assert [(event.stage, event.backend) for event in seen][1:4] == [
        ("parity check", "isplib"),
        ("round 1 of 2", "pyg"),
        ("round 1 of 2", "isplib"),
    ]
    assert [event.done for event in seen] == list(range(6))
    assert seen[0].total == 6


def test_an_unwritable_folder_is_one_sentence_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    runner = Runner()
    with pytest.raises(GnnbenchError, match="cannot be written"):
        compared(tmp_path / "file" / "out", runner)
    assert not runner.jobs


def test_a_full_disk_is_one_sentence_and_leaves_what_was_written(
    tmp_path: Path, fill_disk: Callable[[], None]
) -> None:
    compared(tmp_path, Runner(), "pyg", rounds=1)
    before = (tmp_path / "comparison.json").read_bytes()
    fill_disk()
    with pytest.raises(GnnbenchError, match="No space left on device; choose another --out"):
        compared(tmp_path, Runner(), "pyg", rounds=2)
    assert (tmp_path / "comparison.json").read_bytes() == before
