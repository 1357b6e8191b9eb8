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
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

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


def serve(requests: socket.socket, asking: socket.socket) -> NoReturn:
    """Fork the jobs that are asked for, until this process is killed.

    Args:
        asking: the other end of `requests`, for jobs that ask for jobs of their own, as a comparison does that
            is a cell of a grid.
    """
    gc.disable()  # which would take a quarter of the time of these imports
    from gnnbench.measure import code

    before = dict(os.environ)
    digest = code.digest()  # of the files as they are before they are imported
    preload()
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    imports = {"code": digest, "set": changed}
    gc.collect()
    gc.enable()
    gc.freeze()  # or collections in a child would copy every page with an object in it
    pages = _fork.mapped()
    requests.send(json.dumps(imports).encode())
    jobs: list[tuple[BaseProcess, socket.socket]] = []  # each with what its asker has the other end of
    while True:
        ready = wait([requests, *(each for job, asker in jobs for each in (job.sentinel, asker))])
        for job, asker in [*jobs]:
            if asker in ready:
                if number := _fork.received(asker):
                    assert job.pid
                    os.kill(job.pid, int(number))
                else:  # nobody waits for it
                    job.kill()
                    job.join()
            if not job.is_alive():
                with suppress(OSError):
                    asker.send(str(job.exitcode).encode())
                asker.close()
                jobs.remove((job, asker))
        if requests in ready:
            request, descriptors, _, _ = socket.recv_fds(requests, _fork.LONGEST, 3)
            asker = socket.socket(fileno=descriptors.pop())
            others = [requests, asker, *(each for _, each in jobs)]
            how = (request, descriptors, asking, imports, others, pages, os.getpid())
            job = CONTEXT.Process(target=_job, args=how)
            job.start()
            for descriptor in descriptors:
                os.close(descriptor)
            jobs.append((job, asker))


def _job(
    request: bytes,
    descriptors: list[int],
    asking: socket.socket,
    imports: dict[str, Any],
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
    kind, path, folder, variables = json.loads(request)
    if sys.path[0] == os.getcwd():
        sys.path[0] = folder
    os.chdir(folder)
    for name in [each for each in os.environ if each.startswith(_fork.OWN)]:
        del os.environ[name]
    os.environ.update(variables)
    if threads := variables.get(_task.THREADS):  # which was read when PyTorch was imported
        import torch

        torch.set_num_threads(int(threads))
    _fork.inherit(asking, imports)
    sys.exit(_task.perform(kind, Path(path)))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # to end by it, as by other signals, instead of as a failure
    parent, theirs, ours = map(int, sys.argv[1:])
    _fork.die_with(parent)
    serve(socket.socket(fileno=theirs), socket.socket(fileno=ours))
