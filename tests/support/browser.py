"""Chromium without a window, spoken to through a pipe; only the standard library is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DOMAINS = ("Page", "Runtime", "Log", "Network", "Accessibility")


class Tab:
    """A page in the browser, and every event that it sent."""

    def __init__(self, commands: int, answers: int) -> None:
        self.commands, self.answers = os.fdopen(commands, "wb"), os.fdopen(answers, "rb")
        self.events: list[dict[str, Any]] = []
        self.session, self.last = "", 0
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in DOMAINS:
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command and its answer."""
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while (answer := self._read()).get("id") != self.last:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, page: Path | str, width: int = 1280) -> None:
        """Show a file, or a page by its address, at a width in pixels, from its beginning to its end."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, script: str) -> Any:
        """The value of an expression on the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def complaints(self) -> list[Any]:
        """Return what the console said and what was thrown."""
        methods = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event["params"] for event in self.events if event["method"] in methods]

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [parameters["request"]["url"] for parameters in sent]

    def _read(self) -> dict[str, Any]:
        message = bytearray()
        while (letter := self.answers.read(1)) != b"\0":
            assert letter, "the browser ended"
            message += letter
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def tab(profile: Path) -> Iterator[Tab]:
    """A browser that ends with the block; it listens on descriptor 3 and answers on 4."""
    assert CHROMIUM
    (heard, commands), (answers, said) = os.pipe(), os.pipe()
    options = (
        "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --remote-debugging-pipe"
    )
    script = f'exec "$0" {options} "--user-data-dir=$1" 3<&{heard} 4>&{said}'
    process = subprocess.Popen(
        ["bash", "-c", script, CHROMIUM, str(profile)],
        pass_fds=(heard, said),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(heard)
    os.close(said)
    try:
        yield Tab(commands, answers)
    finally:
        process.terminate()
        process.wait(timeout=20)
