"""Pictures of curves and bars for files and for pages; matplotlib is loaded when one is drawn."""

from __future__ import annotations

import base64
import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gnnbench import units
from gnnbench.errors import ConfigError
from gnnbench.results import files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

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
Points = Sequence[tuple[float, float]]


class Line(NamedTuple):
    """One curve; `marks` are x to point out, each with a word or none; `ends` those of y's interval, by x."""

    label: str
    points: Sequence[tuple[float, float]]
    marks: Sequence[tuple[float, str]] = ()
    ends: Mapping[float, tuple[float, float]] = {}


class Panel(NamedTuple):
    """Curves over shared axes.

    All x that occur are equally far apart, and have `names` if there are any; or, where `linear`, they are whole
    numbers on an axis of their own, and y does not begin at zero unless `zero`.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    names: Mapping[float, str] = {}
    spread: float = SPREAD
    linear: bool = False
    zero: bool = True


class Series(NamedTuple):
    """One bar per group, None for none; `ends` are those of its interval."""

    label: str
    values: Sequence[float | None]
    ends: Sequence[tuple[float, float] | None]


class Bars(NamedTuple):
    """Bars in groups, each with its value above it: side by side, logarithmic or from zero, or stacked."""

    title: str
    y_label: str
    groups: Sequence[str]
    series: Sequence[Series]
    stacked: bool = False
    logarithmic: bool = True


class Timeline(NamedTuple):
    """A level over time, and times to point out, each with its name."""

    title: str
    x_label: str
    y_label: str
    points: Sequence[tuple[float, float]]
    marks: Sequence[tuple[float, str]]


def check(path: Path) -> None:
    """Raise ConfigError if `path` has no suffix of a picture; for before the work that it will show."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"{path}: a plot is written as {', '.join(FORMATS)}; give the file such a name")


def save(panels: Sequence[Panel | Bars | Timeline], title: str, *paths: Path) -> None:
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
        parts = line.subfigures(1, len(row), squeeze=False, width_ratios=[*map(_inches, row)])[0]
        for panel, part in zip(row, parts, strict=True):
            draw(panel, part)
    for path in paths:
        picture, kind = io.BytesIO(), path.suffix.lower()[1:]
        with rc_context({"svg.hashsalt": "gnnbench"}):  # the same figures give the same file
            figure.savefig(picture, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
        files.save_bytes(picture.getvalue(), path)


def _inches(panel: Panel | Bars | Timeline) -> float:
    if not isinstance(panel, Bars):
        return 6.4
    longest = max((len(line) for group in panel.groups for line in group.splitlines()), default=0)
    return max(6.4, max(1.3, (longest + 1) / LETTERS_PER_TICK) * len(panel.groups))


def draw(panel: Panel | Bars | Timeline, part: FigureBase) -> None:
    """Put one panel on a figure or a part of it, whose layout is constrained."""
    axes = part.subplots()
    if isinstance(panel, Bars):
        (_stacks if panel.stacked else _bars)(panel, axes)
        axes.set_xticks(range(len(panel.groups)), panel.groups)
        axes.grid(alpha=0.3, axis="y")
    elif isinstance(panel, Timeline):
        _level(panel, axes)
    else:
        _curves(panel, axes)
    axes.set(title=panel.title, ylabel=panel.y_label)
    axes.set_axisbelow(True)
    labels = axes.get_legend_handles_labels()[1]
    if len(labels) > (isinstance(panel, Panel) and panel.linear):
        longest = max(map(len, labels)) + 6  # with its mark
        fitting = int(LETTERS_PER_INCH * _inches(panel) / longest)
        part.legend(loc="outside lower center", ncols=max(1, min(3, fitting)), frameon=False)


def _curves(panel: Panel, axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    every = sorted({x for line in panel.lines for x, _ in line.points})
    places = {x: x if panel.linear else place for place, x in enumerate(every)}
    for line in panel.lines:
        x, y = zip(*sorted(line.points), strict=True)
        marker = "o" if len(x) == 1 or not panel.linear else None
        (drawn,) = axes.plot([places[one] for one in x], y, marker=marker, label=line.label)
        if line.ends:
            own = [(one, (value, value)) for one, value in zip(x, y, strict=True)]  # where there is no interval
            low, high = zip(*(line.ends.get(*each) for each in own), strict=True)
            at, colour = [places[one] for one in x], drawn.get_color()
            axes.errorbar(at, y, _error(y, low, high), fmt="none", color=colour, capsize=3)
        for mark, word in line.marks:
            axes.axvline(places[mark], color=drawn.get_color(), linestyle=":")
            axes.text(places[mark], 0.99, f" {word}", transform=axes.get_xaxis_transform(), fontsize=7, va="top")
    if panel.names:
        named = {places[x]: name for x, name in panel.names.items() if name}
        axes.set_xticks([*named], [*named.values()], rotation=45 if len(named) > UPRIGHT else 0)
    elif panel.linear:
        axes.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    else:
        axes.set_xticks(range(len(places)), [f"{x:g}" for x in places])
    axes.set_xlabel(panel.x_label)
    values = [y for line in panel.lines for _, y in line.points]
    highest = max([*values, *(high for line in panel.lines for _, high in line.ends.values())])
    if 0 < min(values) * panel.spread < max(values) and not panel.linear:
        logarithmic(axes, "y")
    elif panel.zero:
        axes.set_ylim(0, ABOVE * highest or None)
    axes.grid(alpha=0.3)


def _error(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[list[float]]:
    """Lengths of error bars below and above values, as matplotlib takes them."""
    below = [max(0.0, value - end) for value, end in zip(values, low, strict=True)]
    return [below, [max(0.0, end - value) for value, end in zip(values, high, strict=True)]]


def _level(panel: Timeline, axes: Axes) -> None:
    x, y = zip(*panel.points, strict=True)
    (drawn,) = axes.step(x, y, where="post", linewidth=1)
    axes.fill_between(x, y, step="post", color=drawn.get_color(), alpha=0.25, linewidth=0)
    for time, name in panel.marks:
        axes.axvline(time, color=drawn.get_color(), linestyle=":")
        axes.text(time, 1.1 * max(y), f" {name}", fontsize=7, va="top")
    axes.set_xlabel(panel.x_label)
    axes.set_ylim(0, 1.12 * max(y))
    axes.grid(alpha=0.3)


def _bars(panel: Bars, axes: Axes) -> None:
    width = 0.8 / len(panel.series)
    values = [value for one in panel.series for value in one.values if value]
    for place, one in enumerate(panel.series):
        left = (place - (len(panel.series) - 1) / 2) * width
        drawn = [
            (group + left, value, ends or (value, value))
            for group, (value, ends) in enumerate(zip(one.values, one.ends, strict=True))
            if value
        ]
        x, heights, ends = zip(*drawn, strict=True) if drawn else ((), (), ())
        yerr = _error(heights, *zip(*ends, strict=True)) if any(one.ends) else None
        bars = axes.bar(x, heights, width * 0.92, yerr=yerr, label=one.label, capsize=3, error_kw={"linewidth": 1})
        labels = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in heights]
        axes.bar_label(bars, labels, fontsize=7, padding=2, rotation=90 if len(panel.series) > CROWDED else 0)
    if panel.logarithmic:
        logarithmic(axes, "y")
        axes.set_ylim(min(values) / 2, max(values) * 4)
    else:
        axes.set_ylim(0, 1.15 * max(values + [high for one in panel.series for _, high in filter(None, one.ends)]))


def _stacks(panel: Bars, axes: Axes) -> None:
    tops = [0.0] * len(panel.groups)
    for one in panel.series:
        heights = [value or 0.0 for value in one.values]
        axes.bar(range(len(tops)), heights, 0.7, tops, label=one.label)
        tops = [top + height for top, height in zip(tops, heights, strict=True)]
    for place, top in enumerate(tops):
        axes.text(place, top, f"{top:.3g}", ha="center", va="bottom", fontsize=7)
    axes.set_ylim(0, 1.1 * max(tops))


def logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make the scale of an axis logarithmic, with plain numbers."""
    from matplotlib.ticker import LogLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")


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

    @property
    def source(self) -> str:
        """The picture itself as the address of an image, SVG with dots as pixels."""
        from cycler import cycler
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        cycle = cycler(color=COLOURS) + cycler(linestyle=DASHES)
        with rc_context({**STYLE, "axes.prop_cycle": cycle}), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph")  # which the reader's fonts may have
            figure, out = Figure(figsize=(self.width, self.height), layout="constrained"), io.BytesIO()
            self.draw(figure)
            figure.savefig(out, format="svg", dpi=200, transparent=True, metadata=NO_METADATA)
        text = ILLEGAL.sub("\ufffd", out.getvalue().decode())
        return f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}"


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
            colour = COLOURS[place % len(COLOURS)]
            for seconds, face in ((row.counted, colour), (row.warmup, "none")):
                heights = [place + _jitter(number) for number in range(len(seconds))]
                dots = [second / scale for second in seconds]
                axes.plot(dots, heights, "o", color=colour, mfc=face, ms=3.5, mew=0.9, rasterized=True)
            low, median, high = (end / scale for end in (row.summary.low, row.summary.median, row.summary.high))
            axes.fill_betweenx([place - 0.36, place + 0.36], low, high, color=colour, alpha=0.25, linewidth=0)
            axes.plot([median, median], [place - 0.36, place + 0.36], color="black", linewidth=1.6, linestyle="-")
        _rows(axes, [row.label for row in rows], f"{label}, {unit}")
        if 0 < min(values) * SPREAD < max(values):
            logarithmic(axes, "x")
        else:
            axes.set_xlim(0, 1.05 * max(values) / scale)

    words = "; ".join(
        f"{row.label}: median {units.seconds(row.summary.median)}"
        + units.interval(units.seconds, row.summary.low, row.summary.high, ", 95% interval {}")
        for row in rows
    )
    return Picture(title, caption, words, draw, 0.8 + 0.52 * len(rows))


def stacks(title: str, caption: str, rows: Mapping[str, Mapping[str, float]]) -> Picture:
    """Draw what a time is made of: a bar per row, its parts in seconds one above the other."""
    unit, scale = units.scale(max(sum(row.values()) for row in rows.values()))
    parts = dict.fromkeys(part for row in rows.values() for part in row)
    series = [
        Series(part, [row.get(part, 0.0) / scale for row in rows.values()], [None] * len(rows)) for part in parts
    ]
    return of_panel(Bars("", unit, _below(rows), series, stacked=True), title, caption)


def sizes(title: str, caption: str, rows: Mapping[str, int]) -> Picture:
    """Draw bytes, a bar per row."""
    series = Series("", [size / units.SIZES["MiB"] for size in rows.values()], [None] * len(rows))
    return of_panel(Bars("", "MiB", _below(rows), [series], logarithmic=False), title, caption)


def curves(title: str, caption: str, lines: Mapping[str, Points], y_label: str, *, zero: bool = False) -> Picture:
    """Draw lines over epochs; `zero`: from zero upwards."""
    drawn = [Line(_short(label), points) for label, points in lines.items()]
    return of_panel(Panel("", "epoch", y_label, drawn, linear=True, zero=zero), title, caption)


def of_panel(panel: Panel | Bars | Timeline, title: str, caption: str) -> Picture:
    """A picture that `--plot` draws too."""
    bare = panel._replace(title="")
    crowded = isinstance(panel, Bars) and len(panel.groups) > NARROW
    width = max(2 * WIDTH, 1.1 * len(panel.groups)) if crowded and isinstance(panel, Bars) else WIDTH
    name = ": ".join(filter(None, (title, panel.title)))
    return Picture(name, caption, "; ".join(_words(panel)), lambda figure: draw(bare, figure), 3.4, width)


def _words(panel: Panel | Bars | Timeline) -> Iterator[str]:
    if isinstance(panel, Timeline):
        yield f"at most {max(y for _, y in panel.points):.3g} {panel.y_label}"
        return
    if isinstance(panel, Panel):
        for line in panel.lines:
            points = line.points
            if panel.linear and len(points) > MANY:
                points = [points[0], min(points, key=itemgetter(1)), max(points, key=itemgetter(1)), points[-1]]
            yield f"{line.label}: " + ", ".join(f"{y:.4g} at {x:g}" for x, y in dict.fromkeys(points))
        return
    for place, group in enumerate(panel.groups):
        values = (f"{one.label} {value:.3g}" for one in panel.series if (value := one.values[place]) is not None)
        yield f"{' '.join(group.split())}: {', '.join(values)} {panel.y_label}"


def _below(names: Iterable[str]) -> list[str]:
    """Names as they stand below bars, options on lines of their own."""
    return [name.replace(":", "\n") for name in names]


def _short(label: str) -> str:
    """Return the beginning of a name that would leave no room for its picture."""
    return label if len(label) <= LETTERS else f"{label[: LETTERS - 1]}…"


def _jitter(number: int) -> float:
    """Spread over the height of a row, the same each time."""
    return ((number * 0.618034) % 1 - 0.5) * 0.56


def _rows(axes: Axes, labels: Sequence[str], unit: str) -> None:
    axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(unit)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.35, axis="x")
