"""Signals that ask a command to stop: Ctrl-C, SIGTERM of schedulers, SIGHUP of a terminal that is gone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
STOPPING = "stopping after this epoch; press Ctrl-C again to quit at once"
_latest = signal.SIGINT
_heard = False
_responses: list[Callable[[int], None]] = []


def by() -> str:
    """The signal that this process stops by, in words."""
    return NAMES[_latest]


def exit_code() -> int:
    """Return the exit code of a stopped process: 130, 143 or 129, as shells say of one that a signal ended."""
    return 128 + _latest


def stopped(code: int) -> bool:
    """Tell whether a process that ended with `code` (negative: by a signal) was stopped; this one is then, too."""
    global _latest
    found = next((number for number in NAMES if code in (-number, 128 + number)), None)
    _latest = found or _latest
    return found is not None


@contextmanager
def handled(respond: Callable[[int], None]) -> Iterator[None]:
    """Call `respond`, of the innermost block, on the first stop signal; a later Ctrl-C raises KeyboardInterrupt.

    Schedulers repeat SIGTERM and shells SIGHUP, which is no reason to hurry. What nohup lets a process ignore
    stays ignored.
    """
    global _heard
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals there only
        yield
        return
    before: dict[signal.Signals, Any] = {}
    if not _responses:
        _heard = False
        heeded = [each for each in NAMES if each == signal.SIGINT or signal.getsignal(each) != signal.SIG_IGN]
        before = {each: signal.signal(each, _hear) for each in heeded}
    _responses.append(respond)
    try:
        yield
    finally:
        _responses.pop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _hear(number: int, frame: Any) -> None:
    global _heard, _latest
    if not _heard:
        _heard, _latest = True, signal.Signals(number)
        _responses[-1](number)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt


def interrupt(number: int) -> None:
    """Respond to any signal as Python does to Ctrl-C."""
    raise KeyboardInterrupt


@contextmanager
def requested(announce: Callable[[str], None]) -> Iterator[threading.Event]:
    """An event that the first stop signal sets; a second Ctrl-C kills the process at once."""
    stop = threading.Event()

    def request(number: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        stop.set()
        announce(STOPPING)

    with handled(request):
        yield stop
