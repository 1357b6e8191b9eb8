"""The steps that the gate compares: from equal weights, without dropout, on smooth activations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from gnnbench.backends.base import Backend
from gnnbench.comparison.parity import AUTOCAST_TOLERANCE, TOLERANCE, dropout, drops
from gnnbench.comparison.parity.judge import AT_NODES, EVALUATION, Snapshot
from gnnbench.config import Run
from gnnbench.datasets import AnyDataset, NodeDataset, TypedDataset
from gnnbench.models import Pairs
from gnnbench.training import setup
from gnnbench.training.batching._batch import Batch, Batching

PROBE = "activation.probe"

# At a ReLU's kink rounding alone flips whole gradients: on a graph shaped like Reddit one flip puts PyG's own GIN
# gradient 1.8e-4 from that in float64.
SMOOTH: dict[Any, Callable[[Tensor], Tensor]] = {F.relu: F.silu, F.leaky_relu: F.silu}
SLOPE = 0.35  # of a leaky ReLU inside attention; none of PyG's defaults
MOVED = 0.1  # by which share other weights are moved away from where training starts, such as zero biases
JITTER = 1e-6  # of features
ROUNDED = 2  # times; once, what cancels hardly moved by luck in 1 of 15 000 nodes
COLUMNS = 8  # that the gradient at nodes is projected to


def computed(
    config: Run, backend: Backend, dataset: AnyDataset, as_reference: bool, cache: Path | None = None
) -> Snapshot:
    """Logits and gradients of two steps, and what dropout does.

    One step is in training mode from the configured seed, where attention has a `SLOPE` that is not the default;
    one in evaluation mode from other weights. `as_reference` repeats both twice, with features, or embeddings of
    categories, that differ in their last bits and with edges and pairs to score in reverse order, to find how far
    rounding moves, and takes dropout for right.
    It computes in float32; where `config` asks for bfloat16 it finds how far that moves, too.
    """
    if as_reference:
        exact = config.changed(train={"precision": "float32"})
        snapshot = allowed(exact, backend, _steps(exact, backend, dataset, cache))
        snapshot.kinks = any(True for _ in _sloped(setup.build(config, setup.ModelDims.of(dataset))))
        for seed in range(ROUNDED):
            snapshot.learn_rounding(_steps(exact, backend, dataset, cache, seed))
        if config.train.precision == "bf16":
            snapshot.learn_autocast(_steps(config, backend, dataset, cache))
        return snapshot
    snapshot = allowed(config, backend, _steps(config, backend, dataset, cache))
    kinds = drops(config.model.model_dump())
    if "attention_dropout" in kinds:
        snapshot.dropout, snapshot.unchecked = dropout.measured(config, backend, dataset)
    if "dropout" in kinds:
        snapshot.dropout |= dropout.of_features(config, backend, dataset)
    return snapshot


def in_float64(config: Run, backend: Backend, dataset: AnyDataset, cache: Path | None = None) -> Snapshot:
    """Compute both steps in float64 from the weights that float32 begins with, on a backend of PyG's own code."""
    exact = config.changed(train={"precision": "float32"})
    return Snapshot(_steps(exact, backend, _doubled(dataset), cache, dtype=torch.float64))


def trained(config: Run, backend: Backend, model: Module, batching: Batching, dims: setup.ModelDims) -> Snapshot:
    """The evaluation step of a trained model from other weights; it must not be trained any further."""
    _smooth(model, config, batching)
    return allowed(config, backend, _evaluation(config, model, batching, dims))


def allowed(config: Run, backend: Backend, tensors: dict[str, Tensor]) -> Snapshot:
    """`tensors`, with the relative error that the backend, its batches and the precision are allowed."""
    autocast = config.train.precision == "bf16"
    each = TOLERANCE, backend.tolerance, config.batch.tolerance, AUTOCAST_TOLERANCE if autocast else None
    return Snapshot(tensors, max(filter(None, each)), autocast=autocast)


def _steps(
    config: Run,
    backend: Backend,
    dataset: AnyDataset,
    cache: Path | None,
    jitter: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """`jitter`, a seed, changes the last bits of features and embeddings, and the order of edges and pairs."""
    dims = setup.ModelDims.of(dataset)
    without = config.changed(model=dict.fromkeys(drops(config.model.model_dump()), 0.0))

    def prepared(slope: float | None) -> tuple[Module, Batching]:
        """The model with its first weights and without dropout, in training mode, and its batches."""
        model = setup.build(without, dims)
        jitter_weights(model.embed, jitter)  # of categories, which have no last bits themselves
        for conv in _sloped(model) if slope else ():
            conv.negative_slope = slope
        model.to(backend.device, dtype).train()
        batching = setup.prepare(config, model, backend, dataset, cache).batching
        if jitter is not None and hasattr(model, "decoder"):
            _reverse_pairs(model.decoder)
        _smooth(model, config, batching)
        return model, batching

    model, batching = prepared(SLOPE)
    result = _all(model, batching, jitter)
    if list(_sloped(model)):  # a backend may keep the slope that it saw first
        del model, batching
        model, batching = prepared(None)
    return result | _evaluation(config, model, batching, dims, jitter)


def _evaluation(
    config: Run, model: Module, batching: Batching, dims: setup.ModelDims, jitter: int | None = None
) -> dict[str, Tensor]:
    """A step in evaluation mode from other weights; batch norms go on with the statistics of the batch."""
    other = setup.build(config, dims, repeat=1)
    with torch.no_grad():
        for parameter in other.parameters():
            size = float(parameter.square().mean().sqrt()) or 1.0
            parameter.add_(torch.randn_like(parameter), alpha=MOVED * size)
    jitter_weights(other.embed, jitter)
    model.load_state_dict(other.state_dict(), strict=False)  # all but the probe
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.train()
    return {name + EVALUATION: tensor for name, tensor in _all(model, batching, jitter).items()}


def _all(model: Module, batching: Batching, jitter: int | None) -> dict[str, Tensor]:
    """The tensors of a step on each sample of the batches, by name; from the second on with its number."""
    result: dict[str, Tensor] = {}
    for number, batch in enumerate(batching.samples(), start=1):
        suffix = f" of batch {number}" if number > 1 else ""
        if jitter is not None:
            batch = _jittered(batch, jitter)
        result |= {name + suffix: tensor for name, tensor in _step(model, batching, batch).items()}
    return result


def _step(model: Module, batching: Batching, batch: Batch) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    logits = batch.outputs(model)
    loss = batch.loss(logits)
    loss.backward()
    result = {"logits": batching.whole(logits.detach().view(len(logits), -1))}
    for name, parameter in model.named_parameters():
        if name == PROBE and parameter.grad is not None:  # of the nodes of this process
            result[AT_NODES] = batching.whole(parameter.grad[: _nodes(batch)])
            parameter.grad = None
    batching.added(model, loss.detach())
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            result[f"gradient of {name}"] = parameter.grad
    return {name: tensor.detach().cpu().clone() for name, tensor in result.items()}


def _doubled(dataset: AnyDataset) -> AnyDataset:
    if isinstance(dataset, TypedDataset):
        return replace(dataset, data=copy.copy(dataset.data).apply(_as_double))
    whole = dataset.changed() if isinstance(dataset, NodeDataset) else dataset
    return replace(whole, **{each.name: _as_double(getattr(whole, each.name)) for each in fields(whole)})


def _as_double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _nodes(batch: Batch) -> int:
    """How many nodes the largest input of an activation has at most."""
    return sum(map(len, batch.x.values())) if isinstance(batch.x, dict) else batch.x.size(0)


def _jittered(batch: Batch, seed: int) -> Batch:
    """Jitter one batch, whose edges, and their features or relations, PyG takes in any order."""
    adj, edge_attr = _reversed(batch.adj), batch.edge_attr
    if edge_attr is not None and adj is not batch.adj:
        edge_attr = edge_attr.flip(0)
    return replace(batch, x=jittered(batch.x, seed), adj=adj, edge_attr=edge_attr)


def _reversed(adj: Any) -> Any:
    """The edges of an `edge_index` in reverse order, of each layer or relation; rows that are sorted stay."""
    if isinstance(adj, list):
        return [layer._replace(adj=_reversed(layer.adj)) for layer in adj]
    if isinstance(adj, dict):
        return {relation: _reversed(own) for relation, own in adj.items()}
    return adj.flip(1) if isinstance(adj, Tensor) and adj.layout == torch.strided else adj


def jittered(x: Any, seed: int | None) -> Any:
    """Change numbers in their last bits, if there is a seed; x is a tensor, or tensors by type."""
    if isinstance(x, dict):
        return {kind: jittered(own, seed) for kind, own in x.items()}
    if seed is None or not x.is_floating_point():
        return x
    noise = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)).mul_(2).sub_(1)
    return torch.addcmul(x, x, noise.to(x.device), value=JITTER)


@torch.no_grad()
def jitter_weights(model: Any, seed: int | None = 0) -> None:
    """Change the weights of a model, if there is one, in their last bits; as `jittered`."""
    for parameter in () if model is None else model.parameters():
        parameter.copy_(jittered(parameter, seed))


def _reverse_pairs(decoder: Any) -> None:
    """Let a decoder score pairs in reverse order, in which sums over them, such as gradients, round otherwise."""
    forward = decoder.forward

    def reversed_forward(z: Tensor, pairs: Pairs) -> Tensor:
        relation = None if pairs.relation is None else pairs.relation.flip(0)
        scores: Tensor = forward(z, pairs._replace(nodes=pairs.nodes.flip(1), relation=relation))
        return scores.flip(0)

    decoder.forward = reversed_forward


def _sloped(model: Module) -> Iterator[Any]:
    return (module for module in model.modules() if hasattr(module, "negative_slope"))


def _smooth(model: Any, config: Run, batching: Batching) -> None:
    """Replace every ReLU of the model, those inside convs such as GIN's network too."""
    device = next(model.parameters()).device
    nodes = max(map(_nodes, batching.samples()))
    model.activation = _Probed(model.activation, nodes, config.model.hidden).to(device)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.ReLU):
                setattr(module, name, torch.nn.SiLU())


class _Probed(Module):
    """A smooth activation of x [N, hidden], and a probe [N, 8] of zeros, whose gradient is that of x, projected.

    The probe has as many rows as the largest batch has nodes.
    """

    projection: Tensor

    def __init__(self, activation: Any, nodes: int, width: int) -> None:
        super().__init__()
        self.smooth = SMOOTH.get(activation, activation)
        self.probe = torch.nn.Parameter(torch.zeros(nodes, COLUMNS))
        projection = torch.randn(COLUMNS, width, generator=torch.Generator().manual_seed(0))
        self.register_buffer("projection", projection, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.smooth(x + self.probe[: x.size(0)] @ self.projection)
