"""A reproduction on a page: what a paper claims, and what was measured of it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gnnbench import units
from gnnbench.report import reproduce as report
from gnnbench.report import reproduce_plots
from gnnbench.report.page.pictures import Picture, of_panel
from gnnbench.report.page.section import Grid, Section

if TYPE_CHECKING:
    from gnnbench.papers import Reproduction

CAPTIONS = {
    "speedups": "Logarithmic. A whisker is the range of what was published, or measured.",
    "memory": "Logarithmic, above what was held before.",
    "sets": "Logarithmic, with 95% intervals.",
    "widths": "The median of all graphs that were measured at more than one width.",
    "batches": "The median of all graphs that were measured at more than one batch size.",
    "epochs": "Medians of the phases of an epoch.",
}


def section(record: Reproduction) -> Section:
    """A reproduction."""
    *measured, claims = report.tables(record)
    verdicts = Counter(finding.verdict for finding in record.findings)
    wrong = {each.implementation for each in record.measurements if each.status == "wrong"}
    words = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    sentences = (
        [f"Of {units.counted(len(record.findings), 'claim')}: {words}."] if words else ["No claim was judged."]
    )
    return Section(
        kind="Reproduction",
        title=report.title(record),
        question="What of a paper's claims can be measured here, under its protocol and a corrected one?",
        verdict=[
            *(f"{name} computes something else, and gets no speedup there." for name in sorted(wrong)),
            *sentences,
        ],
        tone="bad" if record.exit_code == 3 else "plain",
        grids=[Grid(replace(claims, notes=()))],
        pictures=[*_pictures(record)],
        details=[
            Grid(replace(each, title=f"{each.title}: {units.counted(len(each.rows), 'case')}"))
            for each in measured
        ],
        conditions=claims.notes,
        environment=record.environment,
        command=shlex.join(["gnnbench", "reproduce", record.paper.name, "--scale", record.scale]),
    )


def _pictures(record: Reproduction) -> Iterator[Picture]:
    for name, panels in reproduce_plots.pictures(record).items():
        for panel in panels:
            yield of_panel(panel, name.capitalize(), CAPTIONS.get(name, ""))
