"""Jobs forked from a server, which is asked for them.

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from gnnbench import measure

LONGEST = 1 << 16  # bytes of a message
OWN = "GNNBENCH_"  # begins the names of variables that no import reads
_here = threading.local()  # as Linux ends a server with the thread that started it
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


def inherit(requests: socket.socket, imports: dict[str, Any]) -> None:
    """Let the jobs of this process, itself a job, be forked from the server that it was forked from."""
    _here.server = Server(requests)
    _here.server.imports = imports


def die_with(parent: int) -> None:
    """Ask Linux to end this process when the one that started it dies, even by SIGKILL."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it died before it could be asked for
        sys.exit(1)


class Server:
    """A server as its clients see it.

    Args:
        requests: carries what it says about its imports, to the process that started it, and requests to it, each
            with the descriptors of stdout, log and a socket of the job's own.
        process: the server itself, if this process started it.
    """

    def __init__(self, requests: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        self._requests, self._process = requests, process
        self._client, self._environment = os.getpid(), _environment(own=False)

    @functools.cached_property
    def imports(self) -> dict[str, Any]:
        """After its imports, the hash of their `code` and the variables that they `set`; empty if it died."""
        return json.loads(received(self._requests) or "{}")

    def fits(self) -> bool:
        """Return whether its children would be what a process started here and now would be."""
        from gnnbench.measure import code  # which imports PyTorch

        if self._requests.fileno() < 0 or (self._process and self._process.poll() is not None):
            return False
        if not self.imports or self._client != os.getpid() or self.imports["code"] != code.digest():
            return False
        by_imports = self.imports["set"]  # which may have set them here too
        return {**self._environment, **by_imports} == {**_environment(own=False), **by_imports}

    def start(self, kind: str, path: Path, log: Path, variables: dict[str, str], stdout: int) -> Child:
        """Fork a job, in whose environment there are these variables too."""
        request = json.dumps([kind, str(path), os.getcwd(), {**_environment(own=True), **variables}]).encode()
        lines = None
        if stdout == subprocess.PIPE:
            read, output = os.pipe()
            lines = os.fdopen(read, errors="replace")
        else:
            output = os.open(os.devnull, os.O_WRONLY)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, open(output, "wb") as printed, log.open("wb") as errors:
            descriptors = [each.fileno() for each in (printed, errors, theirs)]
            if self.imports and self._requests.fileno() >= 0:  # or it died, as it may have just now
                with suppress(ConnectionError):
                    socket.send_fds(self._requests, [request], descriptors)
        return Child(self, ours, lines, log)

    def close(self) -> None:
        """End the server if this process started it, and with it its jobs."""
        self._requests.close()
        if self._process:
            assert self._process.stderr
            self._process.kill()  # and Linux its children
            self._process.wait()
            self._process.stderr.close()

    def died(self, log: Path) -> int:
        """Return the exit code of the server, which died; its last words go to the log of a job."""
        if self._process is None or not self._process.stderr or self._process.stderr.closed:
            return -signal.SIGKILL
        with log.open("ab") as errors:
            errors.write(self._process.stderr.read())
        return self._process.wait()


class Child:
    """A job of a server, as `subprocess.Popen` has it.

    Args:
        asked: carries signals to it, and its exit code back. Without an end of it here, the job ends too.
        stdout: what it prints.
    """

    def __init__(self, server: Server, asked: socket.socket, stdout: IO[str] | None, log: Path) -> None:
        self._server, self._asked, self._log = server, asked, log
        self._waiting = threading.Lock()
        self._code: int | None = None
        self.stdout = stdout

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with suppress(OSError):
            self._asked.send(str(number).encode())

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Return its exit code, negative for a signal, after its end."""
        with self._waiting:
            if self._code is None:
                answer = received(self._asked)
                self._code = int(answer) if answer else self._server.died(self._log)
                self._asked.close()
            return self._code


def received(connection: socket.socket) -> bytes:
    """Return the next message; nothing if either end is closed."""
    try:
        return connection.recv(LONGEST)
    except OSError:
        return b""


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
        command = [sys.executable, "-X", "faulthandler", "-m", "gnnbench.launch._server"]
        process = subprocess.Popen(
            [*command, str(os.getpid()), str(theirs.fileno()), str(ours.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno(), ours.fileno()],
            start_new_session=True,
            env=environment(),
        )
    return Server(ours, process)


def _environment(*, own: bool) -> dict[str, str]:
    """Return the variables that this package alone reads, whenever it needs them; or all others."""
    return {name: value for name, value in os.environ.items() if name.startswith(OWN) == own}
