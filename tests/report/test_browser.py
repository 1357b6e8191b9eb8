"""The page in a browser, where one is installed: silent, alone, sortable, and as narrow as a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnbench import kinds, sweeps
from gnnbench.kinds.run import Run
from gnnbench.kinds.tuning import Tuning
from gnnbench.report import page
from gnnbench.results import files
from tests.support import browser
from tests.support.commands import ROOT
from tests.support.compare_runner import Runner, compared
from tests.support.records import long_run, tuned
from tests.support.trials import swept, written

pytestmark = pytest.mark.skipif(browser.CHROMIUM is None, reason="chromium is not installed")
WIDER = """
    [...document.querySelectorAll("body *")]
        .filter((each) => !each.closest(".scroll, .skip, .unseen"))
        .filter((each) => getComputedStyle(each).display !== "inline")
        .filter((each) => each.scrollWidth > each.clientWidth + 1 ||
            each.getBoundingClientRect().right > document.documentElement.clientWidth)
        .map((each) => each.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one of every kind: a comparison of five, and results that were measured; a run has 10,000 epochs."""
    folder = tmp_path_factory.mktemp("report")
    compared(
        folder / "long-name-" / "x", Runner(), "pyg", "pyg-sparse", "isplib", "reference", "isplib:fold_norm=false"
    )
    names = ("tolokers_1_gcn", "ops/4_spmm_tolokers", "collate/ogbg-molhiv", "reproductions/isplib_small")
    measured = [ROOT / "results" / f"{name}.json" for name in names]
    swept(sweeps.load(written(folder)), folder / "sweep")
    results = [kinds.load(path) for path in (folder / "long-name-" / "x", *measured, folder / "sweep")]
    results += [Run.of(long_run(10_000), Path("x")), Tuning.of(tuned(), Path("x"))]
    files.save_text(page.html(results), folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Tab]:
    profile = tmp_path_factory.mktemp("profile")
    with browser.tab(profile) as opened:
        yield opened
    shutil.rmtree(profile, ignore_errors=True)


def test_it_opens_silently_and_asks_for_nothing(tab: browser.Tab, report: Path) -> None:
    tab.open(report)
    tab.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert tab.complaints() == []
    assert [url for url in tab.requests() if not url.startswith("data:")] == [report.as_uri()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_at_320_pixels_only_tables_scroll_sideways(tab: browser.Tab, report: Path, scheme: str) -> None:
    tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    tab.open(report, width=320)
    tab.run("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert tab.run(WIDER) == []


def test_a_heading_sorts_its_table_and_says_so(tab: browser.Tab, report: Path) -> None:
    tab.open(report)
    rows = "[...document.querySelectorAll('#result-1 tbody')[0].rows]"
    names = f"{rows}.map((row) => row.cells[0].firstChild.data.trim())"
    press = "document.querySelectorAll('#result-1 thead button')[3].click()"  # the epoch
    assert tab.run(names)[0] == "pyg"
    tab.run(press)
    assert tab.run(names) == ["isplib", "isplib", "pyg-sparse", "pyg", "reference"]
    assert tab.run("document.getElementById('said').textContent") == "Sorted by epoch, ascending"
    tab.run(press)
    assert tab.run(names)[0] == "reference"
    sorts = "[...document.querySelectorAll('#result-1 thead')[0].rows[0].cells].map((each) => each.ariaSort)"
    assert tab.run(sorts)[2:5] == ["none", "descending", "none"]


def test_pictures_tables_and_buttons_have_names(tab: browser.Tab, report: Path) -> None:
    tab.open(report)
    nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
    for role in ("image", "table", "button", "region", "link", "article"):
        named = [node.get("name", {}).get("value") for node in nodes if node.get("role", {}).get("value") == role]
        assert named, role
        assert all(named), role


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(tab: browser.Tab, report: Path, scheme: str) -> None:
    """WCAG's contrast of 4.5."""
    tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    tab.open(report)
    read = "((name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim())"
    paper, card = (tab.run(f"{read}('--{name}')") for name in ("paper", "card"))
    for name in ("ink", "muted", "link"):
        assert min(contrast(tab.run(f"{read}('--{name}')"), each) for each in (paper, card)) >= 4.5, name
    for name in ("good", "bad", "doubt"):
        colours = (tab.run(f"{read}('--{each}')") for each in (name, f"{name}-card"))
        assert contrast(*colours) >= 4.5, name


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Compute that of `#rrggbb`, as WCAG defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
