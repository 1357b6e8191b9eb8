"""Three ways to the outputs of all nodes: at once, a layer at a time, and on sampled neighbourhoods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import Module

from gnnbench import registry
from gnnbench.backends.base import Backend
from gnnbench.config import Run
from gnnbench.datasets import AnyDataset, LinksDataset, TypedDataset
from gnnbench.errors import ConfigError, UnsupportedOp, did_you_mean
from gnnbench.results.schema import MODES, Binding, Mode
from gnnbench.training import layerwise, setup
from gnnbench.training.batching._batch import Batching
from gnnbench.training.batching.full import Full


@dataclass(frozen=True)
class Way:
    """A model on its backend, and how it comes to the outputs of all nodes.

    Attributes:
        outputs: computes them [N, C]; a folder keeps layers in files, which a call with an equal key goes on with.
        words: how nodes are gone over.
    """

    outputs: Callable[[Path | None, str], Tensor]
    scores: Callable[[Tensor], dict[str, float | None]]
    bindings: list[Binding]
    warnings: list[str]
    words: str


def of_mode(config: Run, mode: str) -> Run:
    """The configuration with the batches that a way goes over.

    Raises:
        ConfigError: there is no such way, or its batches are of another kind of data.
    """
    batch = config.batch
    if mode not in MODES:
        raise ConfigError(f"--mode {mode}: is none of {', '.join(MODES)}{did_you_mean(mode, MODES)}")
    if mode == "sampled":
        if not (batch.draws_neighbors and hasattr(batch, "evaluation")):
            raise ConfigError(
                f"--mode sampled is of batches that draw neighbours, and batch.kind is {batch.kind}; set "
                "batch.kind=neighbors and batch.fanouts, or choose another mode"
            )
        return config.changed(batch={"evaluation": "sampled"})
    if batch.graphs:
        if mode == "layerwise":
            raise ConfigError("--mode layerwise is of one graph, and batch.kind=graphs is of many; leave it out")
        return config
    kind = registry.find("training.batching", "links" if batch.links else "full").Config
    shared = {name: value for name, value in dict(batch).items() if name in kind.model_fields and name != "kind"}
    return config.model_copy(update={"batch": kind(**shared)})


def prepare(
    mode: Mode, config: Run, model: Module, backend: Backend, dataset: AnyDataset, cache: Path | None
) -> Way:
    """Bind the model, and make of the dataset what it takes.

    Raises:
        ConfigError: the way cannot be gone over this dataset.
        UnsupportedOp: the backend cannot run this model exactly, or not a layer at a time.
    """
    if mode == "layerwise":
        return _layerwise(config, model, backend, dataset)
    ready = setup.prepare(config, model, backend, dataset, cache)
    batching = ready.batching
    words = MODES[mode] if mode == "sampled" or not config.batch.graphs else "batches of graphs"
    return Way(
        lambda folder, key: batching.outputs(model),
        lambda outputs: batching.scores(model, outputs.to(backend.device)),
        ready.bindings,
        ready.warnings,
        words,
    )


def _layerwise(config: Run, model: Module, backend: Backend, dataset: Any) -> Way:
    setup.check_batch(config, dataset)
    bindings = backend.bind(model)
    if reasons := layerwise.unsupported(model, backend):
        raise UnsupportedOp(f"--mode layerwise on backend {backend.name!r}", reasons)

    def batching() -> Batching:
        """Build the batches whose metrics are asked for, and only then: links need their graph on the device."""
        if isinstance(dataset, LinksDataset):
            from gnnbench.training.batching.links import Links

            return Links(config.batch, dataset, backend, None)
        return Full(dataset, None, backend.device, x=())

    typed = isinstance(dataset, TypedDataset)
    passes = (layerwise.TypedLayerwise if typed else layerwise.Layerwise)(model, dataset, backend)
    return Way(
        lambda folder, key: passes(folder=folder, key=key),
        lambda outputs: batching().scores(model, outputs.to(backend.device)),
        bindings,
        [],
        passes.way,
    )
