"""Profiles as tables and pages: the time of an epoch by layer and by op, and what the profiler costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

from gnnbench import profiling, units
from gnnbench.kinds import ResultKind, run
from gnnbench.profiling import Op
from gnnbench.report.page import Section, section_of
from gnnbench.report.plots import Line, Panel, Picture, stacks
from gnnbench.report.tables import Table, ended
from gnnbench.stats import grouped

ROWS = 20
MARKS = 10  # epochs named in a picture, beyond which some are left out
TENSORS = "Tensors that PyTorch holds; on a CPU only those made since the profiler began."
PHASES = ("load", "forward", "backward", "optimizer", "")
OF_LAYERS = ("forward", "backward")


class Profile(ResultKind, profiling.Profile):
    """Where the time of an epoch goes; a line of its frame is an op of a layer."""

    mark = "slowdown"
    file = "profile.json"
    frame = "ops"
    view = run.TrainView


def tables(profile: profiling.Profile) -> list[Table]:
    """Layers, then the ops that take longest, with conditions below."""
    longest, others = profile.ops[:ROWS], profile.ops[ROWS:]
    rows = [{"op": op.op, "layer": op.layer, "phase": op.phase, **_figures(profile, [op])} for op in longest]
    if others:
        name = units.counted(len(others), "other row")
        rows.append({"op": name, "layer": "", "phase": "", **_figures(profile, others)})
    return [_layers(profile), Table.of(rows, title="By op", notes=[*_notes(profile)], prose=(0, 1, 2))]


def section(profile: profiling.Profile) -> Section:
    """Tell where the time of an epoch goes."""
    return section_of(
        profile,
        tables(profile),
        ["profile", "run.yaml", "--epochs", str(profile.epochs)],
        question="Where does the time of an epoch go?",
        verdict=_verdict(profile),
        tone="plain" if profile.status == "ok" else "bad",
        pictures=[*_pictures(profile)],
    )


def title(profile: profiling.Profile) -> str:
    """Model, dataset and backend."""
    return f"{run.title(profile.config, profile.dataset, profile.backend)}: where an epoch goes"


def _cost(profile: profiling.Profile) -> str:
    """Say in a sentence what the profiler costs; empty where nothing ran."""
    if profile.epoch_s is None or profile.timed_epoch_s is None or profile.slowdown is None:
        return ""
    return (
        f"A profiled epoch takes {units.seconds(profile.epoch_s)}, {units.ratio(profile.slowdown)} the "
        f"{units.seconds(profile.timed_epoch_s)} of one without the profiler, both measured in this run"
    )


def panels(profile: profiling.Profile) -> list[Panel]:
    """Draw the tensors of the profiled epochs over time, if any."""
    if not profile.memory:
        return []
    told, mib = profile.memory, units.SIZES["MiB"]
    unit, scale = units.scale(told.seconds[-1])
    points = [(time / scale, size / mib) for time, size in zip(told.seconds, told.allocated_bytes, strict=True)]
    named = [(time / scale, f"epoch {number}") for number, time in enumerate(told.epochs_s, start=1)]
    line = Line("tensors", points, named[:: 1 + len(named) // MARKS])
    return [Panel("Memory of tensors", f"time, {unit}", "MiB", [line], linear=True, level=True)]


def _layers(profile: profiling.Profile) -> Table:
    """One line per layer, in the order in which they run."""
    running = sorted(profile.ops, key=lambda op: (PHASES.index(op.phase), op.layer))
    rows = []
    for layer, ops in grouped(running, attrgetter("layer")).items():
        times = {phase: sum(_seconds(profile, op) for op in ops if op.phase == phase) for phase in OF_LAYERS}
        rows.append(
            {
                "layer": layer or "between phases",
                **{phase: units.seconds(seconds) if seconds else "–" for phase, seconds in times.items()},
                "time": units.seconds(sum(_seconds(profile, op) for op in ops)),
                "share": f"{sum(op.share for op in ops):.1%}",
            }
        )
    return Table.of(rows, title=title(profile))


def _figures(profile: profiling.Profile, ops: Sequence[Op]) -> dict[str, str]:
    calls = sum(op.calls for op in ops)
    on_gpu = units.seconds(sum(op.device_s or 0.0 for op in ops))
    return {
        "calls": f"{calls:,.4g}" if calls else "",
        "time": units.seconds(sum(op.time_s for op in ops)),
        **({"on the GPU": on_gpu} if profile.on_gpu else {}),
        "share": f"{sum(op.share for op in ops):.1%}",
    }


def _seconds(profile: profiling.Profile, op: Op) -> float:
    return (op.device_s or 0.0) if profile.on_gpu else op.time_s


def _notes(profile: profiling.Profile) -> Iterator[str]:
    if told := _cost(profile):
        slower = profile.slowdown is None or profile.slowdown >= 1
        why = (
            "ops that are called often look slower than they are, and these times are no benchmark"
            if slower
            else "that it is not slower shows how far times vary here; close other programs, or give more --epochs"
        )
        yield f"{told}: {why}"
    mean = f"Times and calls are of an epoch, the mean of {units.counted(profile.epochs, 'profiled one')}"
    yield f"{mean}; an op counts with what it calls, and gradients with the layer that they are of"
    if profile.on_gpu:
        yield "Layers and shares are of the time of kernels on the GPU"
    if profile.loading_s is not None:
        made = f"Making the batches of an epoch took {units.seconds(profile.loading_s)}"
        if profile.config["batch"].get("prefetch"):
            made += " in a thread of its own, which the profiler does not see; load is waiting for it"
        yield made
    if profile.memory:
        peak = units.size(profile.memory.peak_bytes)
        yield f"Tensors of the profiled epochs take up to {peak} at once"
    yield from run.kernels(profile.bindings)
    if profile.trace:
        yield f"Trace: {profile.trace}; open it in https://ui.perfetto.dev"
    yield from run.circumstances(profile)


def _verdict(profile: profiling.Profile) -> list[str]:
    if not profile.ops:
        return [f"The run ended as {ended(profile.status)}: {profile.reason}."]
    layers = {name: sum(op.share for op in ops) for name, ops in grouped(profile.ops, attrgetter("layer")).items()}
    layer, first = max(layers, key=lambda name: layers[name]), profile.ops[0]
    where = f" of {first.layer}" * bool(first.layer)
    return [
        f"{layer or 'What lies between phases'} takes {layers[layer]:.0%} of an epoch, more than any other layer; "
        f"of all ops {first.op}{where} takes most, {first.share:.0%}.",
        f"{_cost(profile)}.",
    ]


def _pictures(profile: profiling.Profile) -> Iterator[Picture]:
    phases = {phase: sum(_seconds(profile, op) for op in profile.ops if op.phase == phase) for phase in PHASES}
    if times := {phase or "between": seconds for phase, seconds in phases.items() if seconds}:
        of_epochs = "Means of the profiled epochs."
        yield Picture("What an epoch is made of", of_epochs, stacks({profile.backend: times}))
    for panel in panels(profile):
        yield Picture("Memory over time", TENSORS, panel)
