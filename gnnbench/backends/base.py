"""The interface of a backend: it prepares a model and an adjacency, and says what it bound and cannot do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch

from gnnbench.errors import UnsupportedOp
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from gnnbench.config import BackendConfig
    from gnnbench.graph import CSRBuilder, Graph
    from gnnbench.graph.union import Union
    from gnnbench.ops.kernels import Kernels


@dataclass(frozen=True)
class Prepared:
    """The arguments of the model beside its features, and how its convs were bound."""

    adj: Any
    bindings: list[Binding]
    kernels: Kernels | None = None  # they execute the convs, with `adj` a Graph; None where PyG does
    x: Any = None  # what takes the place of the features; None for themselves


class Collated(NamedTuple):
    """The arguments of a model for a batch of graphs; no segments without a readout."""

    x: torch.Tensor
    adj: Any
    segments: Any = None
    edge_attr: torch.Tensor | None = None


class Edges(Protocol):
    """The edges of a graph, as they are or in rows: of a dataset, or of a sampled batch."""

    @property
    def edge_index(self) -> torch.Tensor:
        """[2, E] int64, source and destination, in main memory."""

    def graph(self, device: torch.device, layout: CSRBuilder | None = None) -> Graph:
        """In rows on `device`."""


class Inputs(Edges, Protocol):
    """One graph with what its nodes are given: features, or ids of vectors that are trained."""

    @property
    def x(self) -> torch.Tensor:
        """[N, F] float32, or [N] int64."""

    @property
    def num_nodes(self) -> int:
        """N."""


class Backend(ABC):
    """One way to execute a model's convs.

    A backend is a module of this package, or of another one under the entry-point group
    `gnnbench.backends`, with a class `Backend`.
    """

    name: ClassVar[str]
    takes_rewrites: ClassVar[bool] = False
    kernels: ClassVar[type[Kernels] | None] = None  # those that `patch_pyg` runs PyG's convs on
    gathers: ClassVar[tuple[str, ...]] = ("float32",)  # the types that features may be gathered in
    loaders: ClassVar[tuple[str, ...]] = ("ours",)  # the loaders that may make its batches
    sorts: ClassVar[bool] = False  # whether its batches have their edges sorted by destination
    automatic_on: ClassVar[str] = ""  # type of device on which `patch_pyg` takes its kernels unasked; empty: none
    remark: ClassVar[str] = ""  # of `gnnbench doctor`
    anywhere: ClassVar[bool] = False  # whether it runs wherever its `home` is
    home = torch.device("cpu")

    def __init__(self, config: BackendConfig) -> None:
        self.config = config

    @property
    def device(self) -> torch.device:
        """Where model and features live."""
        return self.home

    @property
    def tolerance(self) -> float | None:
        """Relative error that this backend owns up to, for parity; None for that of summing in another order."""
        return None

    @property
    def without_autocast(self) -> str:
        """Why its models cannot run under `torch.autocast`, with a remedy; empty if they can."""
        return ""

    @classmethod
    def unavailable(cls) -> list[str]:
        """Reasons why this machine cannot run the backend, each with its remedy; empty if it can."""
        return []

    @abstractmethod
    def prepare(self, model: torch.nn.Module, dataset: Inputs) -> Prepared:
        """Everything done once per graph and model, reported as preparation time.

        Raises:
            UnsupportedOp: the backend cannot run this model exactly.
        """

    def bind(self, model: torch.nn.Module) -> list[Binding]:
        """Prepare a model once, as `prepare` does, where every step has another graph, which `collate` makes.

        Raises:
            UnsupportedOp: the backend cannot run this model exactly, or takes one graph only.
        """
        raise UnsupportedOp(f"backend {self.name!r} on batches of graphs", ["it prepares one graph once"])

    def collate(
        self, union: Union, graphs: torch.Tensor, x: torch.Tensor, edge_attr: torch.Tensor | None, *, pooled: bool
    ) -> Collated:
        """The arguments of a bound model for a batch of graphs [B] int64, in this order; may run in a thread.

        Args:
            union: all graphs, on the backend's device.
            x: [N, F] of all nodes of the union.
            edge_attr: [E, D] of all edges, None where the model takes none.
            pooled: whether the model has a readout.
        """
        raise NotImplementedError

    def adjacency(self, edges: Edges, layout: CSRBuilder | None) -> Any:
        """Return what a bound model takes beside features, for any graph; may run in a thread.

        Args:
            layout: what `layout()` returned.
        """
        raise UnsupportedOp(f"backend {self.name!r} on samples or types", ["it prepares one graph once"])

    def warm(self, model: torch.nn.Module, adj: Any) -> None:  # noqa: B027
        """Compute what a bound model keeps of what `adjacency` returned, or of a dict of these by relation."""

    def layout(self) -> CSRBuilder | None:
        """How the edges of many graphs are sorted and put together; None for the fastest way there is."""
        return None


def owners(ptr: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The arguments of PyG's pooling beside nodes: the graph of each [n] int64, and the number of graphs."""
    return torch.repeat_interleave(ptr.diff()), ptr.numel() - 1


class EdgeIndexBackend(Backend):
    """A backend whose models are called with a plain `edge_index`."""

    loaders = ("ours", "pyg")

    def prepare(self, model: torch.nn.Module, dataset: Inputs) -> Prepared:
        return Prepared(dataset.edge_index.to(self.device), self.bind(model))

    def bind(self, model: torch.nn.Module) -> list[Binding]:
        return []

    def collate(
        self, union: Union, graphs: torch.Tensor, x: torch.Tensor, edge_attr: torch.Tensor | None, *, pooled: bool
    ) -> Collated:
        segments = owners(union.ptr(graphs)) if pooled else None
        edges = None if edge_attr is None else union.gather_edges(graphs, edge_attr)
        return Collated(union.gather(graphs, x), union.edge_index(graphs), segments, edges)

    def adjacency(self, edges: Edges, layout: CSRBuilder | None) -> torch.Tensor:
        return edges.edge_index.to(self.device)


class KernelBackend(Backend):
    """Untouched PyG models whose convs run on `kernels`."""

    takes_rewrites = True
    sorts = True
    kernels: ClassVar[type[Kernels]]

    @classmethod
    def can_be_tuned(cls) -> bool:
        """Return whether the kernels declare choices."""
        from gnnbench.ops.kernels import Kernels

        return cls.kernels.choices is not Kernels.choices

    def make_kernels(self) -> Kernels:
        """Kernels as the configuration asks for them."""
        return self.kernels()

    def exception(self, graph: Graph, x: torch.Tensor, width: int) -> str:
        """Why a sum over x gathers in another type than the configuration asks for; empty if it does not."""
        return ""

    def prepare(self, model: torch.nn.Module, dataset: Inputs) -> Prepared:
        # Imported here, for backends that run PyG untouched load none of this.
        from gnnbench import convs
        from gnnbench.messages import bound
        from gnnbench.ops import features

        kernels, x = self.make_kernels(), dataset.x.to(self.device)
        # On GPUs, fast at dense products, none without zeros gained.
        fast = kernels.device_type == "cpu" and "spmm" in kernels.accelerated
        sparse = self.config.sparse_features and fast and features.mostly_zero(x)
        rewrites = {**self.rewrites(), convs.SPARSE: sparse}
        bindings = convs.bind(model.to(self.device), kernels, rest=bound.bind, **rewrites)
        graph = dataset.graph(self.device, kernels)
        convs.warm(model, graph, x)
        sparse = any(convs.SPARSE in binding.rewrites for binding in bindings)
        return Prepared(graph, bindings, kernels, features.Features.of(kernels, x) if sparse else None)

    def bind(self, model: torch.nn.Module) -> list[Binding]:
        from gnnbench import convs
        from gnnbench.messages import bound

        rewrites = {**self.rewrites(), "keep_aggregation": False}
        return convs.bind(model.to(self.device), self.make_kernels(), rest=bound.bind, **rewrites)

    def collate(
        self, union: Union, graphs: torch.Tensor, x: torch.Tensor, edge_attr: torch.Tensor | None, *, pooled: bool
    ) -> Collated:
        from gnnbench.graph.union import readout

        graph, x, ptr, edges = union.collate(graphs, x, edge_attr)
        return Collated(x, graph, readout(ptr, union.layout) if pooled else None, edges)

    def adjacency(self, edges: Edges, layout: CSRBuilder | None) -> Graph:
        return edges.graph(self.device, layout)

    def layout(self) -> CSRBuilder:
        return self.make_kernels()

    def warm(self, model: torch.nn.Module, adj: Any) -> None:
        from gnnbench import convs

        convs.warm(model, adj)

    def rewrites(self) -> dict[str, Any]:
        """The rewrites that the configuration allows, as `convs.bind` takes them."""
        allowed = {"transform_first", "fold_norm", "keep_aggregation", "dropout", "layers"}
        return self.config.model_dump(include=allowed)
