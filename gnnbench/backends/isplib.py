"""CPU kernels: `IsplibKernels` calls the compiled ones, `Backend` prepares graphs and models for them."""

from __future__ import annotations

import os
from math import prod
from typing import ClassVar

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

    def csr(self, row: Tensor, col: Tensor, num_rows: int, num_cols: int) -> Compressed:
        row, col = row.contiguous(), col.contiguous()
        out = _compressed(num_rows, row.numel())
        layout.csr(
            row.data_ptr(),
            col.data_ptr(),
            row.numel(),
            *(part.data_ptr() for part in out),
            num_rows,
            num_cols,
            self._threads,
        )
        return out

    def transpose(self, rowptr: Tensor, col: Tensor, num_cols: int) -> Compressed:
        out = _compressed(num_cols, col.numel())
        layout.transpose(
            rowptr.data_ptr(),
            col.data_ptr(),
            rowptr.numel() - 1,
            col.numel(),
            *(part.data_ptr() for part in out),
            num_cols,
            self._threads,
        )
        return out

    def is_symmetric(self, rowptr: Tensor, col: Tensor) -> bool:
        symmetric: bool = layout.is_symmetric(rowptr.data_ptr(), col.data_ptr(), rowptr.numel() - 1, self._threads)
        return symmetric

    def with_self_loops(self, rowptr: Tensor, col: Tensor) -> tuple[Tensor, Tensor]:
        rows = rowptr.numel() - 1
        out_rowptr = torch.empty_like(rowptr)
        layout.self_loop_rows(rowptr.data_ptr(), col.data_ptr(), rows, out_rowptr.data_ptr())
        out_col = torch.empty(int(out_rowptr[-1]), dtype=torch.int32)
        layout.self_loop_cols(
            rowptr.data_ptr(),
            col.data_ptr(),
            rows,
            out_rowptr.data_ptr(),
            out_col.data_ptr(),
            self._threads,
        )
        return out_rowptr, out_col

    @property
    def _threads(self) -> int:
        return self.threads or torch.get_num_threads()

    def spmm(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> Tensor:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        out = torch.empty(graph.num_rows, *x.shape[1:], dtype=x.dtype)
        heads = 1 if value is None or value.dim() == 1 else value.size(1)
        spmm.sum(
            graph.rowptr.data_ptr(),
            graph.col.data_ptr(),
            0 if value is None else value.data_ptr(),
            x.data_ptr(),
            out.data_ptr(),
            graph.num_rows,
            heads,
            prod(x.shape[1:]) // max(heads, 1),
            reduce == "mean",
            x.dtype == torch.float64,
            self.isa,
            self._threads,
        )
        return out

    def spmm_extremum(self, graph: Graph, x: Tensor, value: Tensor | None, reduce: str) -> tuple[Tensor, Tensor]:
        x, value = x.contiguous(), None if value is None else value.contiguous()
        out = torch.empty(graph.num_rows, x.size(1), dtype=x.dtype)
        arg_out = torch.empty(graph.num_rows, x.size(1), dtype=torch.int32)
        spmm.extremum(
            graph.rowptr.data_ptr(),
            graph.col.data_ptr(),
            0 if value is None else value.data_ptr(),
            x.data_ptr(),
            out.data_ptr(),
            arg_out.data_ptr(),
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
            graph.col.data_ptr(),
            0 if value is None else value.data_ptr(),
            arg_out.data_ptr(),
            grad_out.data_ptr(),
            grad_x.data_ptr(),
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
            graph.rowptr.data_ptr(),
            graph.col.data_ptr(),
            a.data_ptr(),
            b.data_ptr(),
            out.data_ptr(),
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
            graph.rowptr.data_ptr(),
            score.data_ptr(),
            alpha.data_ptr(),
            graph.num_rows,
            score.size(1),
            score.dtype == torch.float64,
            self.isa,
            self._threads,
        )
        return alpha

    def edge_softmax_backward(self, graph: Graph, alpha: Tensor, grad_alpha: Tensor) -> Tensor:
        grad_alpha = grad_alpha.contiguous()
        grad_score = torch.empty_like(alpha)
        edge.softmax_backward(
            graph.rowptr.data_ptr(),
            alpha.data_ptr(),
            grad_alpha.data_ptr(),
            grad_score.data_ptr(),
            graph.num_rows,
            alpha.size(1),
            alpha.dtype == torch.float64,
            self.isa,
            self._threads,
        )
        return grad_score


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
