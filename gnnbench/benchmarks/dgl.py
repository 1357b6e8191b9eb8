"""DGL in another interpreter: one process that lives through the benchmark and answers one request at a time."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnnbench import launch
from gnnbench.backends.isplib.sample import EDGE, Relation
from gnnbench.benchmarks.ops import Case
from gnnbench.benchmarks.peers import Implementation
from gnnbench.errors import BackendUnavailable, OutOfMemory, RunFailed
from gnnbench.graph import Graph
from gnnbench.measure import memory
from gnnbench.measure.memory import Meter
from gnnbench.ops._workload import Direction

CHILD = Path(__file__).with_name("dgl_child.py")
REMEDY = "install DGL in an environment of its own and give its interpreter by --dgl-python"


class Dgl:
    """DGL on one graph, in a process that ends with the last reference, or by `close`.

    Args:
        python: an interpreter that can import dgl and torch; empty for this one.
        graphs: a square graph, or the edges of each relation.
        memory_bytes: what the process may use; 0 for no limit.

    Raises:
        BackendUnavailable: it does not run, or has no DGL.
    """

    def __init__(self, python: str, graphs: Graph | Mapping[Relation, Graph], memory_bytes: int = 0) -> None:
        if not python and importlib.util.find_spec("dgl") is None:
            raise BackendUnavailable(f"this interpreter has no DGL; {REMEDY}")
        if isinstance(graphs, Graph):
            if graphs.num_rows != graphs.num_cols:
                raise BackendUnavailable("it is asked for square graphs only")
            graphs = {EDGE: graphs}
        self._folder = tempfile.TemporaryDirectory(prefix="gnnbench-dgl-")
        self._log = Path(self._folder.name) / "log.txt"
        threads = torch.get_num_threads()
        try:
            self._process = launch.start(
                [python or sys.executable, "-c", CHILD.read_text(encoding="utf-8"), self._folder.name],
                self._log,
                stdin=subprocess.PIPE,
                cwd=self._folder.name,  # where no file is named like a module
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            )
        except OSError as error:
            self._folder.cleanup()
            raise BackendUnavailable(f"{python} cannot be run ({error.strerror}); {REMEDY}") from None
        self.close = weakref.finalize(self, _end, self._process, self._folder)
        try:
            self.version = self.ask("start", threads=threads, memory_bytes=memory_bytes)["version"]
        except RunFailed as error:
            reason = f"{python or sys.executable} has no DGL that runs ({error}); {REMEDY}"
            raise BackendUnavailable(reason) from None
        nodes = dict[str, int]()
        for place, ((source, _, destination), graph) in enumerate(graphs.items()):
            self.save(f"col_{place}", graph.col)
            self.save(f"row_{place}", graph.row.int())
            nodes |= {source: graph.num_cols, destination: graph.num_rows}
        self.ask("graph", nodes=nodes, relations=[*graphs])

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            OutOfMemory: its memory ran out.
            RunFailed: it failed or died.
        """
        assert self._process.stdin
        assert self._process.stdout
        try:
            print(json.dumps({"do": do, **request}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            status, reason = launch.verdict(code, self._log.read_text(errors="replace"))
            raise (OutOfMemory if status == "oom" else RunFailed)(reason)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise (OutOfMemory if memory.says_exhausted(answer["error"]) else RunFailed)(answer["error"])
        return answer

    def save(self, name: str, tensor: Tensor) -> None:
        """Hand a tensor over."""
        np.save(Path(self._folder.name) / f"{name}.npy", tensor.detach().numpy())

    def load(self, name: str) -> Tensor:
        """Take a tensor back."""
        return torch.from_numpy(np.load(Path(self._folder.name) / f"{name}.npy"))

    def time(self, samples: int, calls: int, direction: Direction = "forward") -> list[float]:
        """Mean seconds of `calls` calls of what was asked for last, `samples` times, by its own clock."""
        seconds: list[float] = self.ask("time", direction=direction, samples=samples, calls=calls)["seconds"]
        return seconds


def _end(process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()  # does nothing to a process that has ended
    process.communicate()
    folder.cleanup()


class DglCase(Implementation):
    """One case on DGL.

    Its maximum of no edges is minus infinity, whose gradient goes to the first node; such rows are not checked.
    """

    def __init__(self, dgl: Dgl, case: Case) -> None:
        self._dgl = dgl
        self._unlike = case.graph.degree == 0 if case.name == "spmm_max" else None
        if self._unlike is not None and self._unlike.any():
            self.note = "gives -inf in rows without edges, where the others give 0; these are not checked"
        for name, tensor in (*case.inputs.items(), ("grad_out", case.grad_out)):
            dgl.save(name, tensor)
        dgl.ask("case", op=case.name, names=list(case.inputs), grads=case.op.grads)

    def outputs(self, direction: Direction, grad_out: Tensor) -> list[Tensor]:
        if self._unlike is not None:
            grad_out = grad_out.masked_fill(self._unlike.unsqueeze(1), 0.0)
        self._dgl.save("check_grad_out", grad_out)
        count = self._dgl.ask("outputs", direction=direction)["count"]
        result = [self._dgl.load(f"output_{place}") for place in range(count)]
        if self._unlike is not None and direction == "forward":
            result[0][self._unlike] = 0.0
        return result

    def time(self, direction: Direction, samples: int, calls: int) -> list[float]:
        return self._dgl.time(samples, calls, direction)

    def memory(self, direction: Direction, meter: Meter) -> tuple[int, int] | None:
        answer = self._dgl.ask("memory", direction=direction)
        return (answer["increase"], answer["peak"]) if answer else None
