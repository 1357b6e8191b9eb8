"""Jobs forked from a server, which is asked for one at a time.

The server of `multiprocessing` serves the user's own processes too: it may run before this package can say what to
import, its environment is that of its first use, and its children import the user's script anew, which ends in an
error where the script has no `if __name__ == "__main__"`.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from gnnbench import measure

LONGEST = 1 << 16  # bytes of a message
_here = threading.local()  # as Linux ends a server with the thread that started it
OnStart = Callable[[Callable[[], None]], None]  # is told how to end a job that starts
MADV_POPULATE_READ = 22  # of Linux 5.14; an older one leaves everything as it is


def mapped() -> list[tuple[int, int]]:
    """Address and bytes of every run of read-only pages of files that are mapped now; none if hidden."""
    runs: list[tuple[int, int]] = []
    with suppress(OSError), open("/proc/self/maps") as areas, open("/proc/self/pagemap", "rb") as pagemap:
        for area in areas:
            addresses, rights, _, _, inode = area.split()[:5]
            if "w" in rights or inode == "0":
                continue
            start, end = (int(address, 16) // mmap.PAGESIZE for address in addresses.split("-"))
            pagemap.seek(8 * start)
            present = np.frombuffer(pagemap.read(8 * (end - start)), np.uint64) >> np.uint64(63)
            edges = np.flatnonzero(np.diff(present.astype(np.int8), prepend=0, append=0)) + start
            for first, last in edges.reshape(-1, 2).tolist():
                runs.append((first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE))
    return runs


def map_in(runs: list[tuple[int, int]]) -> None:
    """Map these pages into this process."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for address, size in runs:
        madvise(address, size, MADV_POPULATE_READ)


def run(kind: str, path: Path, log: Path, tell: Callable[[str], None], on_start: OnStart) -> int:
    """Perform the task of this kind that is in `path` in a child of the server, with which it ends."""
    current = server()
    on_start(current.close)
    return current.run(kind, path, log, tell)


def server() -> Server:
    """The server of this thread; a new one unless what there is imported this code in these surroundings."""
    current: Server | None = getattr(_here, "server", None)
    if current is None or not current.fits():
        end()
        current = _here.server = _started()
    return current


def end() -> None:
    """End the server of this thread."""
    if current := getattr(_here, "server", None):
        _here.server = None
        current.close()


@contextmanager
def keep_server() -> Iterator[None]:
    """Keep what is prepared for all jobs of a block, such as of many comparisons; the outermost block ends it."""
    outer = getattr(_here, "kept", False)
    _here.kept = True
    try:
        yield
    finally:
        _here.kept = outer
        if not outer:
            end()


def inherit(connection: socket.socket) -> None:
    """Let the jobs of this process, itself a job, be forked from the server that it was forked from."""
    _here.server = Server(connection)


def die_with(parent: int) -> None:
    """Ask Linux to end this process when the one that started it dies, even by SIGKILL."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it died before it could be asked for
        sys.exit(1)


class Server:
    """A server as its client sees it.

    Args:
        connection: carries first what it says about its imports, then requests to it, each with the descriptors of
            stdout and log, and the exit code of every job. Closing it ends the job at hand.
        process: the server itself, if this process started it.
    """

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._connection, self._process = connection, process
        self._surroundings, self._environment = _surroundings(), dict(os.environ)

    @functools.cached_property
    def imports(self) -> dict[str, Any]:
        """After its imports, the hash of their `code` and the variables that they `set`; empty if it died."""
        return json.loads(self._receive() or "{}")

    def fits(self) -> bool:
        """Return whether its children would be what a process started here and now would be."""
        from gnnbench.measure import code  # which imports PyTorch

        if self._connection.fileno() < 0 or (self._process and self._process.poll() is not None):
            return False
        if not self.imports or self._surroundings != _surroundings() or self.imports["code"] != code.digest():
            return False
        by_imports = self.imports["set"]  # which may have set them here too
        return {**self._environment, **by_imports} == {**os.environ, **by_imports}

    def run(self, kind: str, path: Path, log: Path, tell: Callable[[str], None]) -> int:
        """The exit code of a job, after its end."""
        read, write = os.pipe()
        with open(read, errors="replace") as lines:
            try:
                with open(write, "wb") as output, log.open("wb") as errors:
                    request = json.dumps([kind, str(path)]).encode()
                    with suppress(ConnectionError):  # it died just now
                        if self.imports:
                            socket.send_fds(self._connection, [request], [output.fileno(), errors.fileno()])
                for line in lines:
                    tell(line.strip())
                answer = self._receive()
            except BaseException:
                self.close()
                lines.read()  # until the job is gone
                raise
        return int(answer) if answer else self._died(log)

    def close(self) -> None:
        """End the server if this process started it, and the job at hand in any case."""
        self._connection.close()
        if self._process:
            assert self._process.stderr
            self._process.kill()  # and Linux its child
            self._process.wait()
            self._process.stderr.close()

    def _receive(self) -> bytes:
        """The next message; empty if the server died."""
        try:
            return self._connection.recv(LONGEST)
        except ConnectionError:
            return b""

    def _died(self, log: Path) -> int:
        """The exit code of the server, whose last words go to the log of the job."""
        if self._process is None:
            return -signal.SIGKILL
        assert self._process.stderr
        with log.open("ab") as errors:
            errors.write(self._process.stderr.read())
        return self._process.wait()


def environment() -> dict[str, str]:
    """For a process that is to import this package, whose threads spin as `measure.spin_briefly` has them.

    The package may lie elsewhere than where Python looks by itself: an editable installation is looked at last,
    after a folder of the package's name where the process starts.
    """
    measure.spin_briefly()
    parent, given = Path(__file__).parents[2], os.environ.get("PYTHONPATH", "")
    if parent.name in ("site-packages", "dist-packages"):  # whose other modules must not come before Python's own
        return {**os.environ}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(parent), given)))}


def _started() -> Server:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [
                *(sys.executable, "-X", "faulthandler", "-m", "gnnbench.launch._server"),
                *(str(theirs.fileno()), str(os.getpid())),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env=environment(),
        )
    return Server(ours, process)


def _surroundings() -> tuple[int, str]:
    """Return what a server has from the process that starts it, beside the environment."""
    return os.getpid(), os.getcwd()
