"""One run: its figures, every way it can end, and going on after a stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.nn import GCN

from gnnbench import backends, config, datasets
from gnnbench.backends.base import Prepared
from gnnbench.backends.pyg import Backend as PygBackend
from gnnbench.errors import ConfigError, DatasetError, GnnbenchError, UnsupportedOp
from gnnbench.measure import memory
from gnnbench.results import files, schema
from gnnbench.results.schema import Result
from gnnbench.training import checkpoint
from gnnbench.training.run import Event, resolved, run

SECTIONS: dict[str, dict[str, Any]] = {
    "dataset": {"source": "synthetic", "preset": "cora", "scale": 0.1, "features": 16},
    "model": {"name": "gcn", "hidden": 8},
    "train": {"epochs": 6, "checkpoint_every": 2},
    "backend": {"name": "pyg"},
}


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> datasets.Roots:
    folder = tmp_path_factory.mktemp("cache")
    return datasets.Roots(folder / "data", folder)


def configuration(**sections: dict[str, Any]) -> Any:
    raw = {name: {**content, **sections.get(name, {})} for name, content in SECTIONS.items()}
    return config.validate({**raw, **{key: sections[key] for key in sections.keys() - raw.keys()}}, "test")


def learned(result: Result) -> Any:
    """Return what must not depend on whether a run was interrupted."""
    losses = [(sample.repeat, sample.epoch, sample.loss) for sample in result.samples]
    return losses, result.evaluations, result.metrics


def press_ctrl_c_after(epoch: int, repeat: int = 0) -> Callable[[Event], None]:
    def on_event(event: Event) -> None:
        if event.sample and (event.sample.repeat, event.sample.epoch) == (repeat, epoch):
            signal.raise_signal(signal.SIGINT)

    return on_event


@pytest.mark.parametrize("reason", ["asked", "room"])
def test_malloc_is_left_alone_where_asked_and_where_memory_is_scarce(
    reason: str, roots: datasets.Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason == "room":
        monkeypatch.setattr(memory, "ROOM", 1e6)
    measure = {"allocator": "system" if reason == "asked" else "warm"}
    result = run(configuration(measure=measure), roots=roots, out=None)
    assert "allocator" not in result.environment
    assert not any(sample.keeps_freed for sample in result.samples)


def test_everything_about_a_run_is_in_its_result(roots: datasets.Roots, tmp_path: Path) -> None:
    result = run(
        configuration(train={"repeats": 2}, measure={"warmup": 2, "allocator": "warm"}), roots=roots, out=tmp_path
    )
    assert (result.status, result.reason, result.backend) == ("ok", "", "pyg")
    assert "synthetic" in result.dataset
    assert result.dataset_facts is not None
    assert (result.dataset_facts.features, result.dataset_facts.classes) == (16, 7)
    assert [(sample.repeat, sample.epoch) for sample in result.samples] == [
        (repeat, epoch) for repeat in range(2) for epoch in range(1, 7)
    ]
    assert [sample.warmup for sample in result.samples] == 2 * [True, True, False, False, False, False]
    assert len(result.evaluations) == 12
    assert result.environment["allocator"] == "warm"
    assert result.epoch_s is not None
    assert result.epoch_s.count == 8
    for sample in result.samples:
        assert min(sample.forward_s, sample.backward_s, sample.optimizer_s) > 0
        assert sample.forward_s + sample.backward_s + sample.optimizer_s <= sample.epoch_s
    assert [sample.keeps_freed for sample in result.samples] == [False] + [True] * 11
    assert result.peak_memory_bytes == result.samples[0].peak_memory_bytes
    assert result.resting_memory_bytes is not None
    assert result.memory_increase_bytes == result.peak_memory_bytes - result.resting_memory_bytes
    assert result.prepare_s is not None
    assert result.metrics is not None
    assert [best.repeat for best in result.metrics.per_repeat] == [0, 1]
    assert result.environment["packages"]["torch"] == torch.__version__
    assert files.load(Result, tmp_path / "results.json") == result


def test_set_up_comes_before_warm_up_before_the_figures(roots: datasets.Roots) -> None:
    events: list[Event] = []
    run(configuration(train={"repeats": 2, "eval_every": 4}), roots=roots, out=None, on_event=events.append)
    epochs = ["epoch"] * 6
    assert [event.kind for event in events] == [
        "dataset_loaded", "prepared", *epochs, "repeat_done", *epochs, "repeat_done",
    ]  # fmt: skip
    assert events[1].result.prepare_s is not None
    first = [event for event in events if event.sample and event.sample.repeat == 0]
    assert [event.sample.warmup for event in first if event.sample] == [True] * 2 + [False] * 4
    assert [event.evaluation is not None for event in first] == [False, False, False, True, False, True]


@pytest.mark.parametrize("backend", ["pyg", "isplib"])
def test_a_repeat_equals_a_run_of_its_own_seed(roots: datasets.Roots, backend: str) -> None:
    if reasons := backends.backend_type(backend).unavailable():
        pytest.skip("; ".join(reasons))
    sections: Any = {"backend": {"name": backend}, "model": {"norm": "batch"}}
    both = run(configuration(train={"repeats": 2, "seed": 5}, **sections), roots=roots, out=None)
    alone = run(configuration(train={"seed": 6}, **sections), roots=roots, out=None)
    second = [sample.loss for sample in both.samples if sample.repeat == 1]
    assert second == [sample.loss for sample in alone.samples]
    assert second != [sample.loss for sample in both.samples if sample.repeat == 0]


def test_the_edges_are_freed_once_prepared(roots: datasets.Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    edges: list[weakref.ref[torch.Tensor]] = []

    def prepare(self: PygBackend, model: torch.nn.Module, dataset: datasets.NodeDataset) -> Prepared:
        edges.append(weakref.ref(dataset.edge_index))
        return Prepared(dataset.edge_index.clone(), [])

    def on_event(event: Event) -> None:
        if event.kind == "epoch":
            freed.append(edges[0]() is None)

    freed: list[bool] = []
    monkeypatch.setattr(PygBackend, "prepare", prepare)
    run(configuration(), roots=roots, out=None, on_event=on_event)
    assert freed == [True] * 6


@pytest.mark.parametrize(
    ("stop_at", "precision"),
    [((0, 1), "bf16"), ((0, 3), "float32"), ((0, 6), "float32"), ((1, 4), "float32"), ((1, 5), "bf16")],
    ids=str,
)
def test_a_stopped_run_goes_on_to_the_same_numbers(
    roots: datasets.Roots, tmp_path: Path, stop_at: tuple[int, int], precision: str
) -> None:
    train = {"repeats": 2, "optimizer": "adamw", "precision": precision}
    settings = configuration(train=train, model={"norm": "batch"})
    straight = run(settings, roots=roots, out=tmp_path / "straight")
    repeat, epoch = stop_at
    out = tmp_path / "stopped"
    stopped = run(settings, roots=roots, out=out, on_event=press_ctrl_c_after(epoch, repeat))

    assert stopped.status == "interrupted"
    assert stopped.reason == (
        f"stopped by Ctrl-C after epoch {epoch} of repeat {repeat}; continue with: gnnbench train --resume {out}"
    )
    assert len(stopped.samples) == 6 * repeat + epoch
    assert files.load(Result, out / "results.json") == stopped

    torch.manual_seed(12345)  # another process has other random numbers
    resumed = run(settings, roots=roots, out=out, resume=True)
    assert resumed.status == "ok"
    assert learned(resumed) == learned(straight)
    kept = [torch.load(folder / "best.pt", weights_only=True) for folder in (tmp_path / "straight", out)]
    assert all(torch.equal(tensor, kept[1][name]) for name, tensor in kept[0].items())


def test_the_best_weights_are_kept_for_pygs_own_model(roots: datasets.Roots, tmp_path: Path) -> None:
    settings = configuration(train={"epochs": 30, "lr": 0.1, "repeats": 2})
    result = run(settings, roots=roots, out=tmp_path)
    dataset = datasets.load(settings.dataset, roots)
    model = GCN(16, 8, 2, dataset.num_classes)
    model.load_state_dict(torch.load(tmp_path / "best.pt", weights_only=True))
    outputs = model.eval()(dataset.x, dataset.edge_index)
    chosen = schema.best(result.evaluations)
    assert chosen is not result.evaluations[-1]
    for split in ("train", "val", "test"):
        mask = getattr(dataset, f"{split}_mask")
        assert dataset.score(outputs[mask], dataset.y[mask]) == pytest.approx(getattr(chosen, split))


@pytest.mark.parametrize("backend", ["pyg", "reference", "isplib", "patched"])
def test_products_in_bfloat16_learn_nearly_the_same(roots: datasets.Roots, backend: str) -> None:
    if reasons := backends.backend_type(backend).unavailable():
        pytest.skip("; ".join(reasons))
    exact, rounded = (
        run(
            configuration(train={"precision": precision}, model={"dropout": 0.0}, backend={"name": backend}),
            roots=roots,
            out=None,
        )
        for precision in ("float32", "bf16")
    )
    losses = [[sample.loss for sample in result.samples] for result in (exact, rounded)]
    assert losses[0] != losses[1] == pytest.approx(losses[0], rel=2e-2)


def test_early_stopping_survives_a_stop(roots: datasets.Roots, tmp_path: Path) -> None:
    settings = configuration(train={"epochs": 60, "patience": 4, "lr": 0.05})
    straight = run(settings, roots=roots, out=None)
    assert straight.metrics is not None
    last = straight.samples[-1].epoch
    assert last == straight.metrics.per_repeat[0].epoch + 4 < 60
    run(settings, roots=roots, out=tmp_path, on_event=press_ctrl_c_after(last - 2))
    assert learned(run(settings, roots=roots, out=tmp_path, resume=True)) == learned(straight)


def test_a_killed_run_goes_on_from_its_last_checkpoint(roots: datasets.Roots, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(event: Event) -> None:
        if event.sample and event.sample.epoch == 5:
            raise Killed

    straight = run(configuration(), roots=roots, out=None)
    with pytest.raises(Killed):
        run(configuration(), roots=roots, out=tmp_path, on_event=kill)
    left = files.load(Result, tmp_path / "results.json")
    assert (left.status, len(left.samples)) == ("interrupted", 4)
    assert learned(run(configuration(), roots=roots, out=tmp_path, resume=True)) == learned(straight)


def test_the_first_epochs_after_a_stop_are_warm_up_too(roots: datasets.Roots, tmp_path: Path) -> None:
    settings = configuration(measure={"warmup": 1})
    run(settings, roots=roots, out=tmp_path, on_event=press_ctrl_c_after(3))
    resumed = run(settings, roots=roots, out=tmp_path, resume=True)
    assert [sample.warmup for sample in resumed.samples] == [True, False, False, True, False, False]


def test_a_finished_run_is_only_read(
    roots: datasets.Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(configuration(), roots=roots, out=tmp_path)
    monkeypatch.setattr(datasets, "load", pytest.fail)
    assert run(configuration(), roots=roots, out=tmp_path, resume=True) == done


def test_another_configuration_is_not_resumed(roots: datasets.Roots, tmp_path: Path) -> None:
    run(configuration(), roots=roots, out=tmp_path, on_event=press_ctrl_c_after(2))
    other = configuration(train={"precision": "bf16"}, model={"hidden": 4})
    with pytest.raises(ConfigError) as found:
        run(other, roots=roots, out=tmp_path, resume=True)
    differences = "model.hidden (8 there, 4 here), train.precision ('float32' there, 'bf16' here);"
    assert f"differs in {differences}" in str(found.value)


@pytest.mark.parametrize("out", [None, Path("absent")])
def test_nothing_to_resume(roots: datasets.Roots, tmp_path: Path, out: Path | None) -> None:
    with pytest.raises(ConfigError, match=r"holds no results.json to resume"):
        run(configuration(), roots=roots, out=out and tmp_path / out, resume=True)


def test_a_broken_checkpoint_is_one_sentence(roots: datasets.Roots, tmp_path: Path) -> None:
    run(configuration(), roots=roots, out=tmp_path, on_event=press_ctrl_c_after(2))
    path = tmp_path / checkpoint.CHECKPOINT
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(GnnbenchError, match="is not a readable checkpoint; remove it"):
        run(configuration(), roots=roots, out=tmp_path, resume=True)
    path.unlink()
    assert run(configuration(), roots=roots, out=tmp_path, resume=True).status == "ok"


def test_a_checkpoint_is_never_long_ago(
    roots: datasets.Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on_event(event: Event) -> None:
        if event.sample:
            written.append((tmp_path / checkpoint.CHECKPOINT).exists())

    monkeypatch.setattr(checkpoint, "LONGEST_S", 0.0)
    written: list[bool] = []
    run(configuration(train={"checkpoint_every": 100}), roots=roots, out=tmp_path, on_event=on_event)
    assert written == [False, *[True] * 5]


def test_a_fresh_run_forgets_the_checkpoint_of_an_earlier_one(roots: datasets.Roots, tmp_path: Path) -> None:
    run(configuration(), roots=roots, out=tmp_path)
    once = configuration(train={"checkpoint_every": 0})
    run(once, roots=roots, out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "best.pt"}


def test_the_resolved_configuration_is_read_back_equal() -> None:
    for backend in ("pyg", "isplib"):
        settings = configuration(backend={"name": backend})
        stored = json.loads(json.dumps(resolved(settings)))
        assert resolved(config.validate(stored, "stored")) == stored
        assert stored["train"]["weight_decay"] == 0.0
        assert stored["backend"].keys() == (
            {"name"} if backend == "pyg" else type(settings.backend).model_fields.keys()
        )


def test_a_loss_that_is_no_number_keeps_what_was_measured(roots: datasets.Roots, tmp_path: Path) -> None:
    result = run(configuration(train={"optimizer": "sgd", "lr": 1e30}), roots=roots, out=tmp_path)
    assert result.status == "failed"
    assert "lower train.lr (now 1e+30)" in result.reason
    assert 1 <= len(result.samples) < 6
    assert result.epoch_s is not None
    assert files.load(Result, tmp_path / "results.json") == result


def raising(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(PygBackend, "prepare", prepare)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (UnsupportedOp("GATConv", ["edge_dim"]), "unsupported", "GATConv is not supported: edge_dim"),
        (MemoryError(), "oom", r"the run needs more memory than the .* measure.memory_limit \(90%\)"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "oom", "the run needs more memory"),
        (KeyboardInterrupt(), "interrupted", "stopped by Ctrl-C before the first epoch; continue with"),
    ],
    ids=["unsupported", "MemoryError", "allocator", "Ctrl-C"],
)
def test_expected_failures_are_results(
    roots: datasets.Roots,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: str,
    reason: str,
) -> None:
    raising(error, monkeypatch)
    result = run(configuration(), roots=roots, out=tmp_path)
    assert result.status == status
    assert re.match(reason, result.reason)
    assert result.dataset_facts is not None
    assert files.load(Result, tmp_path / "results.json") == result


def test_an_unavailable_backend_is_a_result_before_any_data_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PygBackend, "unavailable", classmethod(lambda cls: ["no PyG; pip install it"]))
    nowhere = datasets.Roots(tmp_path / "absent", tmp_path / "absent")
    result = run(configuration(), roots=nowhere, out=None)
    assert (result.status, result.dataset) == ("unavailable", "synthetic")
    assert "no PyG; pip install it" in result.reason


@pytest.mark.parametrize("error", [DatasetError("no graph"), ConfigError("bad value"), ZeroDivisionError("bug")])
def test_bad_input_and_bugs_are_raised_and_written_down(
    roots: datasets.Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    raising(error, monkeypatch)
    with pytest.raises(type(error), match=str(error)):
        run(configuration(), roots=roots, out=tmp_path)
    left = files.load(Result, tmp_path / "results.json")
    assert left.status == "failed"
    assert str(error) in left.reason


def test_an_unwritable_folder_is_found_before_anything_is_loaded(
    roots: datasets.Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load", pytest.fail)
    (tmp_path / "file").touch()
    with pytest.raises(GnnbenchError, match="choose another --out"):
        run(configuration(), roots=roots, out=tmp_path / "file")


def test_a_disk_that_fills_up_does_not_end_training(
    roots: datasets.Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fill_disk: Callable[[], None]
) -> None:
    messages = []
    sync = os.fsync

    def on_event(event: Event) -> None:
        if event.kind == "prepared":
            fill_disk()
        if event.sample and event.sample.epoch == 3:
            monkeypatch.setattr(os, "fsync", sync)
        if event.kind == "message":
            messages.append(event.message)

    result = run(configuration(), roots=roots, out=tmp_path, on_event=on_event)
    assert (result.status, len(result.samples)) == ("ok", 6)
    (message,) = messages
    assert message.startswith("no checkpoint after epoch 2: ")
    assert "No space left on device" in message
    assert message in result.warnings


def test_threads_are_set_as_configured(roots: datasets.Roots) -> None:
    before = torch.get_num_threads()
    try:
        result = run(configuration(measure={"threads": before + 1}), roots=roots, out=None)
        assert result.environment["threads"]["torch"] == before + 1
    finally:
        torch.set_num_threads(before)


def test_a_run_outside_the_main_thread_leaves_ctrl_c_alone(roots: datasets.Roots) -> None:
    done: list[Result] = []
    worker = threading.Thread(target=lambda: done.append(run(configuration(), roots=roots, out=None)))
    worker.start()
    worker.join()
    assert done[0].status == "ok"


def test_ctrl_c_is_given_back_after_the_run(roots: datasets.Roots) -> None:
    before = signal.getsignal(signal.SIGINT)
    run(configuration(), roots=roots, out=None, on_event=press_ctrl_c_after(2))
    assert signal.getsignal(signal.SIGINT) is before


TWICE = """
import signal, sys
from pathlib import Path
from gnnbench import config, datasets
from gnnbench.training.run import run

def on_event(event):
    if event.kind == "message":
        print(event.message, flush=True)
        signal.raise_signal(signal.SIGINT)
    if event.sample and event.sample.epoch == 3:
        signal.raise_signal(signal.SIGINT)

settings = config.load(Path(sys.argv[1]))
run(settings, roots=datasets.Roots(Path(sys.argv[2]), Path(sys.argv[2])), out=None, on_event=on_event)
print("reached the end")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_second_ctrl_c_kills_at_once(roots: datasets.Roots, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(resolved(configuration())))
    command = [sys.executable, "-c", TWICE, str(file), str(roots.cache)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGINT
    assert done.stdout == "stopping after this epoch; press Ctrl-C again to quit at once\n"


LIMITED = """
import sys
from pathlib import Path
from gnnbench import config, datasets
from gnnbench.training.run import run
settings = config.load(Path(sys.argv[1]), ["measure.memory_limit=1GiB", "model.hidden=1500000"])
result = run(settings, roots=datasets.Roots(Path(sys.argv[2]), Path(sys.argv[2])), out=Path(sys.argv[3]))
print(result.status, result.reason)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is enforced on Linux")
def test_a_run_beyond_its_memory_limit_is_a_clean_result(roots: datasets.Roots, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(resolved(configuration())))
    command = [sys.executable, "-c", LIMITED, str(file), str(roots.cache), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith("oom the run needs more memory than the 1.00 GiB that measure.memory_limit")
    assert files.load(Result, tmp_path / "out" / "results.json").status == "oom"
