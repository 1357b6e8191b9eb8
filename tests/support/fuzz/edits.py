"""Edit a model as programs do, before or after it is bound; alike for every model of the same structure."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module, Parameter, Sequential
from torch.nn.utils import parametrizations, prune

from gnnbench.ops.features import Features
from tests.support.fuzz import layers

Seen = Callable[[str, Any], None]  # told by hooks: which of them, and the tensors it was given


def edit(draw: Random, model: Module, seen: Seen) -> Module:
    """One random edit; the model, or the copy that takes its place."""
    edits = (replace, insert, delete, share, freeze, setting, hook, hook, reparametrise, cast, again, resize)
    made = draw.choice(edits)(draw, model, seen)
    return model if made is None else made


def every(model: Module, *kinds: type) -> list[Any]:
    """Modules of the model of these kinds; those within a conv last."""
    return [module for module in model.modules() if isinstance(module, kinds)]


def replace(draw: Random, model: Module, seen: Seen) -> None:
    """Put a new layer in the place of another, most often of the same width."""
    parents = [parent for parent in model.modules() if [*parent.children()]]
    parent = draw.choice(parents)
    name, old = draw.choice([*parent.named_children()])
    if isinstance(old, (nn.Linear, nn.BatchNorm1d)) or (isinstance(old, nn.Identity) and draw.random() < 0.5):
        width = getattr(old, "in_features", getattr(old, "num_features", 5))
        new = layers.layer(draw, width)
        if draw.random() < 0.6 and isinstance(old, nn.Linear):
            new = layers.linear(draw, old.in_features, old.out_features)
    elif isinstance(old, (nn.ReLU, nn.Dropout, nn.SiLU, nn.Tanh)):
        new = draw.choice((nn.ReLU, nn.SiLU, nn.Identity, nn.LeakyReLU))()
    else:
        return
    parent._modules[name] = new.to(_dtype(model))


def insert(draw: Random, model: Module, seen: Seen) -> None:
    if sequences := every(model, Sequential):
        sequence = draw.choice(sequences)
        new = draw.choice((nn.ReLU, nn.Identity, nn.SiLU, nn.Dropout))()
        sequence.insert(draw.randint(0, len(sequence)), new)


def delete(draw: Random, model: Module, seen: Seen) -> None:
    if sequences := [each for each in every(model, Sequential) if len(each)]:
        sequence = draw.choice(sequences)
        del sequence[draw.randrange(len(sequence))]


def share(draw: Random, model: Module, seen: Seen) -> None:
    """Let two layers of a kind be one."""
    kind = draw.choice((nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout))
    alike = every(model, kind)
    places = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is kind
    ]
    if places:
        parent, name = draw.choice(places)
        parent._modules[name] = draw.choice(alike)


def freeze(draw: Random, model: Module, seen: Seen) -> None:
    for parameter in model.parameters():
        if draw.random() < 0.4:
            parameter.requires_grad_(not parameter.requires_grad)


def setting(draw: Random, model: Module, seen: Seen) -> None:
    """Change an attribute of a layer, or its mode."""
    if found := every(model, nn.BatchNorm1d, nn.Dropout, nn.Linear):
        layer = draw.choice(found)
        if draw.random() < 0.3:
            layer.train(not layer.training)
        elif isinstance(layer, nn.BatchNorm1d):
            name, value = draw.choice((("momentum", None), ("momentum", 0.3), ("eps", 0.1), ("affine", False)))
            setattr(layer, name, value)
        elif isinstance(layer, nn.Dropout):
            layer.p = draw.choice((0.0, 0.25, 1.0))
        else:
            layer.bias = None


def hook(draw: Random, model: Module, seen: Seen) -> None:
    """Watch a module, or change what it is given or returns."""
    path, module = draw.choice([*model.named_modules()])
    kind = draw.choice(("forward", "pre", "backward", "backward pre", "changes output", "changes input"))
    where = f"{kind} hook of {path}"

    def watch(module: Module, *given: Any) -> None:
        seen(where, given)

    def change(module: Module, *given: Any) -> Any:
        seen(where, given)
        return _halved(given[-1])

    if kind == "forward":
        module.register_forward_hook(watch)
    elif kind == "pre":
        module.register_forward_pre_hook(watch)
    elif kind == "backward":
        module.register_full_backward_hook(watch)
    elif kind == "backward pre":
        module.register_full_backward_pre_hook(watch)
    elif kind == "changes output":
        module.register_forward_hook(change)
    else:
        module.register_forward_pre_hook(change)


def _halved(given: Any) -> Any:
    if isinstance(given, tuple):
        return tuple(_halved(each) for each in given)
    if isinstance(given, Features):
        return given.of_value(given.value / 2)
    floating = isinstance(given, Tensor) and given.is_floating_point() and given.layout == torch.strided
    return given / 2 if floating else given


def reparametrise(draw: Random, model: Module, seen: Seen) -> None:
    if found := [
        each for each in every(model, nn.Linear) if isinstance(each._parameters.get("weight"), Parameter)
    ]:
        layer = draw.choice(found)
        how: Any = draw.choice((nn.utils.weight_norm, parametrizations.weight_norm, prune.random_unstructured))
        how(layer, "weight", **({"amount": 0.3} if how is prune.random_unstructured else {}))


def cast(draw: Random, model: Module, seen: Seen) -> None:
    """Let one layer have another type than the rest, or all of them."""
    target = model if draw.random() < 0.5 else draw.choice([*model.modules()])
    target.to(draw.choice((torch.float32, torch.float64)))


def again(draw: Random, model: Module, seen: Seen) -> Module | None:
    """Copy the model, save and load it, or load other weights."""
    how = draw.choice(("copy", "pickle", "weights", "assigned"))
    if how == "copy":
        return copy.deepcopy(model)
    if how == "pickle":
        hooked = any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())
        return None if hooked else pickle.loads(pickle.dumps(model))
    scaled = {
        name: tensor * 1.5 if tensor.is_floating_point() else tensor for name, tensor in model.state_dict().items()
    }
    model.load_state_dict(scaled, assign=how == "assigned")
    return None


def resize(draw: Random, model: Module, seen: Seen) -> None:
    """Give a linear layer another weight: a view, or of another shape."""
    found = [each for each in every(model, nn.Linear) if isinstance(each._parameters.get("weight"), Parameter)]
    if found:
        layer = draw.choice(found)
        rows, columns = layer.weight.shape
        if draw.random() < 0.3:
            layer.weight = Parameter(torch.randn(rows, columns + 1, dtype=layer.weight.dtype))
        else:
            layer.weight = Parameter(torch.randn(columns, rows, dtype=layer.weight.dtype).t())


def _dtype(model: Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
