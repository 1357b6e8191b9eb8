"""A profile on a page: where the time of an epoch goes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gnnbench.report import figures
from gnnbench.report import profile as report
from gnnbench.report.page.pictures import Picture, of_panel, stacks
from gnnbench.report.page.section import Grid, Section

if TYPE_CHECKING:
    from gnnbench.profiling import Profile

PARTS = "Means of the profiled epochs."
TENSORS = "Tensors that PyTorch holds; on a CPU only those made since the profiler began."


def section(profile: Profile) -> Section:
    """A profile."""
    layers, ops = report.tables(profile)
    words = ["gnnbench", "profile", "run.yaml", "--epochs", str(profile.epochs)]
    return Section(
        kind="Profile",
        title=report.title(profile),
        question="Where does the time of an epoch go?",
        verdict=_verdict(profile),
        tone="plain" if profile.status == "ok" else "bad",
        advice=profile.warnings,
        grids=[Grid(layers), Grid(replace(ops, notes=()))],
        pictures=[*_pictures(profile)],
        conditions=[note for note in ops.notes if not note.startswith("Warning: ")],
        environment=profile.environment,
        config=profile.config,
        command=shlex.join(words),
    )


def _verdict(profile: Profile) -> list[str]:
    if not profile.ops:
        return [f"The run ended as {figures.ended(profile.status)}: {profile.reason}."]
    layers: dict[str, float] = {}
    for op in profile.ops:
        layers[op.layer] = layers.get(op.layer, 0.0) + op.share
    layer, first = max(layers, key=lambda name: layers[name]), profile.ops[0]
    where = f" of {first.layer}" * bool(first.layer)
    return [
        f"{layer or 'What lies between phases'} takes {layers[layer]:.0%} of an epoch, more than any other layer; "
        f"of all ops {first.op}{where} takes most, {first.share:.0%}.",
        f"{report.cost(profile)}.",
    ]


def _pictures(profile: Profile) -> Iterator[Picture]:
    if profile.ops:
        yield stacks("What an epoch is made of", PARTS, {profile.backend: report.phases(profile)})
    for timeline in report.panels(profile):
        yield of_panel(timeline, "Memory over time", TENSORS)
