"""Pictures of curves, written as PNG, SVG or PDF; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gnnbench import results
from gnnbench.errors import ConfigError

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


def check(path: Path) -> None:
    """Raise ConfigError if `path` has no suffix of a picture; for before the work that it will show."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a plot is written as {', '.join(FORMATS)}; give the file such a name")


def save(panels: Sequence[Panel], title: str, path: Path) -> None:
    """Draw `panels` side by side.

    Raises:
        ConfigError: the suffix of `path` is unknown.
        GnnbenchError: it cannot be written.
    """
    from matplotlib.figure import Figure

    check(path)
    figure = Figure(figsize=(6.4 * len(panels), 4.4), layout="constrained")
    figure.suptitle(title)
    for panel, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
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
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix.lower()[1:], dpi=150)
    results.save_bytes(picture.getvalue(), path)
