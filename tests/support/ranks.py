"""Processes of one thread that share a process group, and do what a test asks of all of them."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gnnbench import launch

PATIENCE_S = 60


class Ranks:
    """Ranks 0 to `size` - 1, which wait for calls."""

    def __init__(self, size: int, folder: Path) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.support.parts"])
        self._connections: list[Connection] = []
        self._processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, folder / "rendezvous", theirs), daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return what `function(*arguments)`, of a module, returns on every rank."""
        for connection in self._connections:
            connection.send((function, arguments))
        answers = []
        for rank, connection in enumerate(self._connections):
            assert connection.poll(PATIENCE_S), f"rank {rank} does not answer"
            answers.append(connection.recv())
        assert not any(error for _, error in answers), "\n".join(error for _, error in answers)
        return [result for result, _ in answers]

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _serve(rank: int, size: int, rendezvous: Path, connection: Connection) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = launch.loopback()
    timeout = timedelta(seconds=PATIENCE_S / 3)
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size, timeout=timeout
    )
    while True:
        function, arguments = connection.recv()
        try:
            connection.send((function(*arguments), ""))
        except Exception:
            connection.send((None, traceback.format_exc()))
