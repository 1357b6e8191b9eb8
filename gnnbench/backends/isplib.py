"""CPU kernels: `IsplibKernels` calls the compiled ones, `Backend` prepares graphs and models for them."""

from __future__ import annotations

import os
from math import log2, prod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from gnnbench import convs
from gnnbench.backends import base
from gnnbench.datasets import NodeDataset
from gnnbench.errors import BackendUnavailable, did_you_mean
from gnnbench.graph import Compressed, Graph
from gnnbench.ops.kernels import Kernels

try:  # after torch, so that both share one OpenMP runtime
    import gnnbench.backends._isplib_edge as edge
    import gnnbench.backends._isplib_layout as layout
    import gnnbench.backends._isplib_spmm as spmm

    MISSING = ""
except ImportError as error:
    MISSING = str(error)

ISA = ("baseline", "avx2", "avx512")


def _l2_bytes() -> int:
    try:
        found = os.sysconf("SC_LEVEL2_CACHE_SIZE")
    except (AttributeError, ValueError, OSError):  # not on this system
        found = 0
    return found if found > 0 else 1 << 20


L2_BYTES = _l2_bytes()
LINE_BYTES = 64  # of a cache line, and so of a tile of features
EDGES_PER_BLOCK = 8  # and row, below which walking the blocks costs more than it saves


class Blocks(NamedTuple):
    """A graph's edges by blocks of 2^shift columns, then by row (see `cython_kernels/spmm_blocked.h`)."""

    start: Tensor  # [blocks, N + 1] int32
    local: Tensor  # [E] uint16
    shift: int


def isa_level() -> int:
    """Index into `ISA` of the instruction set in use: the best of this processor, or lower by `GNNBENCH_ISA`.

    Raises:
        BackendUnavailable: `GNNBENCH_ISA` is unknown or more than this processor has.
    """
    highest: int = layout.highest_isa()
    asked = os.environ.get("GNNBENCH_ISA", "") or ISA[highest]
    if asked not in ISA:
        raise BackendUnavailable(f"GNNBENCH_ISA={asked!r} is unknown{did_you_mean(asked, ISA)}")
    if ISA.index(asked) > highest:
        raise BackendUnavailable(
            f"GNNBENCH_ISA={asked!r} is more than this processor has; allowed: {', '.join(ISA[: highest + 1])}"
        )
    return ISA.index(asked)


def report() -> dict[str, str | int]:
    """What `doctor` and results say of the kernels: whether they are built, instruction set, OpenMP, threads."""
    if MISSING:
        return {"built": "no", "reason": MISSING}
    return {
        "built": "yes",
        "isa": ISA[isa_level()],
        "openmp": layout.openmp_version(),
        "threads": torch.get_num_threads(),
    }


class IsplibKernels(Kernels):
    """Cython kernels for float32 and float64 on CPU; results do not depend on the number of threads.

    Args:
        isa: index into `ISA`; None for what `isa_level` finds.
        threads: None for `torch.get_num_threads()` at every call.
    """

    name: ClassVar[str] = "isplib"
    accelerated: ClassVar[frozenset[str]] = frozenset({"spmm", "spmm_extremum", "sddmm", "edge_softmax"})

    def __init__(self, isa: int | None = None, threads: int | None = None) -> None:
        self.isa = isa_level() if isa is None else isa
        self.threads = threads

    def unsupported(self, op: str, graph: Graph, *tensors: Tensor | None) -> list[str]:
        reasons = []
        for tensor in tensors:
            if tensor is not None and tensor.device.type != "cpu":
                reasons.append(f"a tensor is on {tensor.device}; isplib runs on the CPU")
            elif tensor is not None and tensor.dtype not in (torch.float32, torch.float64):
                reasons.append(f"a tensor has type {tensor.dtype}; isplib computes in float32 and float64")
            elif tensor is not None and op == "edge_softmax" and tensor.size(-1) > edge.MAX_HEADS:
                reasons.append(f"{tensor.size(-1)} heads; isplib normalises at most {edge.MAX_HEADS}")
        return reasons

    @property
    def _threads(self) -> int:
        return self.threads or torch.get_num_threads()

    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        row, col = row.contiguous(), col.contiguous()
        out = _compressed(num_rows, row.numel())
        layout.csr(*_addresses(row, col, *out), row.numel(), num_rows, num_cols, self._threads)
        return out

    def transpose(self, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
        out = _compressed(num_cols, col.numel())
        sizes = rowptr.numel() - 1, col.numel(), num_cols
        layout.transpose(*_addresses(rowptr, col, *out), *sizes, self._threads)
        return out

    def is_symmetric(self, rowptr: Tensor, col: Tensor) -> bool:
        symmetric: bool = layout.is_symmetric(*_addresses(rowptr, col), rowptr.numel() - 1, self._threads)
        return symmetric

    def with_self_loops(self, rowptr: Tensor, col: Tensor) -> tuple[Tensor, Tensor]:
        rows, out_rowptr = rowptr.numel() - 1, torch.empty_like(rowptr)
        layout.self_loop_rows(*_addresses(rowptr, col, out_rowptr), rows)
        out_col = torch.empty(int(out_rowptr[-1]), dtype=torch.int32)
        layout.self_loop_cols(*_addresses(rowptr, col, out_rowptr, out_col), rows, self._threads)
        return out_rowptr, out_col

    def plan(self, graph: Graph) -> None:
        if "blocks" in graph.plans:
            return
        shift = min(16, int(log2(L2_BYTES / 2 / LINE_BYTES)))
        count = -(-graph.num_cols // (1 << shift))
        graph.plans["blocks"] = None
        if 0 < EDGES_PER_BLOCK * graph.num_rows * count <= graph.num_edges:
            start = torch.zeros(count, graph.num_rows + 1, dtype=torch.int32)
            local = torch.empty(graph.num_edges, dtype=torch.uint16)
            tensors = graph.rowptr, graph.col, start, local
            spmm.plan(*_addresses(*tensors), graph.num_rows, count, shift, self._threads)
            graph.plans["blocks"] = Blocks(start, local, shift)

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        out = torch.empty(graph.num_rows, *x.shape[1:], dtype=x.dtype)
        heads = 1 if value is None or value.dim() == 1 else value.size(1)
        width = prod(x.shape[1:]) // max(heads, 1)
        common = reduce == "mean", x.dtype == torch.float64, self.isa, self._threads
        # Weights cost a pass to bring them into the order of the blocks.
        if heads == 1 and x.nbytes > (L2_BYTES if value is None else 4 * L2_BYTES):
            self.plan(graph)
            if (blocks := graph.plans["blocks"]) is not None:
                tile = LINE_BYTES // x.element_size()
                packed = torch.empty(graph.num_cols, tile, dtype=x.dtype)
                sums = torch.empty(graph.num_rows, tile, dtype=x.dtype)
                ordered = None if value is None else torch.empty_like(value)
                tensors = graph.rowptr, blocks.start, blocks.local, value, x, ordered, packed, sums, out
                sizes = graph.num_rows, graph.num_cols, width, len(blocks.start), blocks.shift
                spmm.blocked_sum(*_addresses(*tensors), *sizes, *common)
                return out
        spmm.sum(*_addresses(graph.rowptr, graph.col, value, x, out), graph.num_rows, heads, width, *common)
        return out

    def spmm_extremum(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        out = torch.empty(graph.num_rows, x.size(1), dtype=x.dtype)
        arg_out = torch.empty(graph.num_rows, x.size(1), dtype=torch.int32)
        spmm.extremum(
            *_addresses(graph.rowptr, graph.col, value, x, out, arg_out),
            graph.num_rows,
            x.size(1),
            reduce == "min",
            x.dtype == torch.float64,
            self.isa,
            self._threads,
        )
        return out, arg_out

    def spmm_extremum_backward(
        self, graph: Graph, arg_out: Tensor, grad_out: Tensor, value: Tensor | None
    ) -> Tensor:
        grad_out, value = grad_out.contiguous(), None if value is None else value.contiguous()
        grad_x = torch.zeros(graph.num_cols, grad_out.size(1), dtype=grad_out.dtype)
        spmm.extremum_backward(
            *_addresses(graph.col, value, arg_out, grad_out, grad_x),
            graph.num_rows,
            grad_out.size(1),
            grad_out.dtype == torch.float64,
            self._threads,
        )
        return grad_x

    def sddmm(self, graph: Graph, a: Tensor, b: Tensor) -> Tensor:
        a, b = a.contiguous(), b.contiguous()
        heads, width = (1, a.size(1)) if a.dim() == 2 else a.shape[1:]
        # Nothing is written where there are no channels to sum over.
        new = torch.empty if width else torch.zeros
        out = new(graph.num_edges, *a.shape[1:-1], dtype=a.dtype)
        edge.sddmm(
            *_addresses(graph.rowptr, graph.col, a, b, out),
            graph.num_rows,
            heads,
            width,
            a.dtype == torch.float64,
            self.isa,
            self._threads,
        )
        return out

    def edge_softmax(self, graph: Graph, score: Tensor) -> Tensor:
        score = score.contiguous()
        alpha = torch.empty_like(score)
        edge.softmax(
            *_addresses(graph.rowptr, score, alpha),
            graph.num_rows,
            score.size(1),
            score.dtype == torch.float64,
            self.isa,
            self._threads,
        )
        return alpha

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        alpha, grad_alpha = alpha.contiguous(), grad_alpha.contiguous()
        grad_score = torch.empty_like(alpha)
        edge.softmax_backward(
            *_addresses(graph.rowptr, alpha, grad_alpha, grad_score),
            graph.num_rows,
            alpha.size(1),
            alpha.dtype == torch.float64,
            self.isa,
            self._threads,
        )
        return grad_score


def _addresses(*tensors: Tensor | None) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def _compressed(rows: int, edges: int) -> Compressed:
    return Compressed(
        torch.empty(rows + 1, dtype=torch.int64),
        torch.empty(edges, dtype=torch.int32),
        torch.empty(edges, dtype=torch.int32),
    )


class Backend(base.Backend):
    """Untouched PyG models whose convs run on `IsplibKernels`."""

    name = "isplib"
    takes_rewrites = True

    @classmethod
    def unavailable(cls) -> list[str]:
        if not MISSING:
            return []
        return [
            f"its kernels are not built ({MISSING}); install a C compiler such as gcc, then run `pip install -e .`"
        ]

    def prepare(self, model: torch.nn.Module, dataset: NodeDataset) -> base.Prepared:
        kernels = IsplibKernels()
        bindings = convs.bind(
            model, kernels, transform_first=self.config.transform_first, fold_norm=self.config.fold_norm
        )
        graph = Graph.from_edge_index(dataset.edge_index, dataset.num_nodes, layout=kernels)
        convs.warm(model, graph)
        return base.Prepared(graph, bindings)
