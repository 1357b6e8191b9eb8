"""A model on its backend, put together the same way wherever a step is taken."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Module

from gnnbench import datasets, models, registry
from gnnbench.backends.base import Backend
from gnnbench.config import BatchConfig, Run
from gnnbench.datasets import AnyDataset, GraphsDataset, LinksDataset, NodeDataset, TypedDataset
from gnnbench.errors import ConfigError, UnsupportedOp
from gnnbench.measure import clock
from gnnbench.results.schema import DatasetFacts, OfRun
from gnnbench.training.batching._batch import Loader, Setup
from gnnbench.training.batching._shares import Shares, bind_norms


class ModelDims(NamedTuple):
    """Widths of features, outputs and edges that a model connects; encoder of categories; what it is of."""

    features: int
    outputs: int
    encoder: str = ""
    edges: int = 0
    degrees: Callable[[], Tensor] | None = None
    links: models.Links | None = None
    types: models.Types | None = None

    @classmethod
    def of(cls, dataset: AnyDataset) -> ModelDims:
        if isinstance(dataset, LinksDataset):
            links = models.Links(dataset.num_nodes, dataset.num_relations, dataset.embedding > 0)
            return cls(dataset.num_features, 1, degrees=_degrees(dataset), links=links)
        if isinstance(dataset, TypedDataset):
            trained = [kind for kind, x in dataset.x.items() if x.dim() == 1]
            widths, target = dataset.widths, dataset.target
            types = models.Types(dataset.nodes, widths, trained, [*dataset.relations], target)
            return cls(widths[target], dataset.num_classes, types=types)
        if isinstance(dataset, NodeDataset):
            return cls(dataset.x.size(1), dataset.num_classes, degrees=_degrees(dataset))
        edges = 0 if dataset.edge_attr is None else dataset.edge_attr.size(1)
        return cls(dataset.x.size(1), dataset.num_outputs, dataset.encoder, edges, _degrees(dataset))


def opened(
    config: Run, dataset: AnyDataset, recorder: clock.Recorder, record: OfRun
) -> tuple[AnyDataset, ModelDims]:
    """Put the nodes of a dataset in order, and let `record` know what it is."""
    dataset, reorder_s = recorder.time(lambda: datasets.reordered(dataset, config.dataset))
    dims = ModelDims.of(dataset)
    counts: dict[str, int | None] = {}
    if isinstance(dataset, GraphsDataset):
        train = dataset.splits["train"]
        edges = int(dataset.edge_ptr.diff()[train].sum())
        counts = {"graphs": dataset.num_graphs, "train_graphs": len(train), "train_edges": edges}
    elif isinstance(dataset, LinksDataset | TypedDataset):
        counts["embedding_bytes"] = dataset.embedding_bytes or None
    if isinstance(dataset, LinksDataset):
        counts["train_links"] = dataset.positives["train"].size(1)
    if isinstance(dataset, TypedDataset):
        counts |= {"node_types": len(dataset.nodes), "edge_types": len(dataset.relations)}
    record.dataset = dataset.label
    record.dataset_facts = DatasetFacts(
        name=dataset.name,
        synthetic_parts=dataset.synthetic_parts,
        nodes=dataset.num_nodes,
        edges=dataset.num_edges,
        features=dims.features,
        classes=dims.outputs,
        metric=dataset.metric,
        reorder=config.dataset.reorder,
        reorder_s=None if config.dataset.reorder == "none" else reorder_s,
        **counts,
    )
    return dataset, dims


def build(config: Run, dims: ModelDims, repeat: int = 0) -> Module:
    """The model with its first weights, on CPU; leaves the random generators as training finds them."""
    torch.manual_seed(config.train.seed + repeat)
    model = models.build(config.model, *dims, batched=not config.batch.repeats)
    if config.train.precision == "bf16":
        model.forward = partial(_forward, model)
    return model


def _degrees(dataset: AnyDataset) -> Callable[[], Tensor]:
    """Count the nodes that have 0, 1, ... in-edges when first asked, without keeping the dataset until then."""
    reference = weakref.ref(dataset)

    @functools.cache
    def count() -> Tensor:
        asked = reference()
        assert asked is not None, "a model was built before"
        return torch.bincount(torch.bincount(asked.edge_index[1], minlength=asked.num_nodes))

    return count


def read(config: Run, roots: datasets.Roots) -> AnyDataset:
    """The dataset as it is, or what a kind of batches reads in its place."""
    own = getattr(_kind(config), "read", lambda _: None)(config)
    return datasets.read(config.dataset, roots) if own is None else own


def prepare(config: Run, model: Module, backend: Backend, dataset: AnyDataset, cache: Path | None = None) -> Setup:
    """Everything done once per dataset and model: it is bound on its backend, tuned choices are read from `cache`.

    Raises:
        ConfigError: as `check_batch`, or of training that cannot be.
        UnsupportedOp: the backend cannot run this model exactly.
    """
    check_batch(config, dataset)
    if config.train.label_smoothing and not has_classes(dataset):
        raise ConfigError(f"train.label_smoothing is of classes, which {dataset.name} has none of; leave it out")
    if config.distributed and config.train.cuda_graph:
        raise UnsupportedOp("train.cuda_graph", ["workers talk to each other in every step; leave it out"])
    if (loader := config.backend.loader) not in config.batch.loaders:
        raise ConfigError(
            f"backend.loader: batch.kind={config.batch.kind} takes batches by "
            f"{', '.join(config.batch.loaders)} only, found {loader!r}; leave it out"
        )
    if config.data_parallel and loader != "ours":
        raise ConfigError(
            f"backend.loader={loader} makes whole batches, of which each of {config.train.workers} "
            "workers would train on all; leave it or train.workers out"
        )
    ready: Setup = _kind(config).prepare(config, model.to(backend.device), backend, dataset, cache)
    ready.batching.smoothing = config.train.label_smoothing
    if config.data_parallel:
        _share_out(config.batch, model, ready)
    return ready


def check_batch(config: Run, dataset: AnyDataset) -> None:
    """Check that the batches of `config` can be made of a dataset.

    Raises:
        ConfigError: they cannot.
    """
    kind = config.batch.kind
    if isinstance(dataset, GraphsDataset) and not config.batch.graphs:
        raise ConfigError(
            f"{dataset.name} holds {dataset.num_graphs} graphs, and batch.kind={kind} is of one graph; train on "
            "batches of them with --set batch.kind=graphs"
        )
    if isinstance(dataset, LinksDataset) != config.batch.links:
        ours, others = ("nodes", "links") if config.batch.links else ("links", "nodes")
        remedy = "dataset.task=links" if config.batch.links else "batch.kind=links"
        raise ConfigError(
            f"{dataset.name} has {ours} to predict, and batch.kind={kind} predicts {others}; set {remedy} too"
        )
    if isinstance(dataset, NodeDataset | TypedDataset) and config.batch.graphs:
        raise ConfigError(
            f"{dataset.name} is one graph, and batch.kind={kind} is of many; leave batch.kind out to train on it"
        )
    if isinstance(dataset, TypedDataset) and not config.batch.typed:
        raise ConfigError(
            f"{dataset.name} has several types of nodes, and batch.kind={kind} is of one; leave batch.kind and "
            "train.workers out, or choose batch.kind=neighbors"
        )


def _share_out(batch: BatchConfig, model: Module, ready: Setup) -> None:
    """Let each worker train on its share of every batch, with batch norms over the rows of all."""
    assert isinstance(ready.batching, Loader)
    ready.batching.shares = shares = Shares()
    if not (batch.draws_neighbors or batch.graphs):  # of the whole graph, each has the rows of all
        ready.warnings.append("every worker encodes the whole graph: only the scores of links are shared out")
        return
    bind_norms(model, shares)
    ready.bindings[:] = [binding for binding in ready.bindings if binding.conv != "BatchNorm1d"]
    if batch.draws_neighbors and any(isinstance(layer, BatchNorm1d) for layer in model.modules()):
        ready.warnings.append(
            "batch norms count a sampled node once for each worker that needs it, so that losses are not those of "
            "one process; model.norm=layer keeps them"
        )


def has_classes(dataset: AnyDataset) -> bool:
    """Return whether each output is of one class."""
    if isinstance(dataset, NodeDataset | TypedDataset):
        return not dataset.multilabel
    return isinstance(dataset, GraphsDataset) and dataset.target == "class"


def _kind(config: Run) -> ModuleType:
    return registry.find("training.batching", config.batch.kind)


def _forward(model: Any, x: Any, *args: Any, **more: Any) -> Tensor:
    """The float32 outputs of `model` under autocast: its dense products are in bfloat16."""
    # Few weights are used twice in a step, and a copy that is kept would outlive the recording of a CUDA graph.
    with torch.autocast(next(model.parameters()).device.type, torch.bfloat16, cache_enabled=False):
        out: Tensor = type(model).forward(model, x, *args, **more)
    return out.float()
