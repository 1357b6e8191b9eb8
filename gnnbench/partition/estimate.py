"""Estimates for one worker: memory, bytes exchanged and time of an epoch, from counts and measured rates.

A layer of GCN or GraphSAGE is products with weights, sums over edges, passes over arrays and an exchange of halos.
Their sizes follow from the part and the model; `rates` says how fast this machine does each of the first three.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from pydantic import Field

from gnnbench.config import BackendConfig, ModelConfig
from gnnbench.errors import ConfigError
from gnnbench.results.schema import Record

FLOAT = 4  # bytes
# Of what an epoch needs at once, as memory that malloc holds besides. Empirical: chosen to fit peaks of gcn and
# sage in 1, 2 and 4 parts, where none to about all of it lay idle; it does not follow from the data structures.
IDLE = 0.5


class Share(NamedTuple):
    """The counts of one part.

    Attributes:
        halo: nodes of other parts that it receives.
        sent: its own nodes, once for each part that receives them.
        apart: edges of which there is a second copy, in rows with and without halo.
        symmetric: whether it is its own transpose.
    """

    nodes: float
    edges: float
    halo: float
    sent: float
    apart: float = 0
    symmetric: bool = False


class Layer(NamedTuple):
    """One layer of a model.

    Attributes:
        inputs, outputs: widths.
        message: width of what is summed over edges and exchanged.
        transforms: whether messages were multiplied by weights before, so that they have a gradient.
    """

    inputs: int
    outputs: int
    message: int
    transforms: bool


class Rates(Record):
    """How fast one worker is, measured on its own."""

    threads: int
    edges_per_s: dict[int, float] = Field(description="sums over edges in the forward pass, by width")
    edges_per_s_backward: dict[int, float] = Field(description="the same over the transposed edges")
    dense_flop_per_s: float = Field(description="product of features and weights")
    stream_bytes_per_s: float = Field(description="passes over arrays much larger than the caches")
    program_bytes: int = Field(description="of a worker that trains on next to nothing")
    kernel_bytes_per_edge: float = Field(0.0, description="what kernels keep of a graph, in each direction")


class Estimate(Record):
    """One worker's share of an epoch, all of it predicted."""

    nodes: int
    edges: int
    halo: int = Field(description="nodes of other parts that it receives")
    memory_bytes: int = Field(description="peak of its process")
    exchange_bytes: int = Field(description="sent or received in an epoch, whichever is more")
    compute_s: float
    exchange_s: float

    @property
    def epoch_s(self) -> float:
        return self.compute_s + self.exchange_s


def random_share(nodes: int, edges: int, parts: int) -> Share:
    """The expected counts of one of `parts` random parts, were all degrees the mean one.

    A node has a halo copy in a part unless all its out-edges end elsewhere. That share is concave in the degree:
    where degrees differ, halos are smaller.
    """
    elsewhere = 1 - 1 / parts
    halo = nodes * elsewhere * (1 - elsewhere ** (edges / nodes))
    return Share(nodes / parts, edges / parts, halo, halo)


def check(model: ModelConfig) -> None:
    """Raises ConfigError where the model is of a kind that is not known here."""
    aggr = getattr(model, "aggr", "sum")
    if model.name not in ("gcn", "sage") or aggr not in ("sum", "mean") or model.readout != "none":
        raise ConfigError(
            f"--plan knows the models gcn, and sage with aggr sum or mean, without readout; this is {model.name} "
            f"with aggr={aggr} and readout={model.readout}"
        )


def layers(model: ModelConfig, backend: BackendConfig, features: int, classes: int) -> list[Layer]:
    """The layers of a model; raises as `check`."""
    check(model)
    widths = [features, *[model.hidden] * (model.layers - 1), classes]
    result = []
    for inputs, outputs in pairwise(widths):
        if model.name == "gcn":  # where PyG itself multiplies first
            transforms = not backend.transform_first or inputs >= outputs
        else:
            transforms = backend.transform_first and outputs < inputs
        result.append(Layer(inputs, outputs, outputs if transforms else inputs, transforms))
    return result


def estimate(share: Share, model: ModelConfig, stack: Sequence[Layer], rates: Rates, network: float) -> Estimate:
    """Memory, exchanged bytes and times of one worker.

    Args:
        network: bytes per second that a worker sends, and receives at the same time.
    """
    loops = share.nodes if model.name == "gcn" and getattr(model, "normalize", True) else 0
    edges = share.edges + loops
    compute = exchanged = 0.0
    for place, layer in enumerate(stack):
        trains_input = place > 0
        directions = 1 + (trains_input or layer.transforms)  # whether messages have a gradient
        compute += edges / rates.edges_per_s[layer.message]
        compute += (directions - 1) * edges / rates.edges_per_s_backward[layer.message]
        products = (1 + (model.name == "sage")) * (2 + trains_input)
        compute += products * 2 * share.nodes * layer.inputs * layer.outputs / rates.dense_flop_per_s
        moved = share.nodes * _passes(model, layer, place, len(stack))
        if share.halo or share.sent:  # put together with my nodes, picked from them; and back, added to theirs
            moved += directions * layer.message * (2 * (share.nodes + share.halo) + 2.5 * share.sent)
        compute += FLOAT * moved / rates.stream_bytes_per_s
        exchanged += directions * FLOAT * layer.message * max(share.halo, share.sent)
    weights = sum((1 + (model.name == "sage")) * layer.inputs * layer.outputs for layer in stack)
    summed = 2 * FLOAT * weights if share.halo or share.sent else 0
    return Estimate(
        nodes=round(share.nodes),
        edges=round(share.edges),
        halo=round(share.halo),
        memory_bytes=round(rates.program_bytes + _memory(share, edges, model, stack, rates.kernel_bytes_per_edge)),
        exchange_bytes=round(exchanged),
        compute_s=compute,
        exchange_s=(exchanged + summed) / network,
    )


def _passes(model: ModelConfig, layer: Layer, place: int, depth: int) -> float:
    """How many numbers per node are read or written beside products and sums over edges, forward and backward."""
    dropped = layer.inputs * (2 + 3 * (place > 0)) if model.dropout else 0
    if model.name == "gcn":  # scaled by degrees before and behind the sum
        own = 8 * layer.message + layer.outputs
    else:  # the bias, the shares of a mean, and the sum of both gradients
        own = 4 * layer.outputs + 2 * layer.message + 3 * layer.inputs * (place > 0)
    if place == depth - 1:
        return dropped + own + 6 * layer.outputs  # the loss
    norm = {"none": 0, "batch": 10, "layer": 8}[model.norm]
    return dropped + own + layer.outputs * (5 + norm + 6 * model.residual)


def _memory(
    share: Share, edges: float, model: ModelConfig, stack: Sequence[Layer], kernel_bytes_per_edge: float
) -> float:
    """Bytes at the peak: the part and its transpose, what the backward pass needs, and what is at work at once."""
    nodes, columns = share.nodes, share.nodes + share.halo
    alone = not (share.halo or share.sent)
    graph = 4 * share.edges + 8 * nodes + 8 * share.halo + 4 * share.apart
    graph += 4 * share.edges if alone else 0  # the order of edges in the dataset
    graph += 4 * edges + 8 * nodes if edges > share.edges else 0  # once more with loops
    graph += 0 if share.symmetric else 4 * edges + 8 * columns + 4 * edges  # the transpose, and its order of edges
    graph += kernel_bytes_per_edge * edges * (2 - share.symmetric)
    inputs = nodes * (FLOAT * stack[0].inputs + 8 + 3)
    kept = sum(FLOAT * nodes * numbers for numbers in _kept(model, stack))
    at_work = max(FLOAT * (2 * columns * layer.message + nodes * layer.outputs) for layer in stack)
    return graph + inputs + (1 + IDLE) * (kept + at_work)


def _kept(model: ModelConfig, stack: Sequence[Layer]) -> Iterator[int]:
    """Numbers per node that each layer keeps for the backward pass."""
    for place, layer in enumerate(stack):
        dropped = layer.inputs if model.dropout else 0
        aggregated = 0 if layer.transforms else layer.message
        activated = layer.outputs * (1 + (model.norm != "none")) if place < len(stack) - 1 else layer.outputs
        yield dropped + aggregated + activated
