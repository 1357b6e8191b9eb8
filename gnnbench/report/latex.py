"""Tables as LaTeX: booktabs, intervals below their values, every name escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gnnbench.report.tables import Cell, Table

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


def document(tables: Sequence[Table]) -> str:
    r"""One `table` environment each, for `\input` in a paper."""
    return HEAD + "\n".join(map(latex, tables))


def latex(table: Table) -> str:
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
