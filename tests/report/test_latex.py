"""Tables in LaTeX: whole, and without a name that LaTeX would take for a command."""

from __future__ import annotations

import re

import pytest

from gnnbench.report import tables
from gnnbench.report.tables import Cell, Table

HOSTILE = '\\input{/etc/passwd} $x_1^2$ 100% & #1 ~ [2] *--* <a> `b` | "c"\n\n\\end{table}\x00'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("isplib:fold_norm=false", r"isplib:fold\_norm=false"),
        ("12.1–12.6 µs", r"12.1--12.6 \textmu{}s"),
        ("a\\b", r"a\textbackslash{}b"),
        ("--force", "{-}{-}force"),
        ("[1]", "{[}1{]}"),
        ("one\nline", "one line"),
    ],
)
def test_text_is_set_as_it_reads(text: str, expected: str) -> None:
    assert tables.escaped(text) == expected


def test_no_name_is_a_command() -> None:
    text = tables.escaped(HOSTILE)
    for command in set(re.findall(r"\\([a-z]+)", text)):
        assert rf"\{command}{{}}" in text
        assert command.startswith("text")
    assert not re.search(r"(?<!\\)[$&#%_^~]", text)
    assert "\n" not in text


def test_a_table_has_its_intervals_below_their_values() -> None:
    rows = [[Cell("pyg"), Cell("222 ms", "219–226 ms")], [Cell(HOSTILE), Cell("a\nb")]]
    table = Table(("back&end", "epoch\nmedian"), rows, title=HOSTILE, notes=[HOSTILE])
    lines = tables.latex([table]).splitlines()
    assert lines[1:3] == [r"\begin{table}", r"\centering"]
    assert r"\begin{tabular}{lr}" in lines
    assert r"pyg & 222 ms \\" in lines
    assert r" & {\scriptsize 219--226 ms} \\" in lines
    body = lines[lines.index(r"\toprule") + 1 : lines.index(r"\bottomrule")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body if line != r"\midrule"} == {1}
    text = "\n".join(lines)
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert re.findall(r"\\end\{(\w+)", text) == ["tabular", "minipage", "table"]
