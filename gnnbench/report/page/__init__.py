"""Results as one page that needs nothing else: verdict, tables, pictures, machine and configuration.

Each kind of result makes its section; `page.html.jinja`, `page.css` and `page.js` are the page.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import yaml

from gnnbench import __version__, units
from gnnbench.report.plots import ILLEGAL, Picture
from gnnbench.report.tables import Table

if TYPE_CHECKING:
    from pydantic import BaseModel

    from gnnbench.kinds import ResultKind

FOLDER = Path(__file__).parent
CODE = re.compile("`([^`&]+)`")  # but for what was escaped
ATTACHED = 100_000  # bytes of a compressed JSON, beyond which a page does not carry it
Tone = Literal["good", "bad", "plain"]  # of a verdict: proven, refused or wrong, and everything else


def html(results: Sequence[ResultKind]) -> str:
    """A page about `results`, in their order; it asks for nothing outside itself, and works without JavaScript."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(FOLDER)
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {"key": _key, "prose": _prose, "yaml": yaml_of}
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    page = environment.get_template("page.html.jinja").render(
        sections=[result.section() for result in results],
        results=results,
        attached=[_attached(result) for result in results],
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
    )
    return ILLEGAL.sub("\ufffd", page)


def _key(text: str) -> str:
    """Return the key that a cell is sorted by: its number in base units, or nothing where it has none."""
    number = units.value(text)
    return "" if number is None else repr(number)


def _prose(text: str) -> str:
    """A sentence as HTML, in which words between backticks are code."""
    from markupsafe import Markup, escape

    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


def _attached(record: BaseModel) -> str:
    """The JSON, compressed, as the address of a link; nothing where it would be too long."""
    compressed = gzip.compress(record.model_dump_json(indent=1).encode(), mtime=0)
    if len(compressed) > ATTACHED:
        return ""
    return f"data:application/gzip;base64,{base64.b64encode(compressed).decode()}"


class Grid(NamedTuple):
    """A table of a page; rows in `marked` are the best ones, and are called `mark`."""

    table: Table
    sortable: bool = True
    marked: Collection[int] = ()
    mark: str = "fastest"


@dataclass(frozen=True)
class Section:
    """One result in the order in which it is read."""

    kind: str  # such as "Comparison"
    title: str  # what was measured, and on what
    question: str  # what the result answers, in a sentence
    verdict: Sequence[str]  # the answer in a sentence, then what limits it
    tone: Tone = "plain"
    advice: Sequence[str] = ()  # doubts about the figures, each with its remedy
    grids: Sequence[Grid] = ()  # tables, the one of the verdict first
    pictures: Sequence[Picture] = ()
    details: Sequence[Grid] = ()  # tables that are folded away
    conditions: Sequence[str] = ()  # how it was measured, a sentence each
    environment: Mapping[str, Any] = field(default_factory=dict)  # the machine, as in the JSON
    config: Mapping[str, Any] = field(default_factory=dict)  # that ran; empty where there is none
    command: str = ""  # what repeats it, if the configuration is saved as `run.yaml`
    remark: str = ""  # what the command leaves open
    file: str = ""  # what else it needs, as the text of a file that the remark names

    @property
    def tables(self) -> list[Table]:
        """For LaTeX and Markdown: the tables that are not folded away, the first with the conditions below it."""
        first, *others = (grid.table for grid in self.grids)
        notes = [*self.verdict, *first.notes, *(f"Warning: {text}" for text in self.advice), *self.conditions]
        return [Table(first.heading, first.rows, first.title, notes, first.prose), *others]


def section_of(record: Any, tables: Sequence[Table], words: Sequence[str], **others: Any) -> Section:
    """The section of a record: its tables, with their notes as the conditions, unless `others` have their own.

    `gnnbench` with `words`, if there are any, measures it again; `others` are fields of `Section`.
    """
    fields: dict[str, Any] = {
        "kind": type(record).__name__,
        "title": tables[0].title,
        "advice": getattr(record, "warnings", ()),
        "grids": [Grid(replace(table, notes=())) for table in tables],
        "conditions": [note for table in tables for note in table.notes],
        "environment": getattr(record, "environment", {}),
        "config": getattr(record, "config", {}),
        "command": shlex.join(["gnnbench", *words]) if words else "",
    }
    made = Section(**fields | others)
    elsewhere = ("Status: ", "Warning: ")  # of a section
    return replace(made, conditions=[note for note in made.conditions if not note.startswith(elsewhere)])


def yaml_of(values: Mapping[str, Any]) -> str:
    """The text of a file in YAML; empty where there is nothing."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True) if values else ""
