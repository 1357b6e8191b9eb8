"""The pictures of a page: every epoch, phases, memory and curves, thinned to what can be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnbench import units
from gnnbench.report import plots
from gnnbench.report.page import svg
from gnnbench.report.plots import Bars, Panel, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gnnbench.results.schema import Summary

WIDTH = 4.5  # inches: on a phone the letters can still be read
DOTS = 300  # of a row, and half of the points of a curve: beyond that none can be told from its neighbours
LETTERS = 28  # of a name beside an axis
NARROW = 3  # groups of bars, beyond which a picture takes the whole width
Points = Sequence[tuple[float, float]]


class Picture(NamedTuple):
    """A drawing with its name, a sentence on how to read it, and what it shows in words."""

    title: str
    caption: str
    description: str
    draw: Callable[[Figure], None]
    height: float = 2.7
    width: float = WIDTH

    @property
    def wide(self) -> bool:
        """Return whether it takes the whole width of the page."""
        return self.width > WIDTH

    def svg(self, name: str) -> str:
        """An `svg` element whose ids begin with `name`."""
        return svg.inline(self.draw, name, self.title, self.description, (self.width, self.height))


class Strip(NamedTuple):
    """A row of a strip plot: seconds that count, those of warm-up, and the median with its interval."""

    label: str
    counted: Sequence[float]
    warmup: Sequence[float]
    summary: Summary


def strips(title: str, caption: str, rows: Sequence[Strip], label: str = "epoch") -> Picture:
    """Every single time as a dot, one row per backend; a bar and a line for the median and its interval."""
    values = [second for row in rows for second in (*row.counted, *row.warmup, row.summary.high)]
    unit, scale = units.scale(max(row.summary.median for row in rows))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            colour = svg.SERIES[place % len(svg.SERIES)]
            for seconds, hollow in ((row.counted, False), (row.warmup, True)):
                shown = [value / scale for value in thinned(sorted(seconds))]
                _dots(axes, shown, [place + _jitter(number) for number in range(len(shown))], colour, hollow)
            low, median, high = (
                value / scale for value in (row.summary.low, row.summary.median, row.summary.high)
            )
            axes.fill_betweenx([place - 0.36, place + 0.36], low, high, color=colour, alpha=0.25, linewidth=0)
            axes.plot([median, median], [place - 0.36, place + 0.36], color=svg.INK, linewidth=1.6, linestyle="-")
        axes.set_yticks(range(len(rows)), [_short(row.label) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        _time_axis(axes, values, scale)
        axes.set_xlabel(f"{label}, {unit}")
        axes.tick_params(axis="y", length=0)
        axes.grid(alpha=0.35, axis="x")

    words = "; ".join(
        f"{row.label}: median {units.seconds(row.summary.median)}"
        + units.interval(units.seconds, row.summary.low, row.summary.high, ", 95% interval {}")
        for row in rows
    )
    return Picture(title, caption, words, draw, 0.8 + 0.52 * len(rows))


def stacks(title: str, caption: str, rows: Mapping[str, Mapping[str, float]]) -> Picture:
    """Draw what a time is made of: a bar per row, its parts in seconds from left to right as in the legend."""
    parts = list(dict.fromkeys(part for row in rows.values() for part in row))
    unit, scale = units.scale(max(sum(row.values()) for row in rows.values()))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        ends = [0.0] * len(rows)
        for number, part in enumerate(parts):
            lengths = [row.get(part, 0.0) / scale for row in rows.values()]
            colour = svg.SERIES[number % len(svg.SERIES)]
            style: Any = {"facecolor": colour, "edgecolor": svg.PAPER, "linewidth": 1}
            axes.barh(range(len(rows)), lengths, 0.62, ends, label=part, **style)
            ends = [end + length for end, length in zip(ends, lengths, strict=True)]
        for place, end in enumerate(ends):
            _beside(axes, end, place)
        axes.set_xlim(0, 1.14 * max(ends))
        _rows(axes, list(rows), f"{unit}")
        figure.legend(loc="outside lower center", ncols=min(4, len(parts)), frameon=False)

    words = "; ".join(
        f"{name}: " + ", ".join(f"{part} {units.seconds(seconds)}" for part, seconds in row.items())
        for name, row in rows.items()
    )
    return Picture(title, caption, words, draw, 1.0 + 0.42 * len(rows))


def sizes(title: str, caption: str, rows: Mapping[str, int]) -> Picture:
    """Bytes, a bar per row."""
    unit, scale = next(
        (unit, size) for unit, size in units.SIZES.items() if max(rows.values()) >= size or unit == "B"
    )

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        lengths = [size / scale for size in rows.values()]
        axes.barh(range(len(rows)), lengths, 0.62, color=svg.SERIES[: len(rows)], alpha=0.85)
        for place, length in enumerate(lengths):
            _beside(axes, length, place)
        axes.set_xlim(0, 1.14 * max(lengths))
        _rows(axes, list(rows), unit)

    words = "; ".join(f"{name}: {units.size(size)}" for name, size in rows.items())
    return Picture(title, caption, words, draw, 0.7 + 0.42 * len(rows))


def curves(title: str, caption: str, lines: Mapping[str, Points], y_label: str, *, zero: bool = False) -> Picture:
    """Lines over epochs, whose extremes survive the thinning; `zero`: from zero upwards."""

    def draw(figure: Figure) -> None:
        from matplotlib.ticker import MaxNLocator

        axes = figure.subplots()
        for label, points in lines.items():
            x, y = zip(*thinned_line(points), strict=True)
            axes.plot(x, y, label=_short(label), linewidth=1.6, marker="o" if len(points) == 1 else None)
        axes.set(xlabel="epoch", ylabel=y_label)
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
        if zero:
            axes.set_ylim(0, plots.ABOVE * max(y for points in lines.values() for _, y in points) or None)
        axes.grid(alpha=0.35)
        if len(lines) > 1:
            figure.legend(loc="outside lower center", ncols=min(3, len(lines)), frameon=False)

    words = "; ".join(
        f"{label}: from {points[0][1]:.4g} at {points[0][0]:g} to {points[-1][1]:.4g} at {points[-1][0]:g}, "
        f"lowest {min(y for _, y in points):.4g}, highest {max(y for _, y in points):.4g}"
        for label, points in lines.items()
    )
    return Picture(title, caption, words, draw)


def of_panel(panel: Panel | Bars | Timeline, title: str, caption: str) -> Picture:
    """A picture that `--plot` draws too."""
    bare = panel._replace(title="")
    crowded = isinstance(panel, Bars) and len(panel.groups) > NARROW
    width = max(2 * WIDTH, 1.1 * len(panel.groups)) if crowded and isinstance(panel, Bars) else WIDTH
    name = ": ".join(filter(None, (title, panel.title)))
    return Picture(name, caption, "; ".join(_words(panel)), lambda figure: plots.draw(bare, figure), 3.4, width)


def thinned(values: Sequence[float], limit: int = DOTS) -> list[float]:
    """Return the lowest and the highest of sorted values, and those between them at equal shares."""
    if len(values) <= limit:
        return list(values)
    return [values[round(place * (len(values) - 1) / (limit - 1))] for place in range(limit)]


def thinned_line(points: Points, limit: int = DOTS) -> list[tuple[float, float]]:
    """The lowest and the highest of every stretch of a line, in their order, with its ends."""
    if len(points) <= 2 * limit:
        return list(points)
    ends = [round(place * len(points) / limit) for place in range(limit + 1)]
    kept = {0, len(points) - 1}
    for begin, end in pairwise(ends):
        stretch = range(begin, end)
        kept |= {min(stretch, key=lambda at: points[at][1]), max(stretch, key=lambda at: points[at][1])}
    return [points[at] for at in sorted(kept)]


def _words(panel: Panel | Bars | Timeline) -> Iterator[str]:
    if isinstance(panel, Timeline):
        yield f"at most {max(y for _, y in panel.points):.3g} {panel.y_label}"
        return
    if isinstance(panel, Panel):
        for line in panel.lines:
            yield f"{line.label}: " + ", ".join(f"{y:.3g} at {x:g}" for x, y in line.points)
        return
    for place, group in enumerate(panel.groups):
        values = (f"{one.label} {value:.3g}" for one in panel.series if (value := one.values[place]) is not None)
        yield f"{' '.join(group.split())}: {', '.join(values)}"


def _dots(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, hollow: bool) -> None:
    """One path for all: lines of no length, whose round ends are the dots; rings are drawn one by one."""
    if hollow:
        axes.plot(x, y, "o", color=colour, markerfacecolor="none", markersize=3.5, markeredgewidth=0.9)
        return
    gap = [float("nan")] * len(x)
    across = [value for one in zip(x, x, gap, strict=True) for value in one]
    down = [value for one in zip(y, y, gap, strict=True) for value in one]
    axes.plot(across, down, "-", color=colour, linewidth=3.6, solid_capstyle="round")


def _beside(axes: Axes, length: float, place: int) -> None:
    """The length of a bar, after its end."""
    axes.annotate(units.digits(length), (length, place), (4, 0), textcoords="offset points", va="center")


def _short(label: str) -> str:
    """Return the beginning of a name that would leave no room for its picture."""
    return label if len(label) <= LETTERS else f"{label[: LETTERS - 1]}…"


def _jitter(number: int) -> float:
    """Spread over the height of a row, the same each time."""
    return ((number * 0.618034) % 1 - 0.5) * 0.56


def _time_axis(axes: Axes, values: Sequence[float], scale: float) -> None:
    least = min(values, default=inf)
    if 0 < least * plots.SPREAD < max(values):
        from matplotlib.ticker import LogLocator

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")
    else:
        axes.set_xlim(0, 1.05 * max(values) / scale)


def _rows(axes: Axes, labels: Sequence[str], unit: str) -> None:
    axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(unit)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.35, axis="x")
