"""Datasets as sources yield them: one graph, in memory or in files; many graphs; links; several types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from gnnbench.config import Count, DatasetConfig
from gnnbench.datasets import _metrics
from gnnbench.errors import DatasetError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch_geometric.data import HeteroData

    from gnnbench.graph import CSRBuilder, Graph

SPLITS = ("train", "val", "test")
MASKS = ("train_mask", "val_mask", "test_mask")
EVALUATED = ("val", "test")  # splits whose links have negatives
Target = Literal["class", "labels", "value"]
Relation = tuple[str, str, str]  # type of sources, name, type of destinations
STAND_IN = 64  # width of the features of all types as one
FACTS = ("name", "synthetic_parts", "notes", "num_classes", "metric")  # of a whole dataset, which files keep


class Sized:
    """A dataset with nodes and edges."""

    x: Tensor
    edge_index: Tensor

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)


@dataclass
class Named(Sized):
    """A dataset of any kind.

    Attributes:
        name: what tables call it; a synthetic graph says so.
        metric: name of what it is scored by; empty: the plain one of its targets.
        synthetic_parts: what is not real, of "graph" or "graphs", "features", "labels", "split" and "negatives".
        notes: sentences that the user should see once.
    """

    name: str
    _: KW_ONLY
    metric: str = ""
    synthetic_parts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_synthetic(self, what: str) -> None:
        """Add to what is not real."""
        self.synthetic_parts += [] if what in self.synthetic_parts else [what]

    @property
    def label(self) -> str:
        """The name as every table shows it, with what is synthetic, which names of synthetic graphs say anyway."""
        if not self.synthetic_parts or {"graph", "graphs"} & {*self.synthetic_parts}:
            return self.name
        return f"{self.name} ({', '.join(self.synthetic_parts)} synthetic)"


@dataclass
class OneGraph(Named):
    """A dataset whose edges are those of one graph."""

    def graph(self, device: torch.device, layout: CSRBuilder | None = None) -> Graph:
        """The edges in rows on `device`, sorted there by `layout`; raises as `Graph.from_edge_index`."""
        from gnnbench.graph import Graph

        return Graph.from_edge_index(self.edge_index.to(device), self.num_nodes, layout=layout)

    def keys(self, pairs: Tensor) -> Tensor:
        """A number [P] for each pair of nodes [2, P]; a self-loop's is a multiple of `num_nodes` + 1."""
        return pairs[0] * self.num_nodes + pairs[1]


class Classified:
    """Nodes that have targets and a split."""

    y: Tensor
    num_classes: int
    metric: str

    def __post_init__(self) -> None:
        self.metric = self.metric or ("micro-F1" if self.multilabel else "accuracy")

    @property
    def multilabel(self) -> bool:
        return self.y.dim() == 2

    @cached_property
    def score(self) -> _metrics.Score:
        """(logits [M, num_classes], y [M] or [M, T]) -> float, higher is better."""
        return _metrics.score_of(self.metric, self.num_classes)


@dataclass
class NodeDataset(Classified, OneGraph):
    """One graph with node features, targets and a split.

    Attributes:
        edge_index: [2, E] int64, source and destination.
        x: [N, F] float32.
        y: [N] int64 class, -1 where unlabelled; or [N, T] float32 of zeros and ones (multi-label).
        train_mask, val_mask, test_mask: [N] bool, disjoint, only labelled nodes.
        num_classes: classes, or T.
        node_id: [N] int64, each node's id in the source, where `dataset.reorder` gave them other ones.
    """

    edge_index: Tensor
    x: Tensor
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    num_classes: int
    node_id: Tensor | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Attributes of the whole dataset that files keep."""
        return {name: getattr(self, name) for name in FACTS}

    def changed(self, **values: Any) -> NodeDataset:
        """Copy in memory, with other values of some attributes."""
        names = {each.name for each in fields(NodeDataset)} - values.keys()
        return NodeDataset(**{name: getattr(self, name) for name in names}, **values)

    def renumbered(self, order: Tensor) -> NodeDataset:
        """The nodes in another order: node i is then what node `order[i]` [N] was, and `node_id` maps it back."""
        node_id = order if self.node_id is None else self.node_id[order]
        of_nodes = {name: getattr(self, name)[order] for name in ("x", "y", *MASKS)}
        return self.changed(edge_index=order.argsort()[self.edge_index], node_id=node_id, **of_nodes)


def all_for_training(name: str, edge_index: Tensor, x: Tensor | tuple[int, int]) -> NodeDataset:
    """A graph with all nodes of one class and for training, for what needs a graph and features alone.

    Args:
        x: [N, F] features, or the shape of seeded ones.
    """
    import torch

    if isinstance(x, tuple):
        x = torch.randn(x, generator=torch.Generator().manual_seed(0))
    every = torch.ones(len(x), dtype=torch.bool)
    return NodeDataset(name, edge_index, x, (~every).long(), every, ~every, ~every, num_classes=1)


class MappedDataset(NodeDataset):
    """A graph whose arrays are read-only memory maps: what nobody touches is never read.

    Args:
        rowptr: [N + 1] int64, where the in-edges of each node begin.
        col: [E] int32, their sources, ascending for each node.
        others: the attributes of `NodeDataset` but `edge_index`.
    """

    def __init__(self, rowptr: Tensor, col: Tensor, **others: Any) -> None:
        self.rowptr, self.col = rowptr, col
        vars(self).update(others, node_id=None)

    @property
    def num_edges(self) -> int:
        return self.col.numel()

    @cached_property
    def edge_index(self) -> Tensor:  # type: ignore[override]
        """[2, E] int64, by destination; in memory, and only where it is asked for."""
        import torch

        from gnnbench.graph import rows_of

        return torch.stack([self.col.long(), rows_of(self.rowptr, self.num_edges)])

    def graph(self, device: torch.device, layout: CSRBuilder | None = None) -> Graph:
        """The rows as they are, which were checked when the dataset was opened."""
        from gnnbench.graph import Graph

        return Graph(self.rowptr.to(device), self.col.to(device), self.num_nodes, None, layout)


class GraphsConfig(DatasetConfig):
    """Options that every source of many graphs understands; each source's own `Config` adds its keys."""

    degree_features: Count = Field(
        64, description="columns of one-hot degrees where nodes have no features; 0: random_features instead"
    )


@dataclass
class GraphsDataset(Named):
    """Graphs with features, targets and a split, one after the other.

    Graph g has the nodes `graph_ptr[g]:graph_ptr[g + 1]` and the edges `edge_ptr[g]:edge_ptr[g + 1]`. Targets are
    of whole graphs, or of nodes where `per_node` is true: `y` has N rows then, a split all nodes of its graphs.

    Attributes:
        graph_ptr: [G + 1] int64.
        edge_ptr: [G + 1] int64.
        edge_index: [2, E] int32, source and destination, numbered from 0 in each graph, in the source's order.
        x: [N, F] float32; or [N, K] int64 categories, where `encoder` names what embeds them.
        y: [G] int64 class; [G, T] float32 of zeros, ones and NaN where a label is missing; or [G, T] float32
            values; as `target` says.
        splits: "train", "val" and "test" -> ids of graphs [M] int64, disjoint; the latter two may be empty.
        target: "class", "labels" (T yes-or-no questions) or "value" (regression).
        num_outputs: classes, or T.
        per_node: whether targets are of nodes.
        edge_attr: [E, D] float32 or int64 categories; None without.
        encoder: "ogb" where OGB's AtomEncoder and BondEncoder embed categories; empty otherwise.
    """

    graph_ptr: Tensor
    edge_ptr: Tensor
    edge_index: Tensor
    x: Tensor
    y: Tensor
    splits: dict[str, Tensor]
    target: Target
    num_outputs: int
    per_node: bool = False
    edge_attr: Tensor | None = None
    encoder: str = ""

    def __post_init__(self) -> None:
        plain = {"class": "accuracy", "labels": "rocauc", "value": "negative MAE"}
        self.metric = self.metric or plain[self.target]

    @cached_property
    def score(self) -> _metrics.Score:
        """(outputs [M, num_outputs], y [M] or [M, T]) -> float, higher is better; NaN where it is not defined."""
        return _metrics.score_of(self.metric, self.num_outputs)

    @property
    def num_graphs(self) -> int:
        return self.graph_ptr.numel() - 1

    def starts(self) -> Tensor:
        """[E] int64, for each edge the first node of its graph."""
        return self.graph_ptr[:-1].repeat_interleave(self.edge_ptr.diff())

    def first(self, graphs: int) -> NodeDataset:
        """The first `graphs` graphs as one; all its nodes are of class 0 and for training.

        Categories are replaced by seeded features.

        Raises:
            DatasetError: there are fewer.
        """
        if graphs > self.num_graphs:
            raise DatasetError(
                f"{self.name} holds {self.num_graphs:,} graphs, fewer than the {graphs:,} asked for"
            )
        nodes, edges = int(self.graph_ptr[graphs]), int(self.edge_ptr[graphs])
        x = self.x[:nodes] if self.x.is_floating_point() else (nodes, self.x.size(1))
        name, edge_index = f"{self.label}, {graphs:,} graphs", self.edge_index[:, :edges] + self.starts()[:edges]
        return all_for_training(name, edge_index, x).changed(num_classes=self.num_outputs, metric=self.metric)


@dataclass
class LinksDataset(OneGraph):
    """A graph that messages run over, links by split, and pairs that are none.

    Attributes:
        edge_index: [2, E] int64, source and destination of the edges that messages run over: none to be predicted.
        x: [N, F] float32; or [N] int64, the ids of nodes, where vectors are trained in place of features.
        positives: "train", "val" and "test" -> links [2, P] int64; the latter two may be empty.
        negatives: "val" and "test" -> pairs [2, Q] int64, one list for all links; or, where `ranked`, destinations
            [P, K] int64 for the source of each; without keys until drawn.
        ranked: whether each link has negatives of its own.
        relations: split -> type [P] int64 of each link; None for one type.
        num_relations: types of links.
        embedding: width of the vectors that are trained, 0 for features.
        own_split: whether the split is the benchmark's, and is taken as it is.
    """

    edge_index: Tensor
    x: Tensor
    positives: dict[str, Tensor]
    negatives: dict[str, Tensor] = field(default_factory=dict)
    ranked: bool = False
    relations: dict[str, Tensor] | None = None
    num_relations: int = 1
    embedding: int = 0
    own_split: bool = False

    @cached_property
    def score(self) -> _metrics.Score:
        """(scores of links [P], of negatives [Q] or [P, K]) -> float, higher is better."""
        return _metrics.link_score_of(self.metric)

    @property
    def num_features(self) -> int:
        """Width of features, or of the vectors that are trained in their place."""
        return self.embedding or self.x.size(1)

    @property
    def embedding_bytes(self) -> int:
        """Memory of the vectors that are trained, in float32; their gradients and the optimizer take more."""
        return 4 * self.num_nodes * self.embedding

    def renumbered(self, order: Tensor) -> LinksDataset:
        """The nodes in another order: node i is then what node `order[i]` [N] was."""
        position = order.argsort()
        pairs: dict[str, Any] = {
            name: {split: position[nodes] for split, nodes in getattr(self, name).items()}
            for name in ("positives", "negatives")
        }
        x = self.x if self.embedding else self.x[order]
        return replace(self, edge_index=position[self.edge_index], x=x, **pairs)

    def as_nodes(self) -> NodeDataset:
        """The graph of messages with all nodes of one class and for training; ids become seeded features."""
        x = (self.num_nodes, self.embedding) if self.embedding else self.x
        return all_for_training(self.label, self.edge_index, x)


class Bipartite(NamedTuple):
    """The edges of one relation."""

    edge_index: Tensor  # [2, E] int64, each row in the ids of its own type
    num_cols: int  # nodes of the type of sources
    num_rows: int  # and of destinations

    def graph(self, device: torch.device, layout: CSRBuilder | None = None) -> Graph:
        """[num_rows x num_cols] in rows on `device`, sorted there by `layout`."""
        from gnnbench.graph import Graph

        return Graph.from_edge_index(self.edge_index.to(device), self.num_rows, self.num_cols, layout=layout)


def joined(nodes: Mapping[str, int], relations: Mapping[Relation, Any]) -> Bipartite:
    """The edges of all relations, one after another, in one numbering of all nodes, type after type."""
    import torch

    start = dict(zip(nodes, accumulate(nodes.values(), initial=0), strict=False))
    ends = [
        edges.edge_index + torch.tensor([[start[source]], [start[destination]]])
        for (source, _, destination), edges in relations.items()
    ]
    total = sum(nodes.values())
    return Bipartite(torch.cat(ends, 1), total, total)


def edge_types(relations: Mapping[Relation, Any]) -> Tensor:
    """[E] int64, the number of the relation of each edge of `joined`."""
    import torch

    sizes = torch.tensor([edges.edge_index.size(1) for edges in relations.values()])
    return torch.arange(len(sizes)).repeat_interleave(sizes)


@dataclass
class TypedDataset(Classified, OneGraph):
    """Nodes and edges by type, and targets of one type of nodes.

    Attributes:
        data: PyG's graph; of each type of nodes `num_nodes`, and `x` [n, F] float32 where it has features; of each
            relation `edge_index` [2, E] int64.
        target: the type whose nodes are classified.
        y: [n] int64 class of these, -1 where unlabelled.
        train_mask, val_mask, test_mask: [n] bool, disjoint, only labelled nodes.
        num_classes: how many classes.
        embedding: width of the vectors that are trained for types without features.
    """

    data: HeteroData
    target: str
    y: Tensor
    train_mask: Tensor
    val_mask: Tensor
    test_mask: Tensor
    num_classes: int
    embedding: int = 0

    @property
    def nodes(self) -> dict[str, int]:
        """How many nodes there are of each type."""
        return {kind: self.data[kind].num_nodes for kind in self.data.node_types}

    @property
    def num_nodes(self) -> int:
        return sum(self.nodes.values())

    @property
    def widths(self) -> dict[str, int]:
        """Width of the features of each type, or of the vectors that are trained in their place."""
        return {kind: x.size(1) if x.dim() == 2 else self.embedding for kind, x in self.x.items()}

    @property
    def embedding_bytes(self) -> int:
        """Memory of the vectors that are trained, in float32; their gradients and the optimizer take more."""
        return sum(4 * self.embedding * len(x) for x in self.x.values() if x.dim() == 1)

    @cached_property
    def x(self) -> dict[str, Tensor]:  # type: ignore[override]
        """[n, F] features of each type, or [n] int64, the ids of nodes, where vectors are trained instead."""
        import torch

        return {
            kind: self.data[kind].x if "x" in self.data[kind] else torch.arange(nodes)
            for kind, nodes in self.nodes.items()
        }

    @property
    def relations(self) -> dict[Relation, Bipartite]:
        """The edges by relation."""
        nodes = self.nodes
        return {
            relation: Bipartite(self.data[relation].edge_index, nodes[relation[0]], nodes[relation[2]])
            for relation in self.data.edge_types
        }

    @cached_property
    def edge_index(self) -> Tensor:  # type: ignore[override]
        """[2, E] int64 of all relations, as `joined` numbers nodes."""
        return joined(self.nodes, self.relations).edge_index

    def as_nodes(self) -> NodeDataset:
        """All types as one, of one class and for training, with seeded features."""
        return all_for_training(self.label, self.edge_index, (self.num_nodes, STAND_IN))
