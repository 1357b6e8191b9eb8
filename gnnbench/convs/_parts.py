"""The parts of a model beside its convs on kernels: encoders, readout, decoder, linear layers, norms, dropout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, Embedding, Module, ReLU, Sequential

from gnnbench.convs import _checks
from gnnbench.convs._bound import Accelerated
from gnnbench.ops._custom import is_learned, is_transformed
from gnnbench.ops.dense import batch_norm, embedding_sum, linear
from gnnbench.ops.features import dropout
from gnnbench.ops.pairs import pair_dot, pair_map
from gnnbench.ops.spmm import spmm
from gnnbench.results.schema import Binding

if TYPE_CHECKING:
    from gnnbench.graph import Graph
    from gnnbench.ops.kernels import Kernels

OGB = "ogb.graphproppred.mol_encoder"
# Features of all pairs, below which sorting the pairs takes longer than it saves (one thread, 16 to 256 features).
SORTED, STREAMED = 1 << 18, 1 << 21


def encoders(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels` sum what OGB's encoders of atoms and bonds look up, if that is faster."""
    if "embedding_sum" not in kernels.accelerated:
        return []

    def is_encoder(layer: Module) -> bool:
        return type(layer).__module__ == OGB and not _checks.has_own_forward(layer)

    return _bound(model, kernels, "embedding_sum", is_encoder, _encoded)


def linears(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels`, where they are faster at it, compute plain linear layers whose weights are trained."""
    if "linear" not in kernels.accelerated:
        return []
    return _bound(model, kernels, "linear", _checks.is_plain_linear, _multiplied)


def dropouts(model: Module, kernels: Kernels, first_node: int | None = None) -> list[Binding]:
    """Let `kernels` draw what the layers of `model` drop, where they have an op for it.

    Args:
        first_node: how many nodes of other processes come before those whose features a layer is given; None where
            there are no others. Each process then drops what one alone would drop of its nodes, by a hash on all
            kernels, for all processes draw the same random numbers.
    """
    if first_node is None and "dropout" not in kernels.accelerated:
        return []

    def drops(layer: Module) -> bool:
        return type(layer) is Dropout and bool(layer.p) and not _checks.has_own_forward(layer)

    bindings = _bound(model, kernels, "dropout", drops, _dropped, first_node or 0)
    return [binding.model_copy(update={"rewrites": ["dropout"]}) for binding in bindings]


def _bound(
    model: Module,
    kernels: Kernels,
    op: str,
    fits: Callable[[Module], bool],
    forward: Callable[..., Tensor],
    *arguments: Any,
) -> list[Binding]:
    """Let `forward` take the place of that of the layers that fit."""
    layers: dict[str, Any] = {path: layer for path, layer in model.named_modules() if fits(layer)}
    for layer in layers.values():
        layer.forward = Accelerated(forward, layer, kernels, *arguments)
    return [_binding(kernels, path, type(layer).__name__, op) for path, layer in layers.items()]


def _binding(kernels: Kernels, path: str, name: str, *ops: str) -> Binding:
    providers = {op: kernels.name if op in kernels.accelerated else "torch" for op in ops}
    return Binding(module=path, conv=name, kernels=providers)


def _encoded(encoder: Any, kernels: Kernels, categories: Tensor) -> Tensor:
    """Embeddings [N, F], each the sum of a row of every table, of categories [N, K] int64, one for each table.

    Raises:
        DatasetError: a category that its table lacks.
    """
    (tables,) = encoder.children()
    if not _are_plain(tables, categories):
        return type(encoder).forward(encoder, categories)
    return embedding_sum(kernels, [table.weight for table in tables], categories)


def _are_plain(tables: Any, categories: Tensor) -> bool:
    """Return whether OGB does nothing but add a row of every table, all of one type and width, nobody watching."""
    if categories.dtype != torch.int64 or categories.dim() != 2 or categories.size(1) != len(tables):
        return False
    for table in tables:
        if not _checks.is_untouched(table, Embedding) or table.scale_grad_by_freq or table.sparse:
            return False
        if table.padding_idx is not None or table.max_norm is not None:
            return False
    return len({(table.weight.dtype, table.weight.size(1)) for table in tables}) == 1


def _multiplied(layer: Any, kernels: Kernels, x: Any) -> Tensor:
    weight, bias = layer.weight, layer.bias
    if type(x) is Tensor and weight.requires_grad:
        return linear(kernels, x, weight, bias)
    return F.linear(x, weight, bias)


def _dropped(layer: Dropout, kernels: Kernels, first_node: int, x: Any) -> Any:
    return dropout(kernels, x, layer.p, layer.training, first_node * prod(x.shape[1:]))


def readout(model: Module, kernels: Kernels) -> list[Binding]:
    """Let the readout of `model`, if any, take a Graph whose rows are graphs and whose columns are nodes."""
    pooling: Any = getattr(model, "readout", None)
    if pooling is None:
        return []

    def pooled(x: Tensor, segments: Graph) -> Tensor:
        return spmm(kernels, segments, x, reduce=pooling.reduce)

    def highest(x: Tensor, segments: Graph) -> Tensor:
        """Equal nodes, as at symmetric places of a molecule, share the gradient like in PyG's pooling."""
        graph_of_node = segments.transpose.col
        top = spmm(kernels, segments, x.detach(), reduce="max").index_select(0, graph_of_node)
        tied = (x == top).to(x.dtype)
        share = tied / spmm(kernels, segments, tied).index_select(0, graph_of_node)
        return spmm(kernels, segments, x * share)

    pooling.forward = highest if pooling.reduce == "max" else pooled
    ops = ["spmm", "spmm_max"] if pooling.reduce == "max" else ["spmm"]
    return [_binding(kernels, "readout", "Readout", *ops)]


def decoder(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels` score pairs, by dot products where `decoder.ends` has them, otherwise by `decoder.score`."""
    scorer: Any = getattr(model, "decoder", None)
    if scorer is None:
        return []
    gathered, is_product = scorer.forward, hasattr(scorer, "ends")

    def products(z: Tensor, pairs: Any) -> Tensor:
        few = pairs.nodes.size(1) * z.size(1) < SORTED
        return gathered(z, pairs) if few else pair_dot(kernels, *scorer.ends(z, pairs))

    def streamed(z: Tensor, pairs: Any) -> Tensor:
        if pairs.nodes.size(1) * z.size(1) < STREAMED:
            return gathered(z, pairs)
        weights, draws = list(scorer.parameters()), scorer.training and scorer.drop.p > 0
        return pair_map(kernels, scorer.score, z, z, pairs.nodes, parameters=weights, draws=draws)

    scorer.forward = products if is_product else streamed
    ops = ["sddmm", "spmm"] if is_product else ["segment"]
    binding = _binding(kernels, "decoder", type(scorer).__name__, *ops)
    if not is_product:
        binding.kernels["pairs"] = binding.kernels.pop("segment")
    return [binding]


def norms(model: Module, kernels: Kernels) -> list[Binding]:
    """Let `kernels` normalise batches in training, and rows where no gradient is asked for, if that is faster.

    A Sequential runs each norm with the ReLU that follows it then, unless someone else sees what is between them;
    both layers stay as they are. A model with norms and an activation has a method `activated` that calls both.
    """
    if "batch_norm" not in kernels.accelerated:
        return []
    paths = []
    for path, layers in model.named_modules():
        if _checks.is_untouched(layers, Sequential):
            pairs = [f"{path}.{index}" for index, pair in enumerate(pairwise(layers)) if _are_norm_and_relu(*pair)]
            if pairs:
                layers.forward = Accelerated(_in_sequence, layers, kernels)
                paths += pairs
    stack: Any = model
    if hasattr(stack, "activated"):
        stack.activated = partial(_activated, stack, kernels)
        paths += [f"norms.{index}" for index, norm in enumerate(stack.norms) if type(norm) is BatchNorm1d]
    return [_binding(kernels, path, "BatchNorm1d", "batch_norm") for path in paths]


def _in_sequence(layers: Sequential, kernels: Kernels, x: Any) -> Any:
    left = list(layers)
    while left:
        layer = left.pop(0)
        if left and _are_norm_and_relu(layer, left[0]):
            left.pop(0)
            x = _normalised(layer, kernels, x, relu=True)
        else:
            x = layer(x)
    return x


def _are_norm_and_relu(norm: Module, after: Module) -> bool:
    return _checks.is_untouched(norm, BatchNorm1d) and _checks.is_untouched(after, ReLU)


def _activated(model: Any, kernels: Kernels, layer: int, x: Tensor) -> Tensor:
    norm, relu = model.norms[layer], model.activation is F.relu
    if not _checks.is_untouched(norm, BatchNorm1d):
        return model.activation(norm(x))
    x = _normalised(norm, kernels, x, relu)
    return x if relu else model.activation(x)


def _normalised(norm: Any, kernels: Kernels, x: Any, relu: bool) -> Tensor:
    """Apply a batch norm to x [N, F], and a ReLU to what it returns if `relu`."""
    if not _is_usual(norm, x) or (not norm.training and is_learned([x, norm.weight, norm.bias])):
        out: Tensor = BatchNorm1d.forward(norm, x)
        return F.relu(out) if relu else out
    if not norm.training:
        moments = norm.running_mean, norm.running_var
        return kernels.normalise(x.contiguous(), *moments, norm.weight, norm.bias, norm.eps, relu)
    out, mean, var = batch_norm(kernels, x, norm.weight, norm.bias, norm.eps, relu)
    with torch.no_grad():
        norm.num_batches_tracked += 1
        # By `.data`, for torch keeps both for the backward of its own batch norm, and does not count its updates.
        norm.running_mean.data.lerp_(mean, norm.momentum)
        norm.running_var.data.lerp_(var * (len(x) / (len(x) - 1)), norm.momentum)
    return out


def _is_usual(norm: Any, x: Any) -> bool:
    """Return whether a norm does to x [N, F] what `batch_norm` does, by moments of the batch or its own."""
    tensors = norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked
    if norm.momentum is None or not norm.eps > 0 or any(each is None for each in tensors):
        return False
    if x.dim() != 2 or (norm.training and len(x) < 2):
        return False
    alike = all(each.shape == x.shape[1:] and each.dtype == x.dtype for each in tensors[:4])
    return alike and not is_transformed(x, *tensors)
