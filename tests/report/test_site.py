"""The documentation's site: its links lead somewhere, and a browser shows it silently, alone and at any width."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support import browser
from tests.support.commands import ROOT

pytest.importorskip("mkdocs", reason="mkdocs is not installed")
pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a network; a link or an anchor that leads nowhere fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://0.0.0.0:9",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Tab]:
    if browser.CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with browser.tab(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    handler.func.log_message = lambda *_: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_it_has_the_api_tables_pictures_and_a_report(site: Path) -> None:
    assert "patch_pyg" in (site / "api.html").read_text()
    for file in ("results/demo/gcn.json", "results/demo/gcn.svg", "report.html", "notebook.ipynb"):
        assert (site / file).stat().st_size > 0


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_pages_are_silent_alone_and_as_narrow_as_the_window(
    tab: browser.Tab, site: Path, address: str, width: int, scheme: str
) -> None:
    tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    tab.open(f"{address}/index.html", width)
    tab.run("localStorage.clear()")  # which remembers the scheme
    for name in sorted(path.name for path in site.glob("*.html")):
        tab.open(f"{address}/{name}", width)
        assert tab.complaints() == [], name
        assert [url for url in tab.requests() if not url.startswith(("data:", "blob:", address))] == []
        wider = tab.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider == 0, name
    background = tab.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, background[4:-1].split(","))) < 384) == (scheme == "dark")
