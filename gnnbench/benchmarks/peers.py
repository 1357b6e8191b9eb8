"""Implementations that ops meet: kernels of backends, CSR products of PyTorch, and PyG here; DGL elsewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.utils import scatter, softmax

from gnnbench import backends, launch
from gnnbench.backends.base import KernelBackend
from gnnbench.backends.isplib.sample import EDGE, Relation
from gnnbench.benchmarks.ops import OPS, Case
from gnnbench.benchmarks.records import BF16
from gnnbench.config import BackendConfig
from gnnbench.errors import BackendUnavailable, OutOfMemory, RunFailed, UnsupportedOp
from gnnbench.graph import Graph
from gnnbench.measure import clock, memory
from gnnbench.measure.memory import Meter
from gnnbench.measure.rounds import timed
from gnnbench.ops._workload import Direction
from gnnbench.ops.families import FAMILIES
from gnnbench.ops.kernels import Kernels

ATTENTION = tuple(family.op for family in FAMILIES.values())
OWN = list(dict.fromkeys(name for op in OPS.values() for name in op.peers))  # peers that ops bring
CHILD = Path(__file__).with_name("dgl_child.py")
REMEDY = "install DGL in an environment of its own and give its interpreter by --dgl-python"


@dataclass
class Implementation:
    """A differentiable function in this process, on one case."""

    case: Case
    call: Callable[[], Tensor]  # on the inputs of the case
    note: str = ""  # what is to be known beside its figures
    is_exact: bool = False  # whether it accumulates bfloat16 in float32
    is_checked: bool = True  # whether its results can be compared with float64

    def __post_init__(self) -> None:
        self.now = clock.instants(next(iter(self.case.inputs.values())).device)

    def outputs(self, direction: Direction, grad_out: Tensor) -> list[Tensor]:
        """The output, or the gradients of `case.op.grads` from `grad_out`."""
        if direction == "forward":
            with torch.no_grad():
                return [self.call()]
        return list(torch.autograd.grad(self.call(), self._leaves(), grad_out))

    def time(self, direction: Direction, samples: int, calls: int) -> list[float]:
        """Mean seconds of `calls` calls after each other, `samples` times; a backward excludes its forward."""
        if direction == "forward":
            with torch.no_grad():
                return timed(self.call, self.now, samples, calls)
        out, leaves, grad_out = self.call(), self._leaves(), self.case.grad_out
        work = partial(torch.autograd.grad, out, leaves, grad_out, retain_graph=True)
        return timed(work, self.now, samples, calls)

    def memory(self, direction: Direction, meter: Meter) -> tuple[int, int] | None:
        """Bytes that one call takes on top, and of the whole process; a backward with its forward."""
        return taken(partial(self.outputs, direction, self.case.grad_out), meter)

    def _leaves(self) -> list[Tensor]:
        return [self.case.inputs[name] for name in self.case.op.grads]


def taken(work: Callable[[], Any], meter: Meter) -> tuple[int, int]:
    """Bytes that one call of `work` takes on top of what is there, and of the whole process or device."""
    resting = meter.resting()
    meter.reset()
    _ = work()
    peak = meter.peak()
    return max(0, peak - resting), peak


def local(name: str, case: Case) -> Implementation:
    """One of `PEERS` or of the op's own, or the kernels of a backend, by the differentiable ops that models run.

    Raises:
        BackendUnavailable: this machine cannot run the backend.
        UnsupportedOp: it has no such op.
    """
    if name in case.op.peers:
        call = partial(case.op.peers[name], **case.inputs)
        return Implementation(case, call, case.op.random, is_checked=not case.op.random)
    if name in ((*PEERS, "dgl") if case.shape else OWN):
        raise UnsupportedOp(case.name, [f"{name} has " + ("ops on a graph only" if case.shape else "layers only")])
    if name in PEERS:
        return Implementation(case, PEERS[name](case))
    rounds = name.endswith(BF16)
    if rounds and case.name != "spmm":
        raise UnsupportedOp(case.name, ["only sums gather in bfloat16"])
    gather = {"gather": "bf16"} if rounds else {}
    backend = backends.load(BackendConfig(name=name.removesuffix(BF16), **gather))
    assert isinstance(backend, KernelBackend)
    kernels = backend.make_kernels()
    note = backend.exception(case.graph, case.inputs["x"], case.width) if rounds else ""
    return Implementation(case, by_ops(kernels, case), note, case.dtype in kernels.narrow)


def by_ops(kernels: Kernels, case: Case) -> Callable[[], Tensor]:
    """The op of `case` on any kernels."""
    return lambda: case.op.call(kernels, case.graph, **case.inputs)


def names() -> list[str]:
    """The implementations that an op can be compared with."""
    kinds = backends.with_kernels()
    return [*PEERS, *OWN, "dgl", *kinds, *(name + BF16 for name, kind in kinds.items() if "bf16" in kind.gathers)]


def torch_csr(case: Case) -> Callable[[], Tensor]:
    """PyTorch's product with a sparse CSR matrix: MKL's on Intel's and AMD's processors, cuSPARSE's on GPUs."""
    matrix = _csr(case, case.graph, _values(case))
    return lambda: matrix @ case.inputs["x"]


def cusparse(case: Case) -> Callable[[], Tensor]:
    """Multiply by cuSPARSE, with the transpose kept for the backward, which torch else makes anew every time."""
    graph, value = case.graph, _values(case)
    transposed = value if "value" not in case.inputs else value[graph.perm.long()]
    matrices = _csr(case, graph, value), _csr(case, graph.transpose, transposed)
    return lambda: _Product.apply(case.inputs["x"], *matrices)


class _Product(torch.autograd.Function):
    """A matrix times x, differentiable in x by the product with its transpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        return matrix @ x

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None, None]:
        return ctx.transposed @ grad_out, None, None


def _values(case: Case) -> Tensor:
    """The weights of the matrix."""
    if case.name != "spmm":
        raise UnsupportedOp(case.name, ["torch's sparse CSR matrices have a sum product only"])
    graph = case.graph
    return case.inputs.get("value", torch.ones(graph.num_edges, dtype=case.dtype, device=graph.device))


def _csr(case: Case, graph: Graph, value: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch's CSR is in beta, and does not check what Graph did
        # MKL as torch is linked with it takes 32-bit indices; others would be converted at every call.
        return torch.sparse_csr_tensor(graph.rowptr.int(), graph.col, value, (graph.num_rows, graph.num_cols))


def torch_scatter(case: Case) -> Callable[[], Tensor]:
    """Compute as PyG does without its convs: messages of all edges in memory, then `scatter` and `softmax`."""
    row, col, inputs, nodes = case.graph.row, case.graph.col.long(), case.inputs, case.graph.num_rows

    def spmm() -> Tensor:
        message = inputs["x"].index_select(0, col)
        if "value" in inputs:
            message = message * inputs["value"].unsqueeze(-1)
        return scatter(message, row, dim_size=nodes, reduce="max" if case.name == "spmm_max" else "sum")

    def sddmm(a: str = "a", b: str = "b") -> Tensor:
        return (inputs[a].index_select(0, row) * inputs[b].index_select(0, col)).sum(-1)

    def attend(score: Tensor, x: Tensor) -> Tensor:
        alpha = softmax(score, row, num_nodes=nodes)
        return scatter(x.index_select(0, col) * alpha.unsqueeze(-1), row, dim_size=nodes)

    def fusedmm() -> Tensor:
        return scatter(inputs["y"].index_select(0, col) * sddmm("x", "y").unsqueeze(-1), row, dim_size=nodes)

    def activated() -> Tensor:
        summed = inputs["key"].index_select(0, col) + inputs["query"].index_select(0, row)
        return torch.nn.functional.leaky_relu(summed, 0.2)

    calls: dict[str, Callable[[], Tensor]] = {
        "spmm": spmm,
        "spmm_max": spmm,
        "sddmm": sddmm,
        "pair_dot": lambda: sddmm("x_dst", "x_src"),
        "edge_softmax": lambda: softmax(inputs["score"], row, num_nodes=nodes),
        "fusedmm": fusedmm,
        "gat_attention": lambda: attend(activated(), inputs["value"]),
        "gatv2_attention": lambda: attend((activated() * inputs["att"]).sum(-1), inputs["key"]),
        "dot_attention": lambda: attend(sddmm("query", "key"), inputs["value"]),
    }
    if case.name not in calls:
        raise UnsupportedOp(case.name, ["nobody wrote it with PyG's scatter and softmax yet"])
    return calls[case.name]


def pyg(case: Case) -> Callable[[], Tensor]:
    """The attention of PyG's own convs, without their linear layers."""
    inputs, heads, channels = case.inputs, case.heads, case.width // case.heads
    edge_index = torch.stack([case.graph.col.long(), case.graph.row])
    made: dict[str, Any] = {"bias": False, "add_self_loops": False}
    given: dict[str, Any] = {"size": (case.graph.num_cols, case.graph.num_rows)}
    if case.name == "pair_dot":  # as `InnerProductDecoder`
        src, dst = edge_index
        return lambda: (inputs["x_src"][src] * inputs["x_dst"][dst]).sum(dim=1)
    if case.name == "dot_attention":
        conv: Any = torch_geometric.nn.TransformerConv(channels, channels, heads, bias=False)
        given |= {"key": inputs["key"], "value": inputs["value"], "edge_attr": None}
        scale = channels**0.5  # which the conv divides by
        return lambda: conv.propagate(edge_index, query=inputs["query"] * scale, **given)
    if case.name == "gat_attention":
        conv = torch_geometric.nn.GATConv(channels, channels, heads, **made)
        x, scores = (inputs["value"], inputs["value"]), {"alpha": (inputs["key"], inputs["query"])}
    elif case.name == "gatv2_attention":
        conv = torch_geometric.nn.GATv2Conv(channels, channels, heads, **made)
        del conv.att  # the parameter, for the input takes its place
        conv.att = inputs["att"].unsqueeze(0)
        x = inputs["key"], inputs["query"]
        scores = {"x": x}
    else:
        raise UnsupportedOp(case.name, [f"PyG has code for pair_dot and {', '.join(ATTENTION)} only"])

    def attend() -> Tensor:
        alpha = conv.edge_updater(edge_index, **scores, edge_attr=None, **given)
        return conv.propagate(edge_index, x=x, alpha=alpha, **given)

    return attend


def pyg_compile(case: Case) -> Callable[[], Tensor]:
    """PyG under `torch.compile`: the attention of its convs, else its messages and `scatter`."""
    torch.compiler.reset()  # else the ninth case of one function would run uncompiled
    torch._functorch.config.donated_buffer = False  # so that a backward can be repeated
    return torch.compile(pyg(case) if case.name in ATTENTION else torch_scatter(case), dynamic=False)


PEERS: dict[str, Callable[[Case], Callable[[], Tensor]]] = {
    "torch-csr": torch_csr,
    "torch-scatter": torch_scatter,
    "pyg": pyg,
    "pyg-compile": pyg_compile,
    "cusparse": cusparse,
}


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
            if not graphs.col.is_cpu:
                raise BackendUnavailable("DGL is measured on the CPU only")
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
        nodes, ends = dict[str, int](), dict[str, Tensor]()
        for place, ((source, _, destination), graph) in enumerate(graphs.items()):
            ends |= {f"col_{place}": graph.col, f"row_{place}": graph.row.int()}
            nodes |= {source: graph.num_cols, destination: graph.num_rows}
        self.ask("graph", ends, nodes=nodes, relations=[*graphs])

    def ask(self, do: str, given: Mapping[str, Tensor] | None = None, **request: Any) -> dict[str, Any]:
        """The answer to one request, with which tensors go; `found` has those that come back.

        Raises:
            OutOfMemory: its memory ran out.
            RunFailed: it failed or died.
        """
        assert self._process.stdin
        assert self._process.stdout
        arrays: dict[str, Any] = {name: each.detach().numpy() for name, each in (given or {}).items()}
        np.savez(f"{self._folder.name}/given.npz", **arrays)
        try:
            print(json.dumps({"do": do, **request}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            status, reason = launch.verdict(self._process.wait(), self._log.read_text(errors="replace"))
            raise (OutOfMemory if status == "oom" else RunFailed)(reason)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise (OutOfMemory if memory.says_exhausted(answer["error"]) else RunFailed)(answer["error"])
        return answer

    def found(self) -> list[Tensor]:
        """The tensors of the latest answer."""
        with np.load(f"{self._folder.name}/found.npz") as arrays:
            return [torch.from_numpy(array) for array in arrays.values()]

    def time(self, samples: int, calls: int, direction: Direction = "forward") -> list[float]:
        """Mean seconds of `calls` calls of what was asked for last, `samples` times, by its own clock."""
        return self.ask("time", direction=direction, samples=samples, calls=calls)["seconds"]


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
        dgl.ask("case", {**case.inputs, "grad_out": case.grad_out}, op=case.name, grads=case.op.grads)

    def outputs(self, direction: Direction, grad_out: Tensor) -> list[Tensor]:
        if self._unlike is not None:
            grad_out = grad_out.masked_fill(self._unlike.unsqueeze(1), 0.0)
        self._dgl.ask("outputs", {"grad_out": grad_out}, direction=direction)
        result = self._dgl.found()
        if self._unlike is not None and direction == "forward":
            result[0][self._unlike] = 0.0
        return result

    def time(self, direction: Direction, samples: int, calls: int) -> list[float]:
        return self._dgl.time(samples, calls, direction)

    def memory(self, direction: Direction, meter: Meter) -> tuple[int, int] | None:
        answer = self._dgl.ask("memory", direction=direction)
        return (answer["increase"], answer["peak"]) if answer else None
