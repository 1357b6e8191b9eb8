"""Standard streams that end no command: closed ones, those whose reader is gone, and narrow encodings."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

GONE = (errno.EPIPE, errno.EIO)  # `| head`, and a terminal that was closed
PLAIN = {"–": "-", "—": "-", "─": "-", "━": "-", "│": "|", "µ": "u", "█": "#", "…": "...", "±": "+-", "×": "x"}


def make_writable() -> None:
    """Give this process three standard streams that it can write to from now on."""
    for number in range(3):
        with suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
    codecs.register_error("plain", _plain)
    sys.stdout, sys.stderr = _lenient(sys.stdout, 1), _lenient(sys.stderr, 2)


def forget(stream: io.IOBase | TextIO) -> None:
    """Let a stream write to nowhere from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _Lenient(io.FileIO):
    """A file that takes what nobody reads."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in GONE:
                raise
        forget(self)
        return super().write(data)


def _lenient(stream: TextIO | None, number: int) -> TextIO:
    return io.TextIOWrapper(
        io.BufferedWriter(_Lenient(number, "w", closefd=False)),
        encoding=stream.encoding if stream else "utf-8",
        errors="plain",
        line_buffering=getattr(stream, "line_buffering", False),
        write_through=getattr(stream, "write_through", False),
    )


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    found = error.object[error.start : error.end]
    return "".join(PLAIN.get(each, "?") for each in found), error.end
