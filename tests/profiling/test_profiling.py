"""A profile tells the whole of an epoch apart, by layer and op, and what the profiler itself costs."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent
from torch.nn import Linear, ModuleList, Sequential

import gnnbench
from gnnbench import profiling
from gnnbench.api import _options as configs
from gnnbench.backends import cuda
from gnnbench.errors import ConfigError
from gnnbench.kinds import profile as report
from gnnbench.ops.kernels import Kernels
from gnnbench.profiling import Profile, check
from gnnbench.report import page
from tests.support.commands import run

SMALL = ("--dataset", "synthetic:cora:0.05", "--set", "model.hidden=8", "--set", "measure.warmup=1")
MANY = "synthetic:pattern:0.001"
pytestmark = pytest.mark.usefixtures("folder")


def profiled(backend: str, dataset: str = "synthetic:cora:0.05", **set: Any) -> Profile:
    """A profile of two epochs; underscores stand for the dots of keys."""
    keys = {key.replace("_", ".", 1): value for key, value in set.items()}
    shape = {"model.hidden": 8, "measure.warmup": 1, **keys}
    return gnnbench.profile(backend=backend, dataset=dataset, epochs=2, set=shape, out="out")


def seconds(profile: Profile, **wanted: str) -> float:
    """Add up an epoch, in ops whose fields begin with the words."""
    return sum(
        op.time_s for op in profile.ops if all(getattr(op, name).startswith(word) for name, word in wanted.items())
    )


@pytest.mark.parametrize("backend", ["pyg", "isplib", "cuda"])
def test_an_epoch_is_told_apart_by_layer_and_op(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.Backend, "kernels", Kernels)  # in plain PyTorch, for an interpreter takes its time
    profile = profiled(backend)
    assert profile.status == "ok"
    assert profile.slowdown == profile.epoch_s / profile.timed_epoch_s
    assert math.isclose(sum(op.share for op in profile.ops), 1.0)
    assert 0.1 * profile.epoch_s < seconds(profile) < 1.01 * profile.epoch_s  # the clock starts before it
    for layer in ("convs.0", "convs.1", "loss"):
        assert seconds(profile, layer=layer, phase="forward") > 0
        assert seconds(profile, layer=layer, phase="backward") > 0
    assert seconds(profile, layer="optimizer", op="Optimizer.step") > 0
    assert not seconds(profile, phase="load")
    ours = {(op.phase, op.layer, op.op): op.calls for op in profile.ops if op.op.startswith("gnnbench::")}
    if backend == "pyg":
        assert not ours
        assert seconds(profile, layer="convs.0", op="aten::linear") > 0
    else:
        assert ours["forward", "convs.1", "gnnbench::spmm_scaled"] == 1
        assert ours["backward", "convs.1", "gnnbench::spmm_scaled_grad_x"] == 1
    assert profile.memory is not None
    assert profile.memory.peak_bytes == max(profile.memory.allocated_bytes) > 0
    assert profile.memory.seconds == sorted(profile.memory.seconds)
    assert len(profile.memory.epochs_s) == 2


@pytest.mark.parametrize(
    "set",
    [
        {"dataset": MANY, "batch_kind": "graphs", "batch_size": 4},
        {"batch_kind": "neighbors", "batch_size": 2, "batch_fanouts": [3, 3]},
        {"dataset_task": "links", "batch_kind": "links", "batch_size": 50},
    ],
    ids=["graphs", "neighbors", "links"],
)
@pytest.mark.parametrize("prefetch", [0, 1])
def test_loading_batches_is_a_part(set: dict[str, Any], prefetch: int) -> None:
    profile = profiled("isplib", **set, batch_prefetch=prefetch)
    assert seconds(profile, phase="load", layer="batches") > 0
    assert profile.loading_s
    made = {(op.phase, op.op) for op in profile.ops}
    makers = {("load", f"gnnbench::{name}") for name in ("sample", "collate", "negatives")}
    assert bool(made & makers) == (not prefetch)
    assert bool(seconds(profile, phase="backward", layer="decoder")) == ("dataset_task" in set)
    assert sum(op.calls for op in profile.ops if op.op.startswith("Optimizer.step")) > 1
    words = " ".join(report.tables(profile)[1].notes)
    assert ("a thread of its own" in words) == bool(prefetch)
    assert "batches" in [row[0].text for row in report.tables(profile)[0].rows]


def test_the_verb_writes_tables_trace_and_pictures(folder: Path) -> None:
    files = ("--trace", "t.json.gz", "--plot", "m.svg", "--csv", "o.csv", "--markdown", "p.md", "--out", "p")
    output = run("profile", *SMALL, "--backend", "isplib", "--epochs", "2", *files)
    assert output.code == 0, output.stderr
    assert "A profiled epoch takes" in output.stdout
    assert "both measured in this run" in " ".join(output.stdout.split())
    assert "other rows" in output.stdout
    trace = json.loads(gzip.decompress((folder / "t.json.gz").read_bytes()))["traceEvents"]
    names = [event.get("name") for event in trace]
    assert names.count("epoch") == 2
    assert {"phase: forward", "layer: convs.0", "gnnbench::spmm"} <= {*names}
    assert "<svg" in (folder / "m.svg").read_text()
    profile = gnnbench.load_result("p")
    assert isinstance(profile, Profile)
    assert len((folder / "o.csv").read_text().splitlines()) == 1 + len(profile.ops) == 1 + len(profile.to_frame())
    html = page.html([profile])
    assert "Where does the time of an epoch go?" in html
    assert html.count("<img") == 2


def test_its_json_and_exit_codes(no_gpu: None) -> None:
    output = run("profile", *SMALL, "--epochs", "1", "--json")
    assert output.code == 0
    assert Profile.model_validate_json(output.stdout).epochs == 1
    absent = run("profile", *SMALL, "--backend", "cuda")
    assert (absent.code, absent.stdout) == (1, "")
    assert absent.stderr.startswith("gnnbench: backend 'cuda' is unavailable")
    for options, words in (
        (["--epochs", "0"], "needs at least one, found 0"),
        (["--trace", "trace.txt"], "a trace is written as .json or .json.gz"),
        (["--set", "train.cuda_graph=true"], "profile without it"),
        (["--plot", "memory.txt"], "a plot is written as"),
    ):
        output = run("profile", *SMALL, *options)
        assert output.code == 2
        assert words in output.stderr


def test_problems_are_listed_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        check(configs.load(None), 0, Path("trace"))
    assert len(error.value.problems) == 2


def test_layers_are_ranges_and_what_lies_within_has_no_hooks() -> None:
    inner = Sequential(Linear(2, 2))
    model = torch.nn.Module()
    model.convs, model.drop = ModuleList([inner]), Linear(2, 2)
    with profiling.layers(model):
        assert [bool(module._forward_hooks) for module in (model, inner, inner[0], model.drop)] == [
            True,
            True,
            False,
            True,
        ]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def event(name: str, thread: int, start: float, end: float, **facts: Any) -> FunctionEvent:
    made = FunctionEvent(len(name), name, thread, start, end, use_device="cuda", **facts)
    made.sequence_nr = facts.get("sequence_nr", -1)
    return made


def test_a_backward_pass_in_a_thread_of_its_own_counts_with_its_layers() -> None:
    """Profile as on a GPU: kernels count with the op that started them, and waiting for the thread does not."""
    spmm = event("gnnbench::spmm", 1, 12, 18, sequence_nr=7)
    spmm.append_kernel("row_kernel", 0, 30)
    step = event("_SpmmBackward", 2, 42, 88, sequence_nr=7, fwd_thread=1, scope=1)
    gradient = event("gnnbench::spmm_grad_x", 2, 45, 85)
    gradient.append_kernel("row_kernel", 0, 70)
    events = EventList(
        [
            event("epoch", 1, 0, 100),
            event("phase: forward", 1, 10, 20),
            event("layer: convs.0", 1, 11, 19),
            spmm,
            event("phase: backward", 1, 30, 95),
            event("autograd::engine::evaluate_function: _SpmmBackward", 2, 40, 90),
            step,
            gradient,
            event("row_kernel", 0, 20, 50, device_type=DeviceType.CUDA),
            event("elsewhere", 3, 200, 210),
        ],
        use_device="cuda",
    )
    events._build_tree()
    rows = {(row.phase, row.layer, row.op): row for row in profiling.ops(events, 1, on_gpu=True)}
    between = "(between ops)"
    microseconds = {place: round(row.time_s * 1e6) for place, row in rows.items()}
    assert microseconds == {
        ("", "", between): 25,
        ("forward", "loss", between): 2,
        ("forward", "convs.0", between): 2,
        ("forward", "convs.0", "gnnbench::spmm"): 6,
        ("backward", "gradients", between): 15,
        ("backward", "convs.0", "gnnbench::spmm_grad_x"): 40,
        ("backward", "convs.0", "_SpmmBackward"): 10,
    }
    assert sum(microseconds.values()) == 100
    assert rows["backward", "convs.0", "gnnbench::spmm_grad_x"].device_s == pytest.approx(70e-6)
    assert rows["forward", "convs.0", "gnnbench::spmm"].share == pytest.approx(0.3)


def test_memory_over_time_keeps_its_peak_when_thinned() -> None:
    points = [(float(time), 5 + (time == 777)) for time in range(10_000)]
    thinned = profiling.thinned(points, limit=100)
    assert len(thinned) == 100
    assert max(size for _, size in thinned) == 6
    assert thinned[-1][0] == 9999
    assert profiling.thinned(points[:100], limit=100) == points[:100]
