"""The steps that the gate compares: from equal weights, without dropout, on smooth activations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from gnnbench import backends, datasets
from gnnbench.backends.base import Backend
from gnnbench.compare.parity import TOLERANCE, dropout, drops
from gnnbench.compare.parity.judge import AT_NODES, EVALUATION, Snapshot
from gnnbench.config import RunConfig
from gnnbench.datasets import NodeDataset, Roots
from gnnbench.measure import memory
from gnnbench.train import setup
from gnnbench.train.loop import Task

# At a ReLU's kink rounding alone flips whole gradients: on a graph shaped like Reddit one flip puts PyG's own GIN
# gradient 1.8e-4 from that in float64.
SMOOTH: dict[Any, Callable[[Tensor], Tensor]] = {F.relu: F.silu, F.leaky_relu: F.silu}
SLOPE = 0.35  # of a leaky ReLU inside attention; none of PyG's defaults
MOVED = 0.1  # by which share other weights are moved away from where training starts, such as zero biases
JITTER = 1e-6  # of features
COLUMNS = 8  # that the gradient at nodes is projected to


def snapshot(config: RunConfig[Any, Any], roots: Roots, path: Path, *, as_reference: bool) -> str:
    """What a backend computes, written to `path`; returns the dataset's label. See `computed`.

    Raises:
        GnnbenchError: whatever stops the backend, the dataset or the model.
    """
    if config.measure.threads:
        torch.set_num_threads(config.measure.threads)
    backend = backends.load(config.backend, config.train)
    with memory.limited(config.measure.memory_limit, backend.device):
        dataset = datasets.single(datasets.load(config.dataset, roots))
        computed(config, backend, dataset, as_reference, roots.cache).save(path)
    return dataset.label


def computed(
    config: RunConfig[Any, Any],
    backend: Backend,
    dataset: NodeDataset,
    as_reference: bool,
    cache: Path | None = None,
) -> Snapshot:
    """Logits and gradients of two steps, and what attention dropout does.

    One step is in training mode from the configured seed, where attention has a `SLOPE` that is not the default;
    one in evaluation mode from other weights. `as_reference` repeats both with features that differ in their last
    bits and with edges in reverse order to find how far rounding moves, and takes attention dropout for right.
    """
    snapshot = Snapshot(_steps(config, backend, dataset, cache), backend.tolerance or TOLERANCE)
    if as_reference:
        noise = torch.rand(dataset.x.shape, generator=torch.Generator().manual_seed(0)).mul_(2).sub_(1)
        x = torch.addcmul(dataset.x, dataset.x, noise.to(dataset.x.device), value=JITTER)
        jittered = replace(dataset, x=x, edge_index=dataset.edge_index.flip(1))
        snapshot.learn_rounding(_steps(config, backend, jittered, cache))
    elif "attention_dropout" in drops(config):
        snapshot.dropout, snapshot.unchecked = dropout.measured(config, backend, dataset)
    return snapshot


def trained(config: RunConfig[Any, Any], backend: Backend, model: Module, task: Task, classes: int) -> Snapshot:
    """What a model that was trained computes from other weights; it is not to be trained any more."""
    _smooth(model, config, task.x)
    return Snapshot(_evaluation(config, model, task, classes), backend.tolerance or TOLERANCE)


def _steps(
    config: RunConfig[Any, Any], backend: Backend, dataset: NodeDataset, cache: Path | None
) -> dict[str, Tensor]:
    model, task = _prepared(config, backend, dataset, cache, SLOPE)
    result = _step(model, task)
    if list(_sloped(model)):  # a backend may keep the slope that it saw first
        del model, task
        model, task = _prepared(config, backend, dataset, cache)
    return result | _evaluation(config, model, task, dataset.num_classes)


def _prepared(
    config: RunConfig[Any, Any],
    backend: Backend,
    dataset: NodeDataset,
    cache: Path | None,
    slope: float | None = None,
) -> tuple[Module, Task]:
    """The model with its first weights and without dropout, in training mode, and its task."""
    without = config.model.model_copy(update=dict.fromkeys(drops(config), 0.0))
    model = setup.build(config.model_copy(update={"model": without}), dataset.x.size(1), dataset.num_classes)
    for conv in _sloped(model) if slope else ():
        conv.negative_slope = slope
    _smooth(model, config, dataset.x)
    model.to(backend.device).train()
    return model, Task.of(dataset, setup.prepare(model, backend, dataset, cache).adj, backend.device)


def _evaluation(config: RunConfig[Any, Any], model: Module, task: Task, classes: int) -> dict[str, Tensor]:
    """A step in evaluation mode from other weights; batch norms go on with the statistics of the batch."""
    other = setup.build(config, task.x.size(1), classes, repeat=1)
    with torch.no_grad():
        for parameter in other.parameters():
            size = float(parameter.square().mean().sqrt()) or 1.0
            parameter.add_(torch.randn_like(parameter), alpha=MOVED * size)
    model.load_state_dict(other.state_dict(), strict=False)  # all but the probe
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.train()
    return {name + EVALUATION: tensor for name, tensor in _step(model, task).items()}


def _step(model: Module, task: Task) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    logits = model(task.x, task.adj)
    task.loss(logits).backward()
    result = {"logits": logits}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            result[AT_NODES if name == "activation.probe" else f"gradient of {name}"] = parameter.grad
    return {name: tensor.detach().cpu().clone() for name, tensor in result.items()}


def _sloped(model: Module) -> Iterator[Any]:
    return (module for module in model.modules() if hasattr(module, "negative_slope"))


def _smooth(model: Any, config: RunConfig[Any, Any], x: Tensor) -> None:
    """Replace every ReLU of the model, those inside convs such as GIN's network too."""
    device = next(model.parameters()).device
    model.activation = _Probed(model.activation, x.size(0), config.model.hidden).to(device)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.ReLU):
                setattr(module, name, torch.nn.SiLU())


class _Probed(Module):
    """A smooth activation of x [N, hidden], and a probe [N, 8] of zeros: its gradient is that of x, projected."""

    projection: Tensor

    def __init__(self, activation: Any, nodes: int, width: int) -> None:
        super().__init__()
        self.smooth = SMOOTH.get(activation, activation)
        self.probe = torch.nn.Parameter(torch.zeros(nodes, COLUMNS))
        projection = torch.randn(COLUMNS, width, generator=torch.Generator().manual_seed(0))
        self.register_buffer("projection", projection, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        tensor: Tensor = self.smooth(x + self.probe @ self.projection)
        return tensor
