"""Pictures of curves and bars, written as PNG, SVG or PDF; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gnnbench import results
from gnnbench.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")


class Line(NamedTuple):
    """One curve; `marked` is the x of a point to point out."""

    label: str
    points: Sequence[tuple[float, float]]
    marked: float | None = None


class Panel(NamedTuple):
    """Curves over shared axes; x counts doublings."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]


class Series(NamedTuple):
    """One bar per group, None for none; `ends` are those of its interval."""

    label: str
    values: Sequence[float | None]
    ends: Sequence[tuple[float, float] | None]


class Bars(NamedTuple):
    """Bars side by side in groups, on a logarithmic axis, each with its value above it."""

    title: str
    y_label: str
    groups: Sequence[str]
    series: Sequence[Series]


def check(path: Path) -> None:
    """Raise ConfigError if `path` has no suffix of a picture; for before the work that it will show."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a plot is written as {', '.join(FORMATS)}; give the file such a name")


def save(panels: Sequence[Panel | Bars], title: str, *paths: Path) -> None:
    """Draw `panels` side by side.

    Raises:
        ConfigError: the suffix of a path is unknown.
        GnnbenchError: it cannot be written.
    """
    from matplotlib.figure import Figure

    for path in paths:
        check(path)
    widths = [max(6.4, 1.3 * len(panel.groups)) if isinstance(panel, Bars) else 6.4 for panel in panels]
    figure = Figure(figsize=(sum(widths), 4.4), layout="constrained")
    figure.suptitle(title)
    all_axes = figure.subplots(1, len(panels), squeeze=False, width_ratios=widths)[0]
    for panel, axes in zip(panels, all_axes, strict=True):
        if isinstance(panel, Bars):
            _bars(panel, axes)
        else:
            _curves(panel, axes)
    for path in paths:
        picture = io.BytesIO()
        figure.savefig(picture, format=path.suffix.lower()[1:], dpi=150)
        results.save_bytes(picture.getvalue(), path)


def _curves(panel: Panel, axes: Axes) -> None:
    for line in panel.lines:
        x, y = zip(*sorted(line.points), strict=True)
        (drawn,) = axes.plot(x, y, marker="o", label=line.label)
        if line.marked is not None:
            axes.axvline(line.marked, color=drawn.get_color(), linestyle=":")
    widths = sorted({x for line in panel.lines for x, _ in line.points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, [f"{width:g}" for width in widths])
    axes.set_ylim(bottom=0)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axes.grid(alpha=0.3)
    if panel.lines:
        axes.legend()


def _bars(panel: Bars, axes: Axes) -> None:
    width = 0.8 / len(panel.series)
    values = [value for one in panel.series for value in one.values if value]
    bottom, top = min(values) / 2, max(values) * 3
    for place, one in enumerate(panel.series):
        left = (place - (len(panel.series) - 1) / 2) * width
        drawn = [
            (group + left, value, ends)
            for group, (value, ends) in enumerate(zip(one.values, one.ends, strict=True))
            if value
        ]
        x, heights, _ = zip(*drawn, strict=True) if drawn else ((), (), ())
        container = axes.bar(x, heights, width * 0.92, label=one.label)
        axes.bar_label(container, [f"{value:.3g}" for value in heights], fontsize=7, padding=6)
        for at, value, ends in drawn:
            if ends:
                error = [[max(0.0, value - ends[0])], [max(0.0, ends[1] - value)]]
                axes.errorbar(at, value, error, color="black", capsize=3, linewidth=1)
    axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    axes.set_xticks(range(len(panel.groups)), panel.groups)
    axes.set(title=panel.title, ylabel=panel.y_label)
    axes.grid(alpha=0.3, axis="y")
    axes.set_axisbelow(True)
    axes.legend()
