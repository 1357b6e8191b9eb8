"""Pictures of curves and bars for files and for pages; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import base64
import io
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from gnnbench import units
from gnnbench.errors import ConfigError
from gnnbench.results import files
from gnnbench.stats import Floats, Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import FigureBase

    from gnnbench.results.schema import Summary

FORMATS = (".png", ".svg", ".pdf")
LETTERS_PER_INCH = 10  # of a title
LETTERS_PER_TICK = 12  # likewise, of what stands below bars
ABREAST = 2  # panels at most; more fall into rows
ABOVE = 1.06  # the top of an axis from zero, over the highest value: else half of its mark is cut off
SPREAD = 20  # largest value over the smallest, from which on curves are drawn on a logarithmic axis
UPRIGHT = 6  # names below an axis, beyond which they are turned
CROWDED = 3  # series of bars, beyond which their numbers stand upright
WIDTH = 4.5  # inches: on a phone the letters can still be read
LETTERS = 28  # of a name beside an axis
MANY = 12  # points of a curve, beyond which its ends and extremes are told
NARROW = 3  # groups of bars, beyond which a picture takes the whole width
COLOURS = ("#0b6bcb", "#c2410c", "#047857", "#7c3aed", "#a16207", "#be185d", "#0e7490", "#52525b")
DASHES = ("-", "--", "-.", ":") * 2  # so that lines are told apart without their colours
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gnnbench",  # the same figures give the same page
    "text.parse_math": False,  # a name may have dollar signs
    "font.size": 9,
    "axes.formatter.useoffset": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
NO_METADATA: Any = dict.fromkeys(("Date", "Creator", "Format", "Type"))
ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML and HTML
Value = float | Interval
Points = Sequence[tuple[float, Value]]


class Line(NamedTuple):
    """One curve; `marks` are x to point out, each with a word or none."""

    label: str
    points: Points
    marks: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Panel:
    """Curves over shared axes.

    All x that occur are equally far apart, and have `names` if there are any; or, where `linear`, they are on an
    axis of their own, and y does not begin at zero unless `zero`.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    names: Mapping[float, str] = field(default_factory=dict)
    linear: bool = False
    zero: bool = True
    level: bool = False  # every value holds until the next, and x is a time; else a linear x is a whole number

    def draw(self, axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        every = sorted({x for line in self.lines for x, _ in line.points})
        places = {x: x if self.linear else place for place, x in enumerate(every)}
        for line in self.lines:
            x, values = zip(*sorted(line.points, key=itemgetter(0)), strict=True)
            y, _, error = _columns(values)
            at, marker = [places[one] for one in x], "o" if len(x) == 1 or not self.linear else None
            style = "steps-post" if self.level else "default"
            (drawn,) = axes.plot(at, y, marker=marker, label=line.label, drawstyle=style)
            colour = drawn.get_color()
            if self.level:
                axes.fill_between(at, y, step="post", color=colour, alpha=0.25, linewidth=0)
            if error.any():
                axes.errorbar(at, y, error, fmt="none", color=colour, capsize=3)
            for mark, word in line.marks:
                place = places.get(mark, mark)
                axes.axvline(place, color=colour, linestyle=":")
                axes.text(place, 0.99, f" {word}", transform=axes.get_xaxis_transform(), fontsize=7, va="top")
        if self.names:
            named = {places[x]: name for x, name in self.names.items() if name}
            axes.set_xticks([*named], [*named.values()], rotation=45 if len(named) > UPRIGHT else 0)
        elif self.linear:
            axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=not self.level))
        else:
            axes.set_xticks(range(len(places)), [f"{x:g}" for x in places])
        axes.set_xlabel(self.x_label)
        y, high, _ = _columns(y for line in self.lines for _, y in line.points)
        if 0 < y.min() * SPREAD < y.max() and not self.linear:
            logarithmic(axes, "y")
        elif self.zero:
            axes.set_ylim(0, ABOVE * high.max() or None)
        axes.grid(alpha=0.3)

    def words(self) -> Iterator[str]:
        """Tell its points, of long curves the ends and extremes."""
        if self.level:
            every = _columns(y for line in self.lines for _, y in line.points)[0]
            yield f"at most {every.max():.3g} {self.y_label}"
            return
        for line in self.lines:
            places, values = zip(*line.points, strict=True)
            points = [*zip(places, _columns(values)[0], strict=True)]
            if self.linear and len(points) > MANY:
                points = [points[0], min(points, key=itemgetter(1)), max(points, key=itemgetter(1)), points[-1]]
            yield f"{line.label}: " + ", ".join(f"{y:.4g} at {x:g}" for x, y in dict.fromkeys(points))


class Series(NamedTuple):
    """One bar per group, None for none."""

    label: str
    values: Sequence[Value | None]


@dataclass(frozen=True)
class Bars:
    """Bars in groups, each with its value above it: side by side, logarithmic or from zero, or stacked."""

    title: str
    y_label: str
    groups: Sequence[str]
    series: Sequence[Series]
    stacked: bool = False
    logarithmic: bool = True

    def draw(self, axes: Axes) -> None:
        (self._above if self.stacked else self._beside)(axes)
        axes.set_xticks(range(len(self.groups)), self.groups)
        axes.grid(alpha=0.3, axis="y")

    def _beside(self, axes: Axes) -> None:
        width = 0.8 / len(self.series)
        every, highest, _ = _columns(value for one in self.series for value in one.values if value)
        for place, one in enumerate(self.series):
            left = (place - (len(self.series) - 1) / 2) * width
            known = {place + left: value for place, value in enumerate(one.values) if value}
            values, _, error = _columns(known.values())
            thin: Any = {"yerr": error, "capsize": 3, "error_kw": {"linewidth": 1}} if error.any() else {}
            bars = axes.bar([*known], values, width * 0.92, label=one.label, **thin)
            labels = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values]
            turned = 90 if len(self.series) > CROWDED else 0
            axes.bar_label(bars, labels, fontsize=7, padding=2, rotation=turned)
        if self.logarithmic:
            logarithmic(axes, "y")
            axes.set_ylim(every.min() / 2, every.max() * 4)
        else:
            axes.set_ylim(0, 1.15 * highest.max())

    def _above(self, axes: Axes) -> None:
        tops = np.zeros(len(self.groups))
        for one in self.series:
            heights = _columns(value or 0.0 for value in one.values)[0]
            axes.bar(range(len(tops)), heights, 0.7, tops, label=one.label)
            tops = tops + heights
        for place, top in enumerate(tops):
            axes.text(place, top, f"{top:.3g}", ha="center", va="bottom", fontsize=7)
        axes.set_ylim(0, 1.1 * max(tops))

    def words(self) -> Iterator[str]:
        for place, group in enumerate(self.groups):
            known = {one.label: value for one in self.series if (value := one.values[place]) is not None}
            figures = zip(known, _columns(known.values())[0], strict=True)
            told = ", ".join(f"{label} {value:.3g}" for label, value in figures)
            yield f"{' '.join(group.split())}: {told} {self.y_label}"


class Strip(NamedTuple):
    """A row of a strip plot: seconds that count, those of warm-up, and the median with its interval."""

    label: str
    counted: Sequence[float]
    warmup: Sequence[float]
    summary: Summary


@dataclass(frozen=True)
class Strips:
    """Every single time as a dot, one row per backend; a bar and a line for the median and its interval."""

    rows: Sequence[Strip]
    what: str = "epoch"
    title: str = ""
    y_label: str = ""

    def draw(self, axes: Axes) -> None:
        values = [second for row in self.rows for second in (*row.counted, *row.warmup, row.summary.high)]
        unit, scale = units.scale(max(row.summary.median for row in self.rows))
        for place, row in enumerate(self.rows):
            colour = COLOURS[place % len(COLOURS)]
            for seconds, face in ((row.counted, colour), (row.warmup, "none")):
                # spread over the height of a row, the same each time
                heights = [place + ((number * 0.618034) % 1 - 0.5) * 0.56 for number in range(len(seconds))]
                dots = [second / scale for second in seconds]
                axes.plot(dots, heights, "o", color=colour, mfc=face, ms=3.5, mew=0.9, rasterized=True)
            low, median, high = (end / scale for end in (row.summary.low, row.summary.median, row.summary.high))
            axes.fill_betweenx([place - 0.36, place + 0.36], low, high, color=colour, alpha=0.25, linewidth=0)
            axes.plot([median, median], [place - 0.36, place + 0.36], color="black", linewidth=1.6, linestyle="-")
        axes.set_yticks(range(len(self.rows)), [_short(row.label) for row in self.rows])
        axes.set_ylim(len(self.rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"{self.what}, {unit}")
        axes.grid(alpha=0.35, axis="x")
        if 0 < min(values) * SPREAD < max(values):
            logarithmic(axes, "x")
        else:
            axes.set_xlim(0, 1.05 * max(values) / scale)

    def words(self) -> Iterator[str]:
        for row in self.rows:
            interval = units.interval(units.seconds, row.summary.low, row.summary.high, ", 95% interval {}")
            yield f"{row.label}: median {units.seconds(row.summary.median)}{interval}"


Chart = Panel | Bars | Strips


def check(path: Path) -> None:
    """Raise ConfigError if `path` has no suffix of a picture; for before the work that it will show."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a plot is written as {', '.join(FORMATS)}; give the file such a name")


def save(panels: Sequence[Chart], title: str, *paths: Path) -> None:
    """Draw `panels` in rows.

    Raises:
        ConfigError: the suffix of a path is unknown.
        GnnbenchError: it cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    for path in paths:
        check(path)
    rows = [panels[at : at + ABREAST] for at in range(0, len(panels), ABREAST)]
    inches = max(sum(map(_inches, row)) for row in rows)
    figure = Figure(figsize=(inches, 4.8 * len(rows)), layout="constrained")
    figure.suptitle(textwrap.fill(title, int(LETTERS_PER_INCH * inches)))
    for row, line in zip(rows, figure.subfigures(len(rows), 1, squeeze=False)[:, 0], strict=True):
        subfigures = line.subfigures(1, len(row), squeeze=False, width_ratios=[*map(_inches, row)])[0]
        for panel, subfigure in zip(row, subfigures, strict=True):
            draw(panel, subfigure)
    for path in paths:
        picture, kind = io.BytesIO(), path.suffix.lower()[1:]
        with rc_context({"svg.hashsalt": "gnnbench"}):  # the same figures give the same file
            figure.savefig(picture, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
        files.save_bytes(picture.getvalue(), path)


def _inches(panel: Chart) -> float:
    if not isinstance(panel, Bars):
        return 6.4
    longest = max((len(line) for group in panel.groups for line in group.splitlines()), default=0)
    return max(6.4, max(1.3, (longest + 1) / LETTERS_PER_TICK) * len(panel.groups))


def draw(panel: Chart, figure: FigureBase) -> None:
    """Put one panel on a figure or a subfigure, whose layout is constrained."""
    axes = figure.subplots()
    panel.draw(axes)
    axes.set(title=panel.title, ylabel=panel.y_label)
    axes.set_axisbelow(True)
    labels = axes.get_legend_handles_labels()[1]
    if len(labels) > (isinstance(panel, Panel) and panel.linear):
        longest = max(map(len, labels)) + 6  # with its mark
        fitting = int(LETTERS_PER_INCH * _inches(panel) / longest)
        figure.legend(loc="outside lower center", ncols=max(1, min(3, fitting)), frameon=False)


def logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make the scale of an axis logarithmic, with plain numbers."""
    from matplotlib.ticker import LogLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


def _columns(values: Iterable[Value]) -> tuple[Floats, Floats, Floats]:
    """Values [N], the upper ends of their intervals [N], and lengths of error bars below and above [2, N]."""
    every = [each if isinstance(each, Interval) else Interval(each, each, each) for each in values]
    value, low, high = np.array(every, dtype=float).reshape(-1, 3).T
    return value, high, np.maximum(0.0, (value - low, high - value))


class Picture(NamedTuple):
    """A panel on a page, with its name and a sentence on how to read it."""

    name: str
    caption: str
    panel: Chart

    @property
    def title(self) -> str:
        return ": ".join(filter(None, (self.name, self.panel.title)))

    @property
    def description(self) -> str:
        return "; ".join(self.panel.words())

    @property
    def wide(self) -> bool:
        """Return whether it takes the whole width of the page."""
        return isinstance(self.panel, Bars) and len(self.panel.groups) > NARROW

    @property
    def source(self) -> str:
        """The picture itself as the address of an image, SVG with dots as pixels."""
        from cycler import cycler
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        width, height = 2 * WIDTH if self.wide else WIDTH, 3.4
        if isinstance(self.panel, Bars):
            width = max(width, 1.1 * len(self.panel.groups) * self.wide)
        elif isinstance(self.panel, Strips):
            height = 0.8 + 0.52 * len(self.panel.rows)
        cycle = cycler(color=COLOURS) + cycler(linestyle=DASHES)
        with rc_context({**STYLE, "axes.prop_cycle": cycle}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # which the reader's fonts may have
            figure, out = Figure(figsize=(width, height), layout="constrained"), io.BytesIO()
            draw(replace(self.panel, title=""), figure)
            figure.savefig(out, format="svg", dpi=200, transparent=True, metadata=NO_METADATA)
        text = ILLEGAL.sub("\ufffd", out.getvalue().decode())
        return f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}"


def stacks(rows: Mapping[str, Mapping[str, float]]) -> Bars:
    """Draw what a time is made of: a bar per row, its parts in seconds one above the other."""
    unit, scale = units.scale(max(sum(row.values()) for row in rows.values()))
    names = dict.fromkeys(name for row in rows.values() for name in row)
    series = [Series(name, [row.get(name, 0.0) / scale for row in rows.values()]) for name in names]
    return Bars("", unit, [name.replace(":", "\n") for name in rows], series, stacked=True)


def sizes(rows: Mapping[str, int]) -> Bars:
    """Draw bytes, a bar per row."""
    series = Series("", [size / units.SIZES["MiB"] for size in rows.values()])
    return Bars("", "MiB", [name.replace(":", "\n") for name in rows], [series], logarithmic=False)


def curves(lines: Mapping[str, Points], y_label: str, *, zero: bool = False) -> Panel:
    """Draw lines over epochs; `zero`: from zero upwards."""
    drawn = [Line(_short(label), points) for label, points in lines.items()]
    return Panel("", "epoch", y_label, drawn, linear=True, zero=zero)


def _short(label: str) -> str:
    """Return the beginning of a name that would leave no room for its picture."""
    return label if len(label) <= LETTERS else f"{label[: LETTERS - 1]}…"
