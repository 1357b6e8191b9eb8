"""Dropout, which is random: of attention in one layer its mean, spread and gradient, of features its mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gnnbench import backends
from gnnbench.backends.base import Backend
from gnnbench.comparison.parity import TOLERANCE, TensorError
from gnnbench.config import BackendConfig, Run
from gnnbench.datasets import AnyDataset, GraphsDataset, LinksDataset, NodeDataset, TypedDataset
from gnnbench.training import setup
from gnnbench.training.batching import full
from gnnbench.training.batching._batch import Batch

EDGES = 1 << 14  # of the part of a larger graph that is looked at
PASSES = 16
SIGMAS = 8.0  # of a mean over `PASSES`, whose tails are heavy: 1 in a million
STEPS = (1e-2, 2.5e-3)  # of the weights, along their gradient; the second where a layer bends within the first
SLACK = 2e-2  # of a finite difference of these steps, in float32
SHAPE = (512, 256)  # of the features that are dropped
PYG = ("pyg", "pyg-sparse", "pyg-compile")  # where attention dropout is PyG's own

Measured = tuple[dict[str, TensorError], list[str]]


def measured(config: Run, backend: Backend, dataset: AnyDataset) -> Measured:
    """Errors by what was measured of a layer, and sentences on what could not be.

    A layer is linear in its attention weights: its mean over many passes is what it computes without dropout. In
    evaluation mode it computes just that. With equal random numbers it draws the same mask, so that the difference
    between two passes with other weights tells whether the gradient went through the mask of its forward. All
    is in float32, as such a difference would be lost in the rounding of autocast.
    """
    if backend.name in PYG:
        return {}, []
    subgraph, p = _subgraph(dataset), config.model.attention_dropout
    without, batch = _layer(config, backend, subgraph, 0.0)
    dropping = _layer(config, backend, subgraph, p)
    vanilla = backends.load(BackendConfig())
    vanilla.home = backend.device
    with torch.no_grad():
        expected = batch.outputs(without).double()
        ours, theirs = _passes(*dropping, expected), _passes(*_layer(config, vanilla, subgraph, p), expected)
        result = {
            "attention dropout in evaluation": _in_evaluation(*dropping, expected),
            "mean of attention dropout": TensorError(problem=_mean(ours, p)),
            "spread of attention dropout": TensorError(problem=_spread(ours, theirs, p)),
        }
    unchecked = ["attention dropout in bfloat16, for which that in float32 stands"]
    unchecked *= config.train.precision == "bf16"
    gradient = _gradient(*dropping, config.train.seed)
    if gradient is None:
        why = "as torch.manual_seed does not repeat what is drawn"
        return result, [*unchecked, f"the gradient under attention dropout, {why}"]
    return result | {"gradient under attention dropout": TensorError(problem=gradient)}, unchecked


def of_features(config: Run, backend: Backend, dataset: AnyDataset) -> dict[str, TensorError]:
    """Errors of the dropout layers by name; none where they are torch's own."""
    subgraph = _subgraph(dataset)
    single = _at_once(config)
    model: Any = setup.build(single, setup.ModelDims.of(subgraph))
    setup.prepare(single, model, backend, subgraph)
    if "forward" not in vars(model.drop):
        return {}
    return {"dropout of features": TensorError(problem=_mask(model.drop, backend))}


def _mask(layer: torch.nn.Dropout, backend: Backend) -> str:
    """Say what is wrong with the mask that a layer draws; empty if it is right."""
    x = torch.ones(SHAPE, device=backend.device, requires_grad=True)
    if not torch.equal(layer.eval()(x), x):
        return "drops in evaluation"
    first, second = layer.train()(x), layer(x)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    kept = first.detach().double() * (1 - layer.p)
    if not torch.isclose(kept, kept.round().clamp(0, 1)).all():
        return f"scales what stays by {float(first.detach().max()):.4g}, not by {1 / (1 - layer.p):.4g}"
    if not torch.equal(gradient, first):
        return "its gradient goes through another mask than its forward"
    if torch.equal(first, second):
        return "two passes drop the same"
    for mean in (kept.mean(), kept.mean(0), kept.mean(1)):
        sigma = (layer.p * (1 - layer.p) * mean.numel() / kept.numel()) ** 0.5
        if (worst := float((mean - (1 - layer.p)).abs().max())) > SIGMAS * sigma:
            return f"keeps a share that is {worst:.2g} off {1 - layer.p:g}, {worst / sigma:.0f} standard errors"
    return ""


def _at_once(config: Run, **shape: Any) -> Run:
    """Return a run that has all of one graph as its batch."""
    changed = config.changed(model={"readout": "none", **shape}, backend={"loader": BackendConfig().loader})
    return changed.model_copy(update={"batch": full.Config()})


def _layer(
    config: Run, backend: Backend, dataset: NodeDataset | TypedDataset, p: float
) -> tuple[torch.nn.Module, Batch]:
    """One layer with all heads, in training mode, on the whole graph."""
    heads = {"output_heads": config.model.heads, "attention_dropout": p}
    single = _at_once(config, layers=1, dropout=0.0, **heads).changed(train={"precision": "float32"})
    model = setup.build(single, setup.ModelDims.of(dataset))
    (batch,) = setup.prepare(single, model.train(), backend, dataset).batching.samples()
    return model, batch


def _passes(model: torch.nn.Module, batch: Batch, expected: Tensor) -> Tensor:
    """Project the error of each pass on `expected`, and square it; both over the square of that, [PASSES, 2]."""
    size = float(expected.square().sum()) or 1.0
    deviations = (batch.outputs(model).double() - expected for _ in range(PASSES))
    sums = [(float((each * expected).sum()), float(each.square().sum())) for each in deviations]
    return torch.tensor(sums, dtype=torch.float64) / size


def _in_evaluation(model: torch.nn.Module, batch: Batch, expected: Tensor) -> TensorError:
    model.eval()
    result = max(_off(batch.outputs(model), expected) for _ in range(2))
    problem = f"off by {result:.1e} of its RMS from none at all" if not result <= TOLERANCE else ""
    return TensorError(rel_rms=result, worst_row=0.0, problem=problem)


def _mean(passes: Tensor, p: float) -> str:
    mean, error = _estimate(passes[:, 0])
    if not error > 0:
        return f"{PASSES} passes are all alike, though a share of {p:g} is to be dropped"
    if not abs(mean) <= SIGMAS * error + TOLERANCE:
        return f"{1 + mean:.3f} of what it is without dropout, {abs(mean) / error:.0f} standard errors away"
    return ""


def _spread(ours: Tensor, theirs: Tensor, p: float) -> str:
    (our_size, our_error), (size, error) = (_estimate(passes[:, 1]) for passes in (ours, theirs))
    if abs(our_size - size) <= SIGMAS * (our_error + error) + TOLERANCE * size:
        return ""
    return f"{our_size / (size or 1.0):.2f} of PyG's variance, so that not a share of {p:g} is dropped"


def _gradient(model: torch.nn.Module, batch: Batch, seed: int) -> str | None:
    """Say what is wrong with the gradient; None if equal seeds do not draw equal masks."""
    model.train()

    def passed() -> Tensor:
        torch.manual_seed(seed)
        out: Tensor = batch.outputs(model)
        return out.double()

    first = passed()
    weight = torch.randn(first.shape, generator=torch.Generator().manual_seed(seed)).to(first)
    with torch.no_grad():
        if _off(passed(), first) > TOLERANCE:
            return None
    (first * weight).sum().backward()
    with torch.no_grad():
        for size in STEPS:
            miss = _miss(model, lambda: float((passed() * weight).sum()), size)
            if miss <= SLACK:
                return ""
    return f"promises a rise that its own forward misses by {miss:.0%}"


def _miss(model: torch.nn.Module, value: Callable[[], float], size: float) -> float:
    """How far the rise of `value` along the gradients is from what they promise, as a share of it."""
    rise, steps = 0.0, []
    for parameter in model.parameters():
        if parameter.dim() > 1 and parameter.grad is not None and parameter.grad.norm() > 0:
            step = parameter.grad * (size * parameter.norm() / parameter.grad.norm())
            rise += float((step.double() * parameter.grad.double()).sum())
            steps.append((parameter, step))
    sides = []
    for sign in (1, -2, 1):  # ahead, as far behind, and back
        for parameter, step in steps:
            parameter.add_(step, alpha=sign)
        sides.append(value())
    return abs((sides[0] - sides[1]) / 2 - rise) / (rise or 1.0)


def _estimate(values: Tensor) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(values.mean()), float(values.std()) / len(values) ** 0.5


def _off(tensor: Tensor, expected: Tensor) -> float:
    return float((tensor.double() - expected).norm() / expected.norm().clamp(min=1e-300))


def _subgraph(dataset: AnyDataset) -> NodeDataset | TypedDataset:
    """The graph, or the first ones as one; or the edges into some of its nodes, a hub's cut off, of one type."""
    if isinstance(dataset, TypedDataset):
        return dataset
    if isinstance(dataset, LinksDataset):
        dataset = dataset.as_nodes()
    if isinstance(dataset, GraphsDataset):
        dataset = dataset.first(max(1, int((dataset.edge_ptr <= EDGES).sum()) - 1))
    edge_index, edges = dataset.edge_index, dataset.edge_index.size(1)
    if edges <= EDGES:
        return dataset
    kept = (edge_index[1] % -(-edges // EDGES) == 0).nonzero().flatten()[:EDGES]
    nodes, renumbered = edge_index[:, kept].unique(return_inverse=True)
    masks = {name: getattr(dataset, name)[nodes] for name in ("train_mask", "val_mask", "test_mask")}
    return dataset.changed(edge_index=renumbered, x=dataset.x[nodes], y=dataset.y[nodes], **masks)
