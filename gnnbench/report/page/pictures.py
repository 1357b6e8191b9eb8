"""The pictures of a page: every epoch, phases, memory and curves."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnbench import units
from gnnbench.report import plots
from gnnbench.report.plots import Bars, Line, Panel, Series, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gnnbench.results.schema import Summary

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
        if 0 < min(values) * plots.SPREAD < max(values):
            plots.logarithmic(axes, "x")
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
    return Picture(name, caption, "; ".join(_words(panel)), lambda figure: plots.draw(bare, figure), 3.4, width)


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
