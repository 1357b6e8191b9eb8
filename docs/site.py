"""Adds what lies beside docs/ to the documentation's site: README as its front page, results, a report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from gnnbench import kinds
from gnnbench.report import page

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", **{name: name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")}}
BESIDE = ("CITATION.cff", "LICENSE", "gnnbench/config.py", "results/**/*.json", "results/**/*.svg")
EXAMPLE = ROOT / "results" / "demo" / "gcn.json"
LINK = re.compile(r"(\]\()(\.\./|docs/)")


def on_files(files: Files, config: Any) -> Files:
    """Add pages and files by the names that links have on the site."""
    for name, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / name)))
    for path in (path for pattern in BESIDE for path in sorted(ROOT.glob(pattern))):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, "report.html", content=page.html([kinds.load(EXAMPLE)])))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links lead where they lead in a clone."""
    return LINK.sub(r"\1", markdown)
