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
Cells = Mapping[str, Cell | str]  # of a row by heading


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings; the first column names the row.

    Attributes:
        heading: one per column; a line break is kept on the terminal.
        rows: each as long as `heading`.
        title: what was measured, and on what.
        notes: sentences below the table.
        prose: columns of words, which are set flush left and may wrap.
    """

    heading: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    notes: Sequence[str] = ()
    prose: Sequence[int] = (0,)

    @classmethod
    def of(cls, rows: Iterable[Cells], **others: Any) -> Table:
        """The table of rows that give their cells by heading, each row under all headings of the first."""
        every = [*rows]
        cells = [[_cell(value) for value in row.values()] for row in every]
        return cls([*every[0]] if every else [""], cells, **others)


def facts(rows: Iterable[Sequence[str]], **others: Any) -> Table:
    """A table without headings, of names, values and perhaps remarks."""
    cells = [[*map(Cell, row)] for row in rows]
    columns = max(map(len, cells), default=2)
    return Table([""] * columns, cells, prose=(0, columns - 1), **others)


def _cell(value: Cell | str) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


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


def drawn(table: Table, columns: Sequence[int] = ()) -> RichTable:
    """Some columns of a table, or all of them, for the terminal."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    columns = columns or range(len(table.heading))
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


def markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown."""
    rules = ("---" if column in table.prose else "---:" for column in range(len(table.heading)))
    lines = [
        _markdown_row(heading.replace("\n", " ") for heading in table.heading),
        _markdown_row(rules),
        *(_markdown_row("<br>".join(filter(None, cell)) for cell in row) for row in table.rows),
    ]
    blocks = [table.title, "\n".join(lines), "\n".join(f"- {note}" for note in table.notes)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def html(table: Table) -> str:
    """The table for a notebook, which brings its own style."""
    lines = ["<table>", f"<caption>{_escaped(table.title)}</caption>"]
    lines += ["<thead>", _html_row(table, "th", [Cell(heading) for heading in table.heading]), "</thead>"]
    lines += ["<tbody>", *(_html_row(table, "td", row) for row in table.rows), "</tbody>", "</table>"]
    notes = [f"<li>{_escaped(note)}</li>" for note in table.notes]
    return "\n".join([*lines, *(["<ul>", *notes, "</ul>"] if notes else [])])


def flat(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records without nesting: nested names are joined by dots, lists left out."""
    flattened = (dict(schema.flat(record)) for record in records)
    return [{name: value for name, value in each.items() if not isinstance(value, list)} for each in flattened]


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """One line per record, as `flat` makes it, under the union of their names."""
    rows = flat(records)
    out = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _html_row(table: Table, tag: str, row: Sequence[Cell]) -> str:
    cells = []
    for column, cell in enumerate(row):
        side = "left" if column in table.prose else "right"
        below = f"<br><small>{_escaped(cell.below)}</small>" * bool(cell.below)
        cells.append(f'<{tag} style="text-align: {side}">{_escaped(cell.text)}{below}</{tag}>')
    return f"<tr>{''.join(cells)}</tr>"


def _escaped(text: str) -> str:
    return escaping.escape(text).replace("\n", "<br>")


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


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |"


SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "[": "{[}",  # after a line break it would open an optional argument
    "]": "{]}",
    "*": "{*}",  # and this would be part of the line break
    "-": "{-}",  # so that two of them do not become a dash
    "–": "--",
    "µ": r"\textmu{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "…": r"\dots{}",
}
HEAD = "% needs \\usepackage{booktabs}, and \\usepackage[T1]{fontenc} for names with straight quotes\n"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def latex(tables: Sequence[Table]) -> str:
    r"""One `table` environment each, for `\input` in a paper."""
    return HEAD + "\n".join(map(_latex, tables))


def _latex(table: Table) -> str:
    """A table with its title as caption and its notes below."""
    columns = "".join("l" if column in table.prose else "r" for column in range(len(table.heading)))
    heading = [Cell(text) for text in table.heading]
    lines = [
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{escaped(table.title)}}}"] if table.title else []),
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        *_lines(heading),
        r"\midrule",
        *(line for row in table.rows for line in _lines(row)),
        r"\bottomrule",
        r"\end{tabular}",
        *_notes(table.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text as LaTeX sets it, on one line."""
    return "".join(SPECIAL.get(letter, letter) for letter in CONTROL.sub(" ", text)).strip()


def _lines(row: Sequence[Cell]) -> Iterator[str]:
    """As many lines as the tallest cell has, its last one small."""
    cells = [[*map(escaped, cell.text.split("\n"))] for cell in row]
    for lines, cell in zip(cells, row, strict=True):
        lines += [rf"{{\scriptsize {escaped(cell.below)}}}"] if cell.below else []
    for place in range(max(map(len, cells))):
        yield " & ".join(lines[place] if place < len(lines) else "" for lines in cells) + r" \\"


def _notes(notes: Iterable[str]) -> Iterator[str]:
    sentences = [*map(escaped, notes)]
    if sentences:
        yield r"\par\medskip"
        yield r"\begin{minipage}{\linewidth}\footnotesize"
        yield "\n\n".join(sentences)
        yield r"\end{minipage}"
