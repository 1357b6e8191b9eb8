"""The story of one seed: a random model, what is done to it, and calls of it; told as what was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch_geometric.nn.aggr.base as aggregation
from torch import Tensor, nn

import gnnbench
from gnnbench import backends, convs, patch
from gnnbench.backends import isplib
from gnnbench.backends.isplib import layers as dense
from gnnbench.backends.isplib import spmm
from gnnbench.config import BackendConfig
from gnnbench.convs import _overrides
from gnnbench.errors import GnnbenchError
from gnnbench.graph import Graph
from gnnbench.ops.dropout import Dropout, drawn_seed
from gnnbench.ops.features import Features
from gnnbench.ops.kernels import Kernels
from gnnbench.patch.policy import Policy
from tests.support.dropin import BACKEND
from tests.support.fuzz import inputs, layers
from tests.support.fuzz.edits import edit
from tests.support.fuzz.rounding import Rounding, first_of_equals

WAYS = ("bind", "prepare", "accelerate", "patched")
EDGE_DIM = 3
RAISED = "error"
CALLS: Counter[str] = Counter()  # of compiled kernels
GATES = ("LEAST", "LEAST_WEIGHT", "LEAST_ROWS", "LEAST_WORK", "NARROW", "TEAM_WORK")
COUNTED = {
    "linear": (dense.native_linear, ("forward", "backward")),
    "norm": (dense.native_norm, ("forward", "backward")),
    "dropout": (dense.native_dropout, ("dropout",)),
    "embedding": (dense.native_embedding, ("sum", "add")),
    "spmm": (spmm.native, ("sum", "again", "extremum", "extremum_backward")),
}


class Seed(NamedTuple):
    """Hold what a story follows from."""

    number: int
    way: str  # in which kernels come to run it


Chapter = dict[str, list[Any]]  # what was seen of each thing, in its order


class Story(NamedTuple):
    """Hold what was seen, a chapter for every edit and step, and why kernels refused to go on, if they did."""

    chapters: list[Chapter]
    refused: str = ""


class Refused(Exception):
    """The model cannot be computed exactly, as bound models say of what was changed since."""


@contextmanager
def open_gates() -> Iterator[None]:
    """Kernels take the smallest of work, and calls of the compiled ones are counted."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(patch, "_policy", Policy(min_gathered=0, min_features=1)))
        for name in GATES:
            stack.enter_context(mock.patch.object(dense, name, 1))
        _overrides.STAND_INS[first_of_equals] = aggregation.scatter
        stack.callback(_overrides.STAND_INS.pop, first_of_equals)  # and no more, as others may be added meanwhile
        stack.enter_context(mock.patch.object(aggregation, "scatter", first_of_equals))
        for kind, (native, names) in COUNTED.items() if not isplib.MISSING else ():
            for name in names:
                counted = _counted(f"{kind}.{name}", getattr(native, name))
                stack.enter_context(mock.patch.object(native, name, counted))
        yield


def _counted(label: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        CALLS[label] += 1
        return kernel(*args, **kwargs)

    return call


def play(seed: Seed, *, ours: bool, rounding: int | None = None) -> Story:
    """Tell the story of a seed, by kernels if `ours`; with errors of that number if `rounding` is one."""
    told = _Teller(seed, ours)
    try:
        with nullcontext() if rounding is None else Rounding(rounding):
            told.tell()
    except Refused as refusal:
        return Story(told.chapters[:-1], str(refusal))
    finally:
        if seed.way in ("patched", "accelerate"):
            gnnbench.unpatch_pyg()
    return Story(told.chapters)


class _Teller:
    def __init__(self, seed: Seed, ours: bool) -> None:
        self.draw, self.way, self.ours = Random(seed.number), seed.way, ours
        torch.manual_seed(seed.number)
        self.chapters: list[Chapter] = [{}]
        self.sparse = False

    def tell(self) -> None:
        draw = self.draw
        self.rows, width = draw.choice(inputs.ROWS), draw.choice(layers.WIDTHS)
        self.dtype = draw.choices((torch.float64, torch.float32), (3, 1))[0]
        make = layers.stack if self.way == "prepare" else layers.net
        self.model = layers.initialised(make(draw, width, EDGE_DIM)).to(self.dtype)
        self.width = width
        self.edge_index = self.adj = inputs.edge_index(draw, self.rows)
        self.edge_attr = torch.randn(self.edge_index.size(1), EDGE_DIM, dtype=self.dtype)
        self.x = self._features()
        for _ in range(draw.choice((0, 0, 1, 2))):
            self._edit()
        self._bind()
        for _ in range(draw.choice((0, 0, 1, 2))):
            self._edit()
        for index in range(draw.randint(1, 4)):
            torch.manual_seed(index)
            self._step()
            if draw.random() < 0.2:
                self._edit()

    def _see(self, what: str, value: Any) -> None:
        if isinstance(value, Tensor):
            if value.is_floating_point() and value.layout == torch.strided:
                self._note(what, value.detach().resolve_neg().clone())
        elif isinstance(value, (tuple, list)):
            for index, each in enumerate(each for each in value if not _is_edges(each)):
                self._see(f"{what}[{index}]", each)
        elif isinstance(value, Features):
            x = value.value.new_zeros(value.shape)
            self._see(what, x.index_put((value.graph.row, value.graph.col.long()), value.value.detach()))
        elif value is None or isinstance(value, (bool, str)):
            self._note(what, value)

    def _see_gradient(self, name: str, tensor: Tensor) -> None:
        """Tell a gradient, which is zero where it is None: PyG leaves out layers where a graph has no edges."""
        if tensor.requires_grad or tensor.grad is not None:
            self._see(f"gradient of {name}", torch.zeros_like(tensor) if tensor.grad is None else tensor.grad)

    def _note(self, what: str, value: Any) -> None:
        self.chapters[-1].setdefault(what, []).append(value)

    def _try(self, action: Callable[[], Any]) -> Any:
        """The result of an action, None where it raised, which is seen too."""
        try:
            return action()
        except GnnbenchError as error:
            raise Refused(f"{type(error).__name__}: {error}") from error
        except Exception as error:
            self._note(RAISED, error)

    def _features(self) -> Tensor:
        x = inputs.features(self.draw, self.model, self.rows, self.width, self.dtype)
        self._see("features", x)  # whose type says how precise what follows can be
        return x

    def _edit(self) -> None:
        self.chapters.append({})

        def act() -> None:
            self.model = edit(self.draw, self.model, self._see)

        self._try(act)
        if self.sparse:  # features without zeros, of which dropout would draw other random numbers
            self.model.drop.p = 0.0

    def _bind(self) -> None:
        draw = self.draw
        flags = {
            name: draw.random() < 0.6 for name in ("transform_first", "fold_norm", "keep_aggregation", "dropout")
        }
        threads = draw.choices((1, 2), (9, 1))[0]
        torch.set_num_threads(threads)
        if self.way == "prepare":
            self._prepare(flags)
        elif self.way == "bind":
            kernels = Kernels() if isplib.MISSING else isplib.IsplibKernels()
            if self.ours:
                self._try(lambda: convs.bind(self.model, kernels, layers=True, **flags))
                self.adj = Graph.from_edge_index(self.edge_index, self.rows, layout=kernels)
            elif flags["dropout"]:
                self._hash_dropout()
        elif self.way == "accelerate" and self.ours:
            gnnbench.accelerate(self.model, BACKEND)

    def _prepare(self, flags: dict[str, bool]) -> None:
        """Prepare as the harness does, without zeros of features where none of them is dropped otherwise."""
        drops = any(type(layer) is nn.Dropout and layer.p for layer in self.model.modules())
        self.sparse = not drops
        config = BackendConfig(name=BACKEND, sparse_features=self.sparse, **flags)
        backend = backends.backend_type(BACKEND)(config)
        if self.ours:
            graph = Graph.from_edge_index(self.edge_index, self.rows)
            data = SimpleNamespace(x=self.x, num_edges=graph.num_edges, graph=lambda *_: graph)
            prepared = self._try(lambda: backend.prepare(self.model, data))
            if prepared is not None:
                self.adj, self.x = prepared.adj, self.x if prepared.x is None else prepared.x
        elif flags["dropout"]:
            self._hash_dropout()

    def _hash_dropout(self) -> None:
        """Let PyTorch drop what our kernels are to drop; without them both drop what PyTorch does."""
        for layer in self.model.modules() if not isplib.MISSING else ():
            if type(layer) is nn.Dropout and layer.p:
                layer.forward = HashDropout(layer)  # type: ignore[method-assign]

    def _step(self) -> None:
        draw = self.draw
        self.chapters.append({})
        if draw.random() < 0.4:
            self.model.train(draw.random() < 0.6)
        if draw.random() < 0.3 and self.way != "prepare":
            self.x = self._features()
        if isinstance(self.x, Tensor) and self.x.is_leaf and self.x.is_floating_point() and self.way != "prepare":
            self.x.requires_grad_(draw.random() < 0.7)
        mode = draw.choices((nullcontext, torch.no_grad, torch.inference_mode), (10, 1, 1))[0]
        how, second, scale = draw.random(), draw.random() < 0.05, draw.random() < 0.1

        def act() -> None:
            with mode(), gnnbench.patched(BACKEND) if self.ours and self.way == "patched" else nullcontext():
                out = self._call(how)
                if scale and isinstance(out, Tensor) and out.is_floating_point():
                    out *= 0.5
                self._see("output", out)
                self._see("output requires grad", isinstance(out, Tensor) and out.requires_grad)
                if isinstance(out, Tensor) and out.requires_grad:
                    self._backward(out, second)

        self._try(act)
        self._told_state(clear=draw.random() < 0.8)

    def _call(self, how: float) -> Any:
        """The output of the model, or of a part of it, called in one of the ways that programs have."""
        model, x = self.model, self.x
        rest = (self.adj,)
        if self.way == "prepare":
            edges = {} if getattr(model, "embed_edges", None) is None else {"edge_attr": self.edge_attr}
            return model(x, *rest, **edges)
        if how < 0.6:
            return model(x, self.adj, self.edge_attr)
        if how < 0.7:
            parameters = {
                name: tensor.detach().clone().requires_grad_() for name, tensor in model.named_parameters()
            }
            return torch.func.functional_call(model, parameters, (x, self.adj, self.edge_attr))
        for block in model.blocks:
            parts = [block]
            if isinstance(block, nn.Sequential) and how < 0.8:
                parts = [*block]
            elif isinstance(block, nn.Sequential) and how < 0.9:
                parts = [block[:1], block[1:]]
            elif isinstance(block, nn.Sequential):
                parts = [block[: len(block) // 2 + 1]]
            for part in parts:
                x = layers.called(part, x, self.adj, self.edge_attr)
        return x

    def _backward(self, out: Tensor, second: bool) -> None:
        gradient = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
        if second:
            wanted = [p for p in [self.x, *self.model.parameters()] if isinstance(p, Tensor) and p.requires_grad]
            first = torch.autograd.grad(out, wanted, gradient, create_graph=True, allow_unused=True)
            squares = [each.square().sum() for each in first if each is not None and each.requires_grad]
            if squares:
                torch.stack(squares).sum().backward()
        else:
            out.backward(gradient)

    def _told_state(self, clear: bool) -> None:
        """Gradients and buffers; parameters then take a step."""
        if isinstance(self.x, Tensor):
            self._see_gradient("x", self.x)
            self.x.grad = None
        for name, parameter in self.model.named_parameters():
            self._see_gradient(name, parameter)
            if parameter.grad is not None:
                with torch.no_grad():
                    parameter -= 1e-3 * parameter.grad.clamp(-1, 1)
            if clear:
                parameter.grad = None
        for name, buffer in self.model.named_buffers():
            self._see(f"buffer {name}", buffer if buffer.is_floating_point() else str(buffer.tolist()))


def _is_edges(value: Any) -> bool:
    """Return whether a value may be edges or their gradient: a tensor to PyG, and a Graph to bound models."""
    return (
        value is None or isinstance(value, Graph) or (isinstance(value, Tensor) and not value.is_floating_point())
    )


class HashDropout:
    """Drop what a dropout layer drops by the hash that kernels use, in plain PyTorch."""

    def __init__(self, layer: nn.Dropout) -> None:
        self.layer = layer

    def __call__(self, x: Tensor) -> Tensor:
        seed = drawn_seed(self.layer.p, x.device) if self.layer.training else None
        return x if seed is None else x * Dropout(self.layer.p, seed).multiplier_of(x).to(x)
