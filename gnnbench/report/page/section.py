"""A section of a page about one result, whatever kind it is of."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import yaml

from gnnbench.report.page.pictures import Picture
from gnnbench.report.tables import Table

Tone = Literal["good", "bad", "plain"]  # of a verdict: proven, refused or wrong, and everything else


class Grid(NamedTuple):
    """A table of a page; rows in `marked` are the best ones, and are called `mark`."""

    table: Table
    sortable: bool = True
    marked: Collection[int] = ()
    mark: str = "fastest"


@dataclass(frozen=True)
class Section:
    """One result in the order in which it is read.

    Attributes:
        kind: such as "Comparison".
        title: what was measured, and on what.
        question: what the result answers, in a sentence.
        verdict: the answer in a sentence, then what limits it.
        advice: doubts about the figures, each with its remedy.
        grids: tables, the one of the verdict first.
        details: tables that are folded away.
        conditions: how it was measured, a sentence each.
        environment: the machine, as in the JSON.
        config: the configuration that ran; empty where there is none.
        command: what repeats it, if the configuration is saved as `run.yaml`.
        remark: what the command leaves open.
        file: what else it needs, as the text of a file that the remark names.
    """

    kind: str
    title: str
    question: str
    verdict: Sequence[str]
    tone: Tone = "plain"
    advice: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    pictures: Sequence[Picture] = ()
    details: Sequence[Grid] = ()
    conditions: Sequence[str] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    remark: str = ""
    file: str = ""

    @property
    def tables(self) -> list[Table]:
        """For LaTeX and Markdown: the tables that are not folded away, the first with the conditions below it."""
        first, *others = (grid.table for grid in self.grids)
        notes = [*self.verdict, *first.notes, *(f"Warning: {text}" for text in self.advice), *self.conditions]
        return [Table(first.heading, first.rows, first.title, notes, first.prose), *others]


def section_of(record: Any, tables: Sequence[Table], words: Sequence[str], **others: Any) -> Section:
    """The section of a record: its tables, with their notes as the conditions, unless `others` have their own.

    Args:
        record: what was measured.
        tables: those that a command prints, the one with the title first.
        words: `gnnbench` with these measures it again.
        others: of `Section`.
    """
    fields: dict[str, Any] = {
        "title": tables[0].title,
        "advice": getattr(record, "warnings", ()),
        "grids": [Grid(replace(table, notes=())) for table in tables],
        "conditions": [note for table in tables for note in conditions(table)],
        "environment": getattr(record, "environment", {}),
        "config": getattr(record, "config", {}),
        "command": shlex.join(["gnnbench", *words]),
    }
    return Section(**fields | others)


def conditions(table: Table) -> list[str]:
    """The notes of a table but for those that a section has elsewhere."""
    return [note for note in table.notes if not note.startswith(("Status: ", "Warning: "))]


def yaml_of(values: Mapping[str, Any]) -> str:
    """The text of a file in YAML; empty where there is nothing."""
    return yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True) if values else ""
