"""The server: it imports what jobs need, and forks a clean child for each.

It neither starts a pool of threads nor touches a GPU. A child has none of its parent's threads, so that libgomp
would wait for its own forever; and CUDA cannot be used in a child of a process that initialised it, which even
`torch.cuda.is_available()` does. Importing PyTorch and PyG does neither; OpenBLAS, whose threads NumPy starts,
ends them itself before a fork.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

import numpy as np

from gnnbench.launch import _fork, _task

# What every job imports, whatever its backend: where PyG runs untouched, nothing of ours that computes is loaded.
PRELOADED = (
    "torch_geometric.nn",
    "gnnbench.models._stack",
    "gnnbench.training.run",
    "gnnbench.comparison.parity.steps",
    "gnnbench.comparison.process",
)
CONTEXT = multiprocessing.get_context("fork")  # whose processes skip the second that tearing down PyTorch takes


def preload() -> None:
    """Import what jobs import."""
    for name in PRELOADED:
        with suppress(Exception):  # the job that needs it meets the same error, and has a log
            import_module(name)


def serve(connection: socket.socket) -> None:
    """Fork the jobs that are asked for until `connection` is closed.

    A job may ask for jobs of its own, as a comparison does that is a cell of a grid. Each asker waits for its job.
    """
    gc.disable()  # which would take a quarter of the time of these imports
    from gnnbench.measure import code

    before = dict(os.environ)
    digest = code.digest()  # of the files as they are before they are imported
    preload()
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    imports = json.dumps({"code": digest, "set": changed}).encode()
    gc.collect()
    gc.enable()
    gc.freeze()  # or collections in a child would copy every page with an object in it
    pages = _fork.mapped()
    connection.send(imports)
    running: list[tuple[socket.socket, BaseProcess | None]] = [(connection, None)]  # each but the last waits
    while running:
        asker, job = running[-1]
        ready, _, _ = select.select([each for each, _ in running], [], [])
        if job and asker not in ready:  # one who waits for it has closed its connection
            job.kill()
        try:
            request, descriptors, _, _ = socket.recv_fds(asker, _fork.LONGEST, 2)
        except ConnectionResetError:  # it closed without having read all that was sent to it
            request = b""
        if request:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.send(imports)
            with theirs:
                others = [ours, *(each for each, _ in running)]
                job = CONTEXT.Process(target=_job, args=(request, descriptors, theirs, others, pages, os.getpid()))
                job.start()
            for descriptor in descriptors:
                os.close(descriptor)
            running.append((ours, job))
            continue
        asker.close()
        running.pop()
        if job:
            job.join()
            with suppress(OSError):  # nobody waits for it
                running[-1][0].send(str(job.exitcode).encode())


def _job(
    request: bytes,
    descriptors: list[int],
    connection: socket.socket,
    others: list[socket.socket],
    pages: list[tuple[int, int]],
    server: int,
) -> NoReturn:
    """Do a job in this process, which was just forked."""
    os.setsid()  # out of the reach of Ctrl-C
    _fork.die_with(server)
    for each in others:
        each.close()
    stdin = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((stdin, *descriptors)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    _fork.map_in(pages)
    np.random.seed()  # noqa: NPY002  Python's own generator does so at a fork, and PyTorch's has a fixed seed
    _fork.inherit(connection)
    kind, path = json.loads(request)
    sys.exit(_task.perform(kind, Path(path)))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # to end by it, as by other signals, instead of as a failure
    _fork.die_with(int(sys.argv[2]))
    serve(socket.socket(fileno=int(sys.argv[1])))
