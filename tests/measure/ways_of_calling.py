"""Every layer of PyG, called in every way that programs call layers, under the drop-in beside PyG's own code.

    python tests/measure/ways_of_calling.py [WAY ...] [--layer NAME] [--chunks]

Values, gradients, types and errors have to agree. Every call is given to kernels, however small; with `--chunks`
streamed layers have many chunks. Attributes that PyG's layers leave on themselves are not compared, so that layers
which several threads share may fail in either.
"""

from __future__ import annotations

import argparse
import copy
import io
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric import EdgeIndex
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import to_torch_csc_tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

import gnnbench
from gnnbench import patch
from gnnbench.ops import stream
from gnnbench.ops.kernels import Kernels
from gnnbench.patch.policy import Policy
from tests.support import absent, graphs, layers
from tests.support.dropin import BACKEND

Way = Callable[[Any, layers.Call, layers.Given], list[Tensor]]
GRAPHS = ("isolated nodes", "duplicates")
COARSE = {"float32": 2e-4, "features of float32": 2e-4, "bfloat16": 0.1, "autocast": 6e-2}


class Through:
    """A layer as `layers.LAYERS` calls it, each call passed through `called`."""

    def __init__(self, conv: Any, called: Callable[..., Any]) -> None:
        self.conv, self.called = conv, called

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.called(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.conv, name)


def tensors(out: Any) -> list[Tensor]:
    """All tensors of floating point in a result."""
    if isinstance(out, Tensor):
        return [out] * out.is_floating_point()
    parts = out.values() if isinstance(out, dict) else out if isinstance(out, (tuple, list)) else []
    return [tensor for part in parts for tensor in tensors(part)]


def trained(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    """A layer's results and all gradients."""
    outs = tensors(call(conv, g))
    wanted = [each for each in (*g, *conv.parameters()) if each.requires_grad]
    losses = [(out * torch.linspace(-1, 2, out.numel()).to(out).view(out.shape)).sum() for out in outs]
    return [*(out.detach() for out in outs), *gradients(losses, wanted)]


def gradients(losses: list[Tensor], wanted: list[Tensor], **options: Any) -> list[Tensor]:
    losses = [loss for loss in losses if loss.requires_grad]
    if not losses or not wanted:
        return []
    found = torch.autograd.grad(sum(losses[1:], losses[0]), wanted, allow_unused=True, **options)
    return [torch.zeros_like(each) if grad is None else grad for each, grad in zip(wanted, found, strict=True)]


def cast(g: layers.Given, dtype: torch.dtype) -> layers.Given:
    return layers.Given(
        *(each.detach().to(dtype).requires_grad_() if each.is_floating_point() else each for each in g)
    )


def with_features(change: Callable[[Tensor], Tensor]) -> Way:
    return lambda conv, call, g: trained(conv, call, g._replace(x=change(g.x.detach()).requires_grad_()))


def with_edges(change: Callable[[Tensor, int], Any]) -> Way:
    return lambda conv, call, g: trained(conv, call, g._replace(edge_index=change(g.edge_index, len(g.x))))


def after(change: Callable[[Any, layers.Given], Any], every: type = MessagePassing) -> Way:
    def way(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
        for module in [each for each in conv.modules() if isinstance(each, every)]:
            change(module, g)
        return trained(conv, call, g)

    return way


def set_to(**values: Any) -> Way:
    return after(lambda module, g: vars(module).update(values))


def explained(module: Any, g: layers.Given) -> None:
    edges = g.edge_index.size(1)
    module._edge_mask, module._loop_mask = torch.linspace(-1, 1, edges), g.edge_index[0] != g.edge_index[1]
    module.explain = module._apply_sigmoid = True


def copied(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    trained(conv, call, g)
    return trained(copy.deepcopy(conv), call, g)


def pickled(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    trained(conv, call, g)
    file = io.BytesIO()
    torch.save(conv, file)
    file.seek(0)
    return trained(torch.load(file, weights_only=False), call, g)


def other_weights(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    trained(conv, call, g)
    conv.load_state_dict({name: 1.25 * each for name, each in conv.state_dict().items()})
    return trained(conv, call, g)


def without_gradients(mode: Callable[[], Any]) -> Way:
    def way(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
        with mode():
            return [out.clone() for out in tensors(call(conv, g))]

    return way


def twice_differentiated(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    outs = tensors(call(conv, g))
    first = gradients([out.pow(3).sum() for out in outs], [g.x], create_graph=True)
    return gradients([each.square().sum() for each in first], [g.x, *conv.parameters()])


def two_backwards(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    losses, wanted = [out.square().sum() for out in tensors(call(conv, g))], [g.x, *conv.parameters()]
    return gradients(losses, wanted, retain_graph=True) + gradients(losses, wanted)


def functional(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        through = Through(conv, lambda *args, **kwargs: torch.func.functional_call(conv, parameters, args, kwargs))
        return torch.stack([out.sum() for out in tensors(call(through, g._replace(x=x)))]).sum()

    parameters = {name: 1.5 * each.detach() for name, each in conv.named_parameters()}
    of_parameters, of_x = torch.func.grad(loss, argnums=(0, 1))(parameters, g.x.detach())
    return [*of_parameters.values(), of_x]


def first_result(conv: Any, call: layers.Call, g: layers.Given) -> Callable[[Tensor], Tensor]:
    return lambda x: tensors(call(conv, g._replace(x=x)))[0]


def mapped(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    x = torch.stack([g.x.detach(), 2 * g.x.detach()])
    return [torch.func.vmap(first_result(conv, call, g), randomness="same")(x)]


def forward_mode(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    return list(torch.func.jvp(first_result(conv, call, g), (g.x.detach(),), (torch.ones_like(g.x),)))


def checkpointed(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    outs = tensors(call(Through(conv, lambda *args: checkpoint(conv, *args, use_reentrant=False)), g))
    return gradients([out.square().sum() for out in outs], [g.x, *conv.parameters()])


def autocast(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        return [out.float() for out in tensors(call(conv, g))]


def watched(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    seen: list[int] = []
    for module in conv.modules():
        module.register_forward_hook(lambda module, args, out: seen.append(len(type(module).__name__)))
    return [*trained(conv, call, g), torch.tensor(sorted(seen))]


def doubled_before(module: Any, args: Any) -> Any:
    return (2 * args[0], *args[1:]) if args and isinstance(args[0], Tensor) else None


def watched_parameters(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    seen: list[float] = []
    for parameter in conv.parameters():
        parameter.register_hook(lambda grad: seen.append(float(grad.sum())))
    losses = [out.sum() for out in tensors(call(conv, g)) if out.requires_grad]
    if losses:
        torch.stack(losses).sum().backward()
    return [torch.tensor(sorted(seen))]


def by_threads(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        try:
            found[number] = trained(conv, call, cast(g, torch.float64))
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found.values():
        if isinstance(each, Exception):
            raise each
    return [tensor for number in range(4) for tensor in found[number]]


def in_type(dtype: torch.dtype) -> Way:
    return lambda conv, call, g: trained(conv.to(dtype), call, cast(g, dtype))


def compiled(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    torch._dynamo.reset()
    return [out.detach() for out in tensors(call(torch.compile(conv, backend="aot_eager"), g))]


def changed_in_place(conv: Any, call: layers.Call, g: layers.Given) -> list[Tensor]:
    g = layers.Given(*(each.detach() for each in g))
    start = g.x.clone().requires_grad_()
    x = 1 * start
    losses = [out.sum() for out in tensors(call(conv, g._replace(x=x)))]
    with torch.no_grad():
        x.add_(1)
    return gradients(losses, [start])


def last_edge(value: int) -> Way:
    def change(edge_index: Tensor, nodes: int) -> Tensor:
        edge_index = edge_index.clone()
        edge_index[0, -1] = value if value < 0 else nodes + value
        return edge_index

    return with_edges(change)


def square(edge_index: Tensor, nodes: int) -> EdgeIndex:
    return EdgeIndex(edge_index, sparse_size=(nodes, nodes))


WAYS: dict[str, Way] = {
    "plain": trained,
    "copied": copied,
    "pickled": pickled,
    "other weights": other_weights,
    "evaluated": lambda conv, call, g: trained(conv.eval(), call, g),
    "frozen": lambda conv, call, g: trained(conv.requires_grad_(False), call, g),
    "no_grad": without_gradients(torch.no_grad),
    "inference_mode": without_gradients(torch.inference_mode),
    "sparse": with_edges(lambda edges, nodes: to_torch_csc_tensor(edges, size=(nodes, nodes)).t()),
    "EdgeIndex": with_edges(square),
    "EdgeIndex by column": with_edges(lambda edges, nodes: square(edges, nodes).sort_by("col")[0]),
    "indices of int32": with_edges(lambda edges, nodes: edges.int()),
    "transposed edges": with_edges(lambda edges, nodes: edges.t().contiguous().t()),
    "an index too large": last_edge(5),
    "a negative index": last_edge(-1),
    "too few channels": with_features(lambda x: x[:, :4]),
    "too few nodes": with_features(lambda x: x[: len(x) // 2]),
    "features of float32": with_features(Tensor.float),
    "strided features": with_features(lambda x: x.t().contiguous().t()),
    "several features of one graph": with_features(lambda x: torch.stack([x, 2 * x])),
    "too few edge features": lambda conv, call, g: trained(
        conv, call, g._replace(attr=g.attr.detach()[:-1], weight=g.weight.detach()[:-1])
    ),
    "changed in place": changed_in_place,
    "second derivative": twice_differentiated,
    "two backwards": two_backwards,
    "functional": functional,
    "mapped": mapped,
    "forward mode": forward_mode,
    "checkpointed": checkpointed,
    "autocast": autocast,
    "hooks": watched,
    "hooks before": lambda conv, call, g: (
        conv.register_forward_pre_hook(doubled_before),
        trained(conv, call, g),
    )[1],
    "hooks on parameters": watched_parameters,
    "hooks on messages": after(lambda module, g: module.register_message_forward_hook(lambda m, a, out: 2 * out)),
    "explained": after(explained),
    "decomposed": set_to(decomposed_layers=2),
    "reversed": set_to(flow="target_to_source"),
    "threads": by_threads,
    "float32": in_type(torch.float32),
    "bfloat16": in_type(torch.bfloat16),
    "scripted": lambda conv, call, g: trained(torch.jit.script(conv), call, g),
    "compiled": compiled,
}


def attempt(way: Way, make: Callable[[], Any], call: layers.Call, graph: str) -> tuple[list[Tensor], Any]:
    edge_index, nodes, _ = graphs.zoo()[graph]
    torch.manual_seed(0)
    try:
        return way(make().double(), call, layers.given(edge_index, nodes)), None
    except Exception as error:
        return [], error


def difference(way: str, make: Callable[[], Any], call: layers.Call, graph: str) -> str:
    """Say what differs; nothing if all is equal."""
    theirs, error = attempt(WAYS[way], make, call, graph)
    with gnnbench.patched(BACKEND):
        ours, raised = attempt(WAYS[way], make, call, graph)
    if type(error) is not type(raised):
        return f"PyG: {error!r:.200}; patched: {raised!r:.300}"
    tolerance = COARSE.get(way, 1e-7)
    try:
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as unequal:
        return str(unequal).replace("\n", " ")
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"some of: {', '.join(WAYS)}")
    parser.add_argument("--layer", choices=layers.LAYERS)
    parser.add_argument("--chunks", action="store_true", help="of a few edges each")
    options = parser.parse_args()
    if unknown := set(options.ways) - set(WAYS):
        parser.error(f"unknown ways: {', '.join(unknown)}")
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    least, length = (1, 4096) if options.chunks else (stream.LEAST, Kernels.chunk_bytes)
    calls = differences = 0
    with (
        absent.supplied(),
        mock.patch.object(patch, "_policy", Policy(min_gathered=0)),
        mock.patch.object(stream, "LEAST", least),
        mock.patch.object(Kernels, "chunk_bytes", length),
    ):
        for name in [options.layer] if options.layer else layers.LAYERS:
            for make, call in layers.LAYERS[name][1]:
                for way in options.ways or WAYS:
                    for graph in GRAPHS:
                        calls += 1
                        if problem := difference(way, make, call, graph):
                            differences += 1
                            print(f"{name}, {way}, {graph}: {problem}", flush=True)
    print(f"{calls:,} calls, {differences} differ")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
