"""A profile as tables and on a page: the time of an epoch by layer and by op, and what the profiler costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report import run
from gnnbench.report.page import Section, section_of
from gnnbench.report.plots import Picture, of_panel, stacks
from gnnbench.report.tables import Cell, Table, ended

if TYPE_CHECKING:
    from gnnbench.profiling import Op, Profile
    from gnnbench.report.plots import Timeline

ROWS = 20
MARKS = 10  # epochs named in a picture, beyond which some are left out
PARTS = "Means of the profiled epochs."
TENSORS = "Tensors that PyTorch holds; on a CPU only those made since the profiler began."
PHASES = ("load", "forward", "backward", "optimizer", "")
OF_LAYERS = ("forward", "backward")


def tables(profile: Profile) -> list[Table]:
    """Layers, then the ops that take longest, with conditions below."""
    longest, others = profile.ops[:ROWS], profile.ops[ROWS:]
    heading = ["op", "layer", "phase", "calls", "time", *["on the GPU"] * profile.on_gpu, "share"]
    lines = [[*map(Cell, (op.op, op.layer, op.phase)), *_figures(profile, [op])] for op in longest]
    if others:
        name = units.counted(len(others), "other row")
        lines.append([Cell(name), Cell(""), Cell(""), *_figures(profile, others)])
    return [_layers(profile), Table(heading, lines, title="By op", notes=[*_notes(profile)], prose=(0, 1, 2))]


def section(profile: Profile) -> Section:
    """Tell where the time of an epoch goes."""
    return section_of(
        profile,
        tables(profile),
        ["profile", "run.yaml", "--epochs", str(profile.epochs)],
        kind="Profile",
        question="Where does the time of an epoch go?",
        verdict=_verdict(profile),
        tone="plain" if profile.status == "ok" else "bad",
        pictures=[*_pictures(profile)],
    )


def title(profile: Profile) -> str:
    """Model, dataset and backend."""
    return f"{run.title(profile.config, profile.dataset, profile.backend)}: where an epoch goes"


def cost(profile: Profile) -> str:
    """Say in a sentence what the profiler costs; empty where nothing ran."""
    if profile.epoch_s is None or profile.timed_epoch_s is None or profile.slowdown is None:
        return ""
    return (
        f"A profiled epoch takes {units.seconds(profile.epoch_s)}, {units.ratio(profile.slowdown)} the "
        f"{units.seconds(profile.timed_epoch_s)} of one without the profiler, both measured in this run"
    )


def phases(profile: Profile) -> dict[str, float]:
    """Seconds of an epoch by phase."""
    names = dict.fromkeys(PHASES, 0.0)
    for op in profile.ops:
        names[op.phase] += _seconds(profile, op)
    return {name or "between": seconds for name, seconds in names.items() if seconds}


def panels(profile: Profile) -> list[Timeline]:
    """Draw the tensors of the profiled epochs over time, if any."""
    from gnnbench.report.plots import Timeline

    if not profile.memory:
        return []
    told, mib = profile.memory, units.SIZES["MiB"]
    unit, scale = units.scale(told.seconds[-1])
    points = [(time / scale, size / mib) for time, size in zip(told.seconds, told.allocated_bytes, strict=True)]
    named = [(time / scale, f"epoch {number}") for number, time in enumerate(told.epochs_s, start=1)]
    return [Timeline("Memory of tensors", f"time, {unit}", "MiB", points, named[:: 1 + len(named) // MARKS])]


def _layers(profile: Profile) -> Table:
    """One line per layer, in the order in which they run."""
    running = sorted(profile.ops, key=lambda op: (PHASES.index(op.phase), op.layer))
    order = list(dict.fromkeys(op.layer for op in running))
    lines = []
    for layer in order:
        ops = [op for op in profile.ops if op.layer == layer]
        parts = (sum(_seconds(profile, op) for op in ops if op.phase == phase) for phase in OF_LAYERS)
        lines.append(
            [
                Cell(layer or "between phases"),
                *(Cell(units.seconds(part) if part else "–") for part in parts),
                Cell(units.seconds(sum(_seconds(profile, op) for op in ops))),
                Cell(f"{sum(op.share for op in ops):.1%}"),
            ]
        )
    return Table(["layer", *OF_LAYERS, "time", "share"], lines, title=title(profile))


def _figures(profile: Profile, ops: Sequence[Op]) -> list[Cell]:
    calls, share = sum(op.calls for op in ops), sum(op.share for op in ops)
    seconds = [sum(op.time_s for op in ops)] + [sum(op.device_s or 0.0 for op in ops)] * profile.on_gpu
    times = (Cell(units.seconds(each)) for each in seconds)
    return [Cell(f"{calls:,.4g}" if calls else ""), *times, Cell(f"{share:.1%}")]


def _seconds(profile: Profile, op: Op) -> float:
    return (op.device_s or 0.0) if profile.on_gpu else op.time_s


def _notes(profile: Profile) -> Iterator[str]:
    if told := cost(profile):
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
    yield from run.graph(profile.dataset_facts)
    yield from run.machine(profile.environment)
    if profile.trace:
        yield f"Trace: {profile.trace}; open it in https://ui.perfetto.dev"
    yield from (f"Warning: {text}" for text in profile.warnings)


def _verdict(profile: Profile) -> list[str]:
    if not profile.ops:
        return [f"The run ended as {ended(profile.status)}: {profile.reason}."]
    layers: dict[str, float] = {}
    for op in profile.ops:
        layers[op.layer] = layers.get(op.layer, 0.0) + op.share
    layer, first = max(layers, key=lambda name: layers[name]), profile.ops[0]
    where = f" of {first.layer}" * bool(first.layer)
    return [
        f"{layer or 'What lies between phases'} takes {layers[layer]:.0%} of an epoch, more than any other layer; "
        f"of all ops {first.op}{where} takes most, {first.share:.0%}.",
        f"{cost(profile)}.",
    ]


def _pictures(profile: Profile) -> Iterator[Picture]:
    if profile.ops:
        yield stacks("What an epoch is made of", PARTS, {profile.backend: phases(profile)})
    for timeline in panels(profile):
        yield of_panel(timeline, "Memory over time", TENSORS)
