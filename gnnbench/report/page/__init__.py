"""Results as one page that needs nothing else: verdict, tables, pictures, machine and configuration.

section      what a page says about one result; each module of `report` makes those of its kind
pictures     drawings

`page.html.jinja`, `page.css` and `page.js` are the page itself.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gnnbench import __version__, registry, units
from gnnbench.report.page.pictures import ILLEGAL
from gnnbench.report.page.section import Grid, Section, yaml_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from gnnbench.results.schema import Result

FOLDER = Path(__file__).parent
CODE = re.compile("`([^`&]+)`")  # but for what was escaped
ATTACHED = 100_000  # bytes of a compressed JSON, beyond which a page does not carry it


class Stored(NamedTuple):
    """A result, where it lies, and the results of a comparison's rounds by backend."""

    kind: str
    record: Any
    path: Path
    rounds: Mapping[str, Sequence[Result]] = {}


def section(stored: Stored) -> Section:
    """Make the section of a page about a result."""
    module = registry.find("kinds", stored.kind if stored.kind in registry.names("kinds") else "bench")
    kind = getattr(module, "OTHERS", {}).get(stored.kind, module.KIND)
    make = kind.section or getattr(kind.report, "section", None)
    if make is None:
        drawn = kind.of(stored.record, stored.path).tables()
        made = Section(
            kind.__name__, drawn[0].title, "", ["The table holds what was measured."], grids=[*map(Grid, drawn)]
        )
    else:
        made = make(stored.record, *filter(None, [stored.rounds]))
    status = getattr(stored.record, "status", "ok")
    if status == "ok" or stored.kind in ("run", "profile"):
        return made
    return replace(made, verdict=[*made.verdict, f"Not finished when this was written: {status}."])


def html(results: Sequence[Stored]) -> str:
    """A page about `results`, in their order; it asks for nothing outside itself, and works without JavaScript."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"key": _key, "prose": _prose, "yaml": yaml_of}
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    page = environment.get_template("page.html.jinja").render(
        sections=[*map(section, results)],
        results=results,
        attached=[_attached(stored.record) for stored in results],
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
