"""Ctrl-C: the first one asks a run to stop after the epoch at hand."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = "stopping after this epoch; press Ctrl-C again to quit at once"


@contextmanager
def stop_signal(announce: Callable[[str], None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; a second one kills the process at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals there only
        yield stop
        return

    def request(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        stop.set()
        announce(STOPPING)

    before = signal.signal(signal.SIGINT, request)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
