"""Tables: cells are built once, then drawn for the terminal, a notebook, Markdown or LaTeX; records become CSV."""

from __future__ import annotations

import csv
import html as escaping
import io
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from gnnbench import units
from gnnbench.results import schema

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

    from gnnbench.benchmarks.records import Time
    from gnnbench.results.schema import Ratio, Summary

PIPED_WIDTH = 100
STATUS = {"oom": "out of memory", "pending": "not run"}


class Cell(NamedTuple):
    """A value, of several lines perhaps, and a last line that qualifies it, such as its interval."""

    text: str
    below: str = ""


NOTHING = Cell("–")
Cells = Mapping[str, Cell | str | int]  # of a row by heading; numbers are counts


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings; the first column names the row."""

    heading: Sequence[str]  # one per column; a line break is kept on the terminal
    rows: Sequence[Sequence[Cell]]  # each as long as `heading`
    title: str = ""  # what was measured, and on what
    notes: Sequence[str] = ()  # sentences below the table
    prose: Sequence[int] = (0,)  # columns of words, which are set flush left and may wrap

    @classmethod
    def of(cls, rows: Iterable[Cells], **others: Any) -> Table:
        """The table of rows that give their cells by heading, each row under all headings of the first."""
        every = [*rows]
        return cls([*every[0]] if every else [""], [[*map(_cell, row.values())] for row in every], **others)


def facts(rows: Iterable[Sequence[str | int]], **others: Any) -> Table:
    """A table without headings, of names, values and perhaps remarks."""
    cells = [[*map(_cell, row)] for row in rows]
    columns = max(map(len, cells), default=2)
    return Table([""] * columns, cells, prose=(0, columns - 1), **others)


def _cell(value: Cell | str | int) -> Cell:
    if isinstance(value, Cell):
        return value
    return Cell(units.count(value) if isinstance(value, int) else value)


def ended(status: str) -> str:
    """A status in words."""
    return STATUS.get(status, status)


def time_cell(time: Time | Summary | None, times: float = 1.0) -> Cell:
    """A median above its interval, of so many `times` what was measured."""
    if time is None:
        return NOTHING
    low, median, high = (times * seconds for seconds in (time.low, time.median, time.high))
    return Cell(units.seconds(median), units.interval(units.seconds, low, high))


def ratio_cell(gain: Ratio | None) -> Cell:
    """How many times faster, above its interval."""
    return Cell(units.ratio(gain.ratio), units.interval(units.ratio, gain.low, gain.high)) if gain else NOTHING


def prepare_cell(prepare_s: float | None, epochs: int | None) -> Cell:
    """Tell what preparation took, above the epochs that pay it back, if they are known."""
    if prepare_s is None:
        return NOTHING
    return Cell(units.seconds(prepare_s), "" if epochs is None else units.counted(epochs, "epoch"))


def row_time(row: Any) -> Cell:
    """The time of a row of a benchmark, or what became of it."""
    return time_cell(row.time_s) if row.time_s else Cell(ended(row.status))


def console(stream: TextIO) -> Console:
    """A terminal as it is, or plain text of a fixed width in a file or pipe; `NO_COLOR` is respected."""
    from rich.console import Console

    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def show(table: Table, to: Console) -> None:
    """Print a table; columns that do not fit side by side follow in a second table of the same rows."""
    if table.title:
        to.print(table.title, style="bold")
    for columns in _fitting(table, to):
        to.print()
        to.print(drawn(table, columns))
    if table.notes:
        to.print()
    for note in table.notes:  # a long path stays in one piece
        wrapped = textwrap.fill(
            note, to.width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
        to.print(wrapped, soft_wrap=True)


def drawn(table: Table, columns: Sequence[int]) -> RichTable:
    """Some columns of a table, for the terminal."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    picture = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    picture.show_header = any(table.heading)
    for column in columns:
        prose = column in table.prose
        picture.add_column(
            table.heading[column], justify="left" if prose else "right", no_wrap=not prose, overflow="fold"
        )
    for row in table.rows:
        cells = [row[column] for column in columns]
        picture.add_row(*(Text(cell.text).append(f"\n{cell.below}" * bool(cell.below), "dim") for cell in cells))
    return picture


def leading(table: Table, to: Console) -> list[int]:
    """Columns from the left that fit side by side with no word cut or broken; none where not even two do."""
    counts = range(len(table.heading), 1, -1)
    return next(([*range(count)] for count in counts if _width(table, range(count), to) <= to.width), [])


def _width(table: Table, columns: Sequence[int], to: Console) -> int:
    """Letters that columns take side by side with no word cut or broken."""
    from rich.measure import Measurement

    unbounded = to.options.update(width=10_000)
    return Measurement.get(to, unbounded, drawn(table, columns)).maximum


def _fitting(table: Table, to: Console) -> Iterator[list[int]]:
    """Groups of columns that fit the width, the first column in each."""
    chosen = [0]
    for column in range(1, len(table.heading)):
        too_wide = _width(table, [*chosen, column], to) > to.width
        if len(chosen) > 1 and too_wide and column not in table.prose:
            yield chosen
            chosen = [0]
        chosen.append(column)
    yield chosen


def markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown."""
    rules = ["---" if column in table.prose else "---:" for column in range(len(table.heading))]
    rows = [[heading.replace("\n", " ") for heading in table.heading], rules]
    rows += [["<br>".join(filter(None, cell)) for cell in row] for row in table.rows]
    cells = ([cell.replace("|", "\\|").replace("\n", "<br>") for cell in row] for row in rows)
    lines = [f"| {' | '.join(row)} |" for row in cells]
    blocks = [table.title, "\n".join(lines), "\n".join(f"- {note}" for note in table.notes)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def html(table: Table) -> str:
    """The table for a notebook, which brings its own style."""

    def escaped(text: str) -> str:
        return escaping.escape(text).replace("\n", "<br>")

    def line(tag: str, row: Sequence[Cell]) -> str:
        cells = []
        for column, (text, below) in enumerate(row):
            side, small = "left" if column in table.prose else "right", f"<br><small>{escaped(below)}</small>"
            cells.append(f'<{tag} style="text-align: {side}">{escaped(text)}{small * bool(below)}</{tag}>')
        return f"<tr>{''.join(cells)}</tr>"

    lines = ["<table>", f"<caption>{escaped(table.title)}</caption>"]
    lines += ["<thead>", line("th", [Cell(heading) for heading in table.heading]), "</thead>"]
    lines += ["<tbody>", *(line("td", row) for row in table.rows), "</tbody>", "</table>"]
    notes = [f"<li>{escaped(note)}</li>" for note in table.notes]
    return "\n".join([*lines, *(["<ul>", *notes, "</ul>"] if notes else [])])


def flat(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records without nesting: nested names are joined by dots, lists left out."""
    flattened = (dict(schema.flat(record)) for record in records)
    return [{name: value for name, value in each.items() if not isinstance(value, list)} for each in flattened]


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """One line per record, as `flat` makes it, under the union of their names."""
    rows, out = flat(records), io.StringIO()
    writer = csv.DictWriter(out, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


NAMED = "backslash asciicircum asciitilde asciigrave less greater bar quotedbl mu"  # as \textmu{}
SPECIAL = str.maketrans(
    {letter: rf"\text{name}{{}}" for letter, name in zip('\\^~`<>|"µ', NAMED.split(), strict=True)}
    | {letter: f"\\{letter}" for letter in "{}$&#%_"}
    | {letter: f"{{{letter}}}" for letter in "[]*"}  # which after a line break would be part of it
    | {"-": "{-}", "–": "--", "±": r"$\pm$", "×": r"$\times$", "…": r"\dots{}"}  # two - would become a dash
)
HEAD = "% needs \\usepackage{booktabs}, and \\usepackage[T1]{fontenc} for names with straight quotes\n"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def latex(tables: Sequence[Table]) -> str:
    r"""One `table` environment each, for `\input` in a paper."""
    return HEAD + "\n".join(map(_latex, tables))


def _latex(table: Table) -> str:
    columns = "".join("l" if column in table.prose else "r" for column in range(len(table.heading)))
    notes = [*map(escaped, table.notes)]
    small = [r"\par\medskip", r"\begin{minipage}{\linewidth}\footnotesize", "\n\n".join(notes), r"\end{minipage}"]
    lines = [
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{escaped(table.title)}}}"] if table.title else []),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *_lines([Cell(text) for text in table.heading]),
        r"\midrule",
        *(line for row in table.rows for line in _lines(row)),
        r"\bottomrule",
        r"\end{tabular}",
        *(small if notes else []),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text as LaTeX sets it, on one line."""
    return CONTROL.sub(" ", text).translate(SPECIAL).strip()


def _lines(row: Sequence[Cell]) -> Iterator[str]:
    """Return as many lines as the tallest cell has, its last one small."""
    below = ([rf"{{\scriptsize {escaped(cell.below)}}}"] if cell.below else [] for cell in row)
    cells = [[*map(escaped, cell.text.split("\n")), *last] for cell, last in zip(row, below, strict=True)]
    return (" & ".join(line) + r" \\" for line in zip_longest(*cells, fillvalue=""))
