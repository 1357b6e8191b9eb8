"""Functions that convs and programs call: PyG's softmax over groups, `spmm` and `gcn_norm`; torch's `dropout`."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.conv import gcn_conv as pyg_norm
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import _softmax as pyg_softmax
from torch_geometric.utils import _spmm as pyg_spmm

from gnnbench.convs import _edges, _heads
from gnnbench.convs._cost import PRODUCT, Cost, Rates
from gnnbench.graph import Graph
from gnnbench.graph.cache import num_edges
from gnnbench.messages import norms
from gnnbench.messages.arguments import PLAIN
from gnnbench.ops.dropout import PIECE
from gnnbench.ops.edge import edge_softmax
from gnnbench.ops.features import dropout
from gnnbench.ops.kernels import REDUCTIONS
from gnnbench.ops.spmm import spmm
from gnnbench.patch import call
from gnnbench.patch.call import Declined
from gnnbench.patch.engine import CAPTURED, Engine, captured
from gnnbench.patch.stand_in import StandIn
from gnnbench.patch.status import TALLY

# Of softmax over groups, which saves nothing on two values; and over groups given by where they start, which are
# checked in every call.
GROUPS = Cost(Rates(150_000, 35, -40_000, -18, 9), Rates(230_000, 45, -80_000, -24, 12))
STARTS = Cost(*(Rates(0, 0, -150_000, -14, 5),) * 2)


_names: set[str] = set()


@functools.lru_cache(1)
def holders(loaded: int) -> list[ModuleType]:
    """Find the modules that hold one of our functions once so many are loaded, which takes a millisecond."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return [module for module in modules if not _names.isdisjoint(vars(module))]


class Function(StandIn):
    """The stand-in for a function wherever a module holds it by its name; `compute` takes its arguments."""

    def __init__(self, original: Any, compute: Callable[..., Tensor]) -> None:
        self.name = self.attribute = original.__name__
        _names.add(self.name)
        self.original = original
        self.names = tuple(inspect.signature(original).parameters)
        self.compute = compute

    def owners(self) -> list[ModuleType]:
        return [*holders(len(sys.modules)), sys.modules["__main__"]]

    def accelerated(self, engine: Engine, *args: Any, **kwargs: Any) -> Tensor:
        if self.name == "softmax" and args and type(args[0]) is Tensor:
            engine.policy.reject_small(args[0].numel() * 8)
        asked = call.named(self.names, args, kwargs)
        call.check_surroundings()
        return self.compute(engine, **asked)


def _softmax(
    engine: Engine, src: Any = None, index: Any = None, ptr: Any = None, num_nodes: Any = None, dim: Any = 0
) -> Tensor:
    """Softmax of src [E, ...] over the groups of `index` [E] or those that start at `ptr`.

    PyG adds 1e-16 to the sum of a group, which is at least one, so that this is lost to rounding.
    """
    if type(src) not in PLAIN or src.layout != torch.strided or not src.is_floating_point() or not src.dim():
        raise Declined("src is not a plain floating-point tensor")
    if dim not in (0, -src.dim()):
        raise Declined("a dimension other than the first")
    groups, starts = (index, False) if ptr is None else (ptr, True)
    if type(groups) is not Tensor or groups.dim() != 1 or groups.dtype != torch.int64:
        raise Declined("neither index nor ptr is a vector of 64-bit integers")
    if groups.device != src.device or (not starts and groups.size(0) != src.size(0)):
        raise Declined("index does not fit src")
    score = src.flatten(1) if src.dim() > 1 else src.unsqueeze(1)
    edges = score.size(0)
    engine.policy.weigh(groups, (STARTS if starts else GROUPS).price(score, edges))
    if starts:
        if captured(score):
            raise Declined(CAPTURED)
        kernels, _ = engine.on(score)
        col = torch.arange(edges, dtype=torch.int32, device=score.device)  # every edge has its own column
        graph = Graph.from_csr(groups, col, edges, kernels)
    else:
        num_nodes = (int(groups.max()) + 1 if edges else 0) if num_nodes is None else num_nodes
        if type(num_nodes) is not int:
            raise Declined("num_nodes is not a whole number")
        kernels, graph = engine.graph(score, groups, num_nodes, edges)
    alpha = edge_softmax(kernels, graph, _edges.in_rows(graph, score))
    alpha = _heads.owned(_edges.in_edge_index(graph, alpha, looped=False)).view(src.shape)
    wide = src.is_cuda and torch.is_autocast_enabled("cuda")  # which computes exp in float32
    return alpha.to(torch.promote_types(src.dtype, torch.float32) if wide else src.dtype)


def _spmm(engine: Engine, src: Any = None, other: Any = None, reduce: Any = "sum") -> Tensor:
    """The product of a sparse matrix, whose values need no gradient, and a dense one that needs one."""
    reduce = "sum" if reduce == "add" else reduce
    if reduce not in REDUCTIONS:
        raise Declined("an unknown reduction")
    if why := call.wrong_matrix(src):
        raise Declined(why)
    if type(other) not in PLAIN or other.layout != torch.strided or other.dim() != 2:
        raise Declined("other is not a plain matrix")
    if src.size(1) != other.size(0):
        raise Declined("the sizes of both matrices differ")
    engine.policy.weigh(src, PRODUCT.price(other, num_edges(src)))
    kernels, graph = engine.graph(other, src, src.size(0), src.size(1))
    weight = call.sparse_weight(None, src)
    if weight is not None:
        weight = _edges.in_rows(graph, weight.to(other.dtype) if isinstance(src, SparseTensor) else weight)
    return spmm(kernels, graph, other, weight, reduce)


class Norm(Function):
    """The stand-in for `gcn_norm` in the modules of PyG's layers, which do not edit what it gives them."""

    def owners(self) -> list[Any]:
        """Return PyG's modules that took it from where it is written, from where programs take theirs."""
        named = [module for module in super().owners() if module.__name__.startswith("torch_geometric.nn.")]
        return [module for module in named if module is not pyg_norm]

    def __call__(self, engine: Engine, *args: Any, **kwargs: Any) -> Any:
        """Edges and their norm, by PyG's own code unless they are known; never declined, as nothing differs."""
        asked = None if call.surroundings() else norms.read(args, kwargs)
        if asked is None:
            return self.original(*args, **kwargs)
        if (known := engine.norms.find(asked)) is not None:
            TALLY.accelerated(self.name, "kept")
            return known
        if captured(asked.edge_index):  # whose results are not there before it is replayed
            return self.original(*args, **kwargs)
        return engine.norms.make(asked, args, kwargs)


class Dropout(Function):
    """The stand-in for torch's `dropout`, through which layers call it too, where other numbers are asked for."""

    def __init__(self) -> None:
        super().__init__(F.dropout, _dropped)
        code, names = self.original.__code__, {**self.original.__globals__}
        self._own: Any = FunctionType(code, names, "dropout", self.original.__defaults__)
        names["dropout"] = self.original  # by which subclasses of tensors know it

    def enabled_by_default(self) -> bool:
        return False

    def is_repeated(self, *args: Any, **kwargs: Any) -> bool:
        """Return whether a call that draws may be one of two runs of a forward, as one without gradient may."""
        (training,) = args[2:3] or (kwargs.get("training", True),)
        within = torch.is_grad_enabled() or torch.is_inference_mode_enabled()
        return bool(training) and (call.repeated() or not within)

    def run_original(self, *args: Any, **kwargs: Any) -> Any:
        return self._own(*args, **kwargs)


def _dropped(
    engine: Engine, input: Any = None, p: Any = 0.5, training: Any = True, inplace: Any = False
) -> Tensor:
    if type(input) not in PLAIN or input.layout != torch.strided:
        raise Declined("its input is not a plain tensor")
    if type(p) not in (int, float) or not 0 <= p <= 1:
        raise Declined("p is not a number from 0 to 1")
    if not training or p == 0:
        return input
    engine.policy.reject_small(input.numel(), PIECE)
    kernels, _ = engine.on(input)
    if "dropout" not in kernels.accelerated or input.dtype not in (torch.float32, torch.float64):
        raise Declined(f"{kernels.name} has no dropout of this type")
    if inplace:
        return input.copy_(dropout(kernels, input, p))
    # Not where the forward may run twice, as features would be known only to the second run, which draws the same.
    if engine.policy.many(input) and torch.is_grad_enabled() and not call.repeated():
        return engine.features.dropped(kernels, input, p)
    return dropout(kernels, input, p)


SOFTMAX, SPMM = Function(pyg_softmax.softmax, _softmax), Function(pyg_spmm.spmm, _spmm)
NORM, DROPOUT = Norm(pyg_norm.gcn_norm, pyg_norm.gcn_norm), Dropout()
