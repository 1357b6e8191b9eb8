"""Outputs of all nodes, a layer at a time and in blocks of destinations, so that memory holds few layers.

Of a graph of several types, nodes of a type are gone over in blocks, with all neighbours.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from gnnbench.backends import isplib
from gnnbench.backends.base import Backend, KernelBackend
from gnnbench.datasets import LinksDataset, NodeDataset, TypedDataset
from gnnbench.datasets._kinds import Relation
from gnnbench.errors import GnnbenchError, OutOfMemory
from gnnbench.graph import Graph
from gnnbench.graph.part import Asked, Block
from gnnbench.measure import memory
from gnnbench.models import Layer
from gnnbench.results import files
from gnnbench.training.batching.full import typed_adjacency

CPU = torch.device("cpu")
ALIGNED = 64  # rows of a product, below which BLAS libraries sum in another order
LEAST = 8192  # rows of a block, from which on kernels compute products as those of all nodes
COPIES = 8  # of the widest layer, which a block may need at a time
WHOLE = {"GCNConv", "AGNNConv"}  # which in PyG take no sources and destinations apart
LOADED = 4096  # destinations of a batch with all neighbours, as in PyG's examples
HELD = 3  # layers of all nodes at a time: what a conv is given, what it gathers, what it gives

Fetched = Sequence[Sequence[Tensor]]  # what each earlier pass of a conv gave
Gather = Callable[[int, int, Fetched], tuple[Any, Any]]  # which nodes a conv is given from begin to end, and edges
Compute = Callable[[int, int, Fetched], Tensor]  # rows from begin to end


class Rows:
    """Matrices with a row for each node, written block by block, one of them whole before the next one.

    Args:
        folder: holds them in mapped files, which another process goes on with; None for memory.
        key: names what they are computed from; files of another key are removed.
        block: nodes at a time; fewer from where memory ends on.

    Raises:
        GnnbenchError: the folder cannot be written.
    """

    def __init__(self, nodes: int, folder: Path | None = None, key: str = "", block: int = LOADED) -> None:
        self.nodes, self.folder, self.key, self.block = nodes, folder, key, block
        self.done: dict[str, int] = {}
        self._open: dict[str, tuple[Tensor, ...]] = {}
        if folder is not None and (folder / "progress.json").exists():
            stored = json.loads((folder / "progress.json").read_text())
            if stored["key"] == key and stored["nodes"] == nodes:
                self.done = stored["done"]
            else:
                shutil.rmtree(folder)

    def complete(self, name: str) -> bool:
        return self.done.get(name) == self.nodes

    def get(self, name: str) -> tuple[Tensor, ...]:
        """The matrices [N, ...] that were put under a name."""
        if name not in self._open:
            assert self.folder is not None
            paths = sorted(self.folder.glob(f"{name}-*.npy"))
            self._open[name] = tuple(torch.from_numpy(np.load(path, mmap_mode="r+")) for path in paths)
        return self._open[name]

    def put(self, name: str, begin: int, rows: Sequence[Tensor]) -> None:
        """Write rows [n, ...] from node `begin` on."""
        if name not in self.done:
            self._open[name] = tuple(self._new(f"{name}-{i}", each) for i, each in enumerate(rows))
        for whole, each in zip(self.get(name), rows, strict=True):
            whole[begin : begin + len(each)] = each
        self.done[name] = begin + len(rows[0])
        if self.folder is not None:
            progress = {"key": self.key, "nodes": self.nodes, "done": self.done}
            files.save_text(json.dumps(progress), self.folder / "progress.json")

    def drop(self, name: str) -> None:
        """Free what nothing needs any more; it stays complete."""
        self._open.pop(name, None)
        for path in [] if self.folder is None else self.folder.glob(f"{name}-*.npy"):
            path.unlink()

    def _new(self, name: str, like: Tensor) -> Tensor:
        shape = self.nodes, *like.shape[1:]
        if self.folder is None:
            return like.new_empty(shape)
        path = self.folder / f"{name}.npy"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            made = np.lib.format.open_memmap(path, "w+", like.cpu().numpy().dtype, shape)
            if hasattr(os, "posix_fallocate"):  # a full disk would end the process at a write otherwise
                with path.open("r+b") as file:
                    os.posix_fallocate(file.fileno(), 0, max(1, path.stat().st_size))
        except OSError as error:
            raise GnnbenchError(
                f"{path}: cannot be written: {error.strerror}; free space, or choose another folder"
            ) from None
        return torch.from_numpy(made)

    def apply(self, name: str, compute: Compute) -> None:
        """Compute rows from rows; where that raises `Asked`, in passes: all but the last serve later ones."""
        passes: list[str] = []
        while not self.complete(name):
            pass_ = f"{name}.{len(passes)}"
            if not self.complete(pass_):
                self._blocks(name, pass_, compute, [self.get(each) for each in passes])
            passes.append(pass_)
        for each in passes:
            self.drop(each)

    def _blocks(self, name: str, pass_: str, compute: Compute, fetched: Fetched) -> None:
        """Compute one block after the other, and smaller ones where memory ends."""
        begin = max(self.done.get(each, 0) for each in (name, pass_))
        while True:
            end = begin + self.block
            end = self.nodes if self.nodes - end < min(self.block, LEAST) else end  # rather larger than too small
            try:
                try:
                    self.put(name, begin, (compute(begin, end, fetched),))
                except Asked as asked:
                    self.put(pass_, begin, asked.rows)
            except Exception as error:
                if not memory.is_exhaustion(error):
                    raise
                if self.block <= LEAST:
                    raise OutOfMemory(
                        f"inference a layer at a time needs more memory for {self.block} nodes than "
                        "measure.memory_limit leaves; raise it"
                    ) from None
                self.block = max(LEAST, self.block // 2 // ALIGNED * ALIGNED)
                continue
            begin = end
            if begin >= self.nodes:
                return


def unsupported(model: Module, backend: Backend) -> list[str]:
    """Sentences, each a reason why this model cannot be computed a layer at a time."""
    from gnnbench import convs  # which a row of PyG loads only here

    reasons = []
    if getattr(model, "readout", None) is not None or getattr(model, "embed_edges", None) is not None:
        reasons.append("it has a readout or features of edges, which are of many graphs")
    if "forward" in vars(model):
        reasons.append("train.precision=bf16 is of the whole forward; leave it out")
    if hasattr(model, "joins"):  # of several types, whose convs are given all neighbours as they are in training
        return reasons
    kinds = convs.kinds(model)
    others, why = [name for name in kinds if not kinds[name]], "messages that no kernel of one layer computes"
    if not isinstance(backend, KernelBackend):
        others, why = [*others, *(kinds.keys() & WHOLE)], "no pair of sources and destinations in PyG"
    return reasons + [f"{name} has {why}" for name in sorted(others)]


class Layerwise:
    """Inference of a model that is bound on its backend: on kernels in blocks of rows, else on neighbourhoods.

    Args:
        dataset: whose edges and features are taken.
        adj: what the backend made of the edges, if it did.

    Attributes:
        way: how nodes are gone over, in words.
    """

    def __init__(self, model: Any, dataset: NodeDataset | LinksDataset, backend: Backend, adj: Any = None) -> None:
        self.model, self.x, self.device = model, dataset.x, backend.device
        self.gather: Gather
        if isinstance(backend, KernelBackend):
            self.way, self.most = "blocks of nodes", 0
            self.gather = of_blocks(backend.adjacency(dataset, backend.layout()) if adj is None else adj)
        else:
            self.way, self.most = "batches with all neighbours, drawn by gnnbench's sampler", LOADED
            self.gather = of_neighbors(dataset, backend)
        layers = HELD + (len(model.convs) if model.jump is not None else 0)
        self.mapped = too_large(backend, layers * widest(model, self.x) * len(self.x))
        self.way += ", layers in mapped files" * self.mapped

    def __call__(self, block: int = 0, folder: Path | None = None, key: str = "") -> Tensor:
        """Outputs [N, C], in memory or mapped.

        Args:
            block: destinations at a time; 0 for what fits.
            folder: keeps layers in files, which a call with an equal `key` goes on with.
        """
        block = block or self.most
        with place(self.mapped, folder) as own:
            rows = Rows(len(self.x), own, key)
            return outputs(self.model, self.x, self.gather, rows, self.device, block)


def of_blocks(graph: Graph) -> Gather:
    """Give a layer the nodes of a block, on kernels; raises `Asked` where it needs features of others."""

    def gather(begin: int, end: int, fetched: Fetched) -> tuple[Any, Any]:
        return slice(begin, end), Block(graph, begin, end, iter(fetched))

    return gather


def of_neighbors(dataset: NodeDataset | LinksDataset, backend: Backend) -> Gather:
    """Give a layer nodes with all their neighbours, as PyG's loaders do."""
    graph = dataset.graph(CPU, isplib.IsplibKernels())
    neighbors, layout = isplib.Neighbors(graph.rowptr, graph.col), backend.layout()

    def gather(begin: int, end: int, _: Any) -> tuple[Any, Any]:
        sample = neighbors.sample(torch.arange(begin, end), [-1], 0, False)
        return sample.node, Layer(backend.adjacency(sample.hops()[0], layout), end - begin)

    return gather


@contextmanager
def place(mapped: bool, folder: Path | None) -> Iterator[Path | None]:
    """The folder for layers: as given, or one that goes with the block where they are mapped; None for memory."""
    with TemporaryDirectory() if mapped and folder is None else nullcontext() as own:
        yield Path(own) if own else folder


def too_large(backend: Backend, numbers: int) -> bool:
    """Return whether so many float32 numbers of layers are better kept in mapped files."""
    return backend.device.type == "cpu" and 4 * numbers > memory.left() // 2


def widest(model: Module, x: Tensor) -> int:
    """The largest number of values that a node has in any layer."""
    weights = [
        each for name, each in model.named_parameters() if each.dim() == 2 and not name.startswith("embed.")
    ]  # embeddings have a row for each category or node
    return max([*x.shape[1:], *(size for each in weights for size in each.shape)])


def outputs(model: Any, x: Tensor, gather: Gather, rows: Rows, device: torch.device, block: int = 0) -> Tensor:
    """Outputs [N, C] of the model in evaluation mode, equal to those of the whole graph.

    Args:
        x: [N, F] features or [N] ids, in memory or mapped.
        block: destinations at a time; 0 for as many as fit the memory that `memory.limited` leaves.

    Raises:
        OutOfMemory: not even the smallest block fits.
    """
    if not block:
        block = max(LEAST, memory.left() // 2 // (4 * COPIES * widest(model, x)))
    rows.block = block // ALIGNED * ALIGNED or ALIGNED

    def step(layer: int, last: str, begin: int, end: int, fetched: Fetched) -> Tensor:
        index, adj = gather(begin, end, fetched)
        out: Tensor = model.step(layer, (rows.get(last)[0] if last else x)[index].to(device), adj)
        return out

    kept: list[str] = []  # outputs that are still needed
    if model.embed is not None or model.encode is not None:
        kept = ["input"]
        rows.apply("input", lambda begin, end, _: model.enter(x[begin:end].to(device)))
    for layer in range(len(model.convs)):
        last = kept[-1] if kept else ""
        rows.apply(f"layer{layer}", partial(step, layer, last))
        if kept and (model.jump is None or last == "input"):
            rows.drop(kept.pop())
        kept.append(f"layer{layer}")
    if model.jump is None and model.decode is None:
        return rows.get(kept[-1])[0]
    rows.apply(
        "output", lambda begin, end, _: model.leave([rows.get(name)[0][begin:end].to(device) for name in kept])
    )
    for name in kept:
        rows.drop(name)
    return rows.get("output")[0]


def neighbors(dataset: TypedDataset) -> isplib.TypedNeighbors:
    """The in-edges of every relation in rows, to draw from."""
    rows = {}
    for relation, edges in dataset.relations.items():
        graph = edges.graph(CPU, isplib.IsplibKernels())
        rows[relation] = isplib.Rows(graph.rowptr, graph.col, num_cols=edges.num_cols)
    return isplib.TypedNeighbors(dataset.nodes, rows)


class TypedLayerwise:
    """Inference of a model that is bound on its backend, on neighbourhoods of one hop.

    Outputs are those of the whole graph but for rounding, as sums are over the edges of a block.

    Attributes:
        way: how nodes are gone over, in words.
    """

    def __init__(self, model: Any, dataset: TypedDataset, backend: Backend) -> None:
        self.model, self.backend, self.layout = model, backend, backend.layout()
        self.x, self.target, self.relations = dataset.x, dataset.target, [*dataset.relations]
        self.neighbors = neighbors(dataset)
        width = max(widest(model, x) for x in self.x.values())
        self.mapped = too_large(backend, HELD * width * dataset.num_nodes)
        self.way = "batches of a type with all neighbours" + ", layers in mapped files" * self.mapped

    def __call__(self, block: int = 0, folder: Path | None = None, key: str = "") -> Tensor:
        """Outputs [n, C] of the classified type; arguments as of `Layerwise`."""
        with place(self.mapped, folder) as own:
            rows = {kind: Rows(len(x), own and own / kind, key, block or LOADED) for kind, x in self.x.items()}
            for kind, each in rows.items():
                each.apply("input", partial(self._entered, kind))
            last, target = "input", rows[self.target]
            for layer in range(len(self.model.convs)):
                is_last = layer == len(self.model.convs) - 1
                for kind in [self.target] if is_last else rows:
                    if not rows[kind].complete(f"layer{layer}"):
                        given = {name: each.get(last)[0] for name, each in rows.items()}
                        rows[kind].apply(f"layer{layer}", partial(self._step, layer, kind, given))
                for each in rows.values():
                    each.drop(last)
                last = f"layer{layer}"
            target.apply(
                "output",
                lambda begin, end, _: self.model.leave(target.get(last)[0][begin:end].to(self.backend.device)),
            )
            target.drop(last)
            return target.get("output")[0]

    def _entered(self, kind: str, begin: int, end: int, _: Fetched) -> Tensor:
        own: Tensor = self.model.enter({kind: self.x[kind][begin:end].to(self.backend.device)})[kind]
        return own

    def _step(
        self, layer: int, kind: str, given: Mapping[str, Tensor], begin: int, end: int, _: Fetched
    ) -> Tensor:
        fanouts: dict[Relation, list[int]] = {each: [-1 if each[2] == kind else 0] for each in self.relations}
        sample = self.neighbors.sample({kind: torch.arange(begin, end)}, fanouts, 0)
        device = self.backend.device
        x = {name: given[name][node].to(device) for name, node in sample.node.items()}
        adj, edge_type = typed_adjacency(self.model, self.backend, self.layout, sample.sizes, sample.edges)
        out: Tensor = self.model.step(layer, x, adj, edge_type)[kind][: end - begin]
        return out
