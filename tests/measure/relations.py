"""Layers of several relations, forward and backward: PyG, DGL and the drop-in.

RGCNConv beside DGL's RelGraphConv on random, citation and word graphs, and a HeteroConv of a SAGEConv for each
relation beside DGL's HeteroGraphConv.

    python tests/measure/relations.py [--dgl-python PYTHON] [--out FILE]

Outputs and gradients are compared first, then rounds are interleaved. `GNNBENCH_DATA` holds WordNet18RR.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import HeteroConv, RGCNConv, SAGEConv

from gnnbench import datasets, patch, registry, stats
from gnnbench.backends import dgl
from gnnbench.benchmarks.peers import taken
from gnnbench.config import BackendConfig
from gnnbench.datasets import LinksDataset, TypedDataset
from gnnbench.datasets._kinds import edge_types, joined
from gnnbench.measure import clock, environment, memory
from gnnbench.measure.rounds import Budget, interleaved, timed
from gnnbench.results import files

TOLERANCE = 1e-5  # root mean square of a difference from PyG's, over that of the tensor
Step = Callable[[], list[Tensor]]


class Case(NamedTuple):
    """A graph with a relation of each edge, and the layer on it."""

    name: str
    edge_index: Tensor
    edge_type: Tensor
    nodes: int
    relations: int
    width: int
    bases: int | None = None


def cases() -> Iterator[Case]:
    """Three random graphs of the sizes of knowledge graphs, ogbn-mag's shape, and WordNet18RR."""
    generator = torch.Generator().manual_seed(0)
    for nodes, edges, relations, width, bases in (
        (40_943, 186_006, 22, 64, None),
        (20_000, 1_000_000, 8, 64, None),
        (20_000, 1_000_000, 46, 32, 30),
    ):
        edge_index = torch.randint(nodes, (2, edges), generator=generator)
        edge_type = torch.randint(relations, (edges,), generator=generator)
        yield Case(f"{edges:,} random edges", edge_index, edge_type, nodes, relations, width, bases)
    mag = _loaded("synthetic:mag:0.05")
    assert isinstance(mag, TypedDataset)
    whole, relations = joined(mag.nodes, mag.relations), len(mag.relations)
    yield Case(mag.label, whole.edge_index, edge_types(mag.relations), mag.num_nodes, relations, 64)
    words = _loaded("wordnet18rr")
    assert isinstance(words, LinksDataset)
    assert words.relations
    yield Case(
        words.label, words.positives["train"], words.relations["train"], words.num_nodes, words.num_relations, 64
    )


def _loaded(spec: str) -> Any:
    section = datasets.parse(spec)
    return datasets.load(registry.find("datasets", section["source"]).Config(**section), datasets.roots())


def outcome(layer: Any, given: tuple[Any, ...], wanted: list[Tensor], grads: dict[str, Tensor]) -> list[Tensor]:
    """Compute the output, or the outputs by type, and the gradients of `wanted` from those of outputs."""
    out = layer(*given)
    outputs = [out] if isinstance(out, Tensor) else [out[kind] for kind in grads]
    return [*(each.detach() for each in outputs), *torch.autograd.grad(outputs, wanted, [*grads.values()])]


def steps(case: Case) -> dict[str, Step]:
    """Return what computes the output and all gradients, by who does."""
    torch.manual_seed(0)
    conv = RGCNConv(case.width, case.width, case.relations, num_bases=case.bases)
    x, grad = torch.randn(case.nodes, case.width, requires_grad=True), torch.randn(case.nodes, case.width)

    def step(layer: Any, adj: Any) -> list[Tensor]:
        return outcome(layer, (x, adj, case.edge_type), [x, *layer.parameters()], {"": grad})

    ours = patch.accelerate(copy.deepcopy(conv), "isplib", strict=True)
    found: dict[str, Step] = {
        "pyg": partial(step, conv, case.edge_index),
        "isplib": partial(step, ours, case.edge_index),
    }
    if not dgl.Backend.unavailable():
        theirs = copy.deepcopy(conv)
        dgl.Backend(BackendConfig(name="dgl")).bind(torch.nn.ModuleList([theirs]))
        found["dgl"] = partial(step, theirs, dgl.Adjacency(case.edge_index, case.nodes, case.nodes))
    return found


def typed_steps(graph: TypedDataset, width: int) -> dict[str, Step]:
    """`steps` of random features [n, width] of every type, by types."""
    torch.manual_seed(0)
    conv = HeteroConv({relation: SAGEConv(width, width) for relation in graph.relations}, aggr="sum")
    x = {kind: torch.randn(count, width, requires_grad=True) for kind, count in graph.nodes.items()}
    grads = {kind: torch.randn(count, width) for kind, count in graph.nodes.items()}
    edges = {relation: own.edge_index for relation, own in graph.relations.items()}

    def step(layer: Any, parameters: list[Tensor], *given: Any) -> list[Tensor]:
        return outcome(layer, given, [*x.values(), *parameters], grads)

    ours = patch.accelerate(copy.deepcopy(conv), "isplib", strict=True)
    found: dict[str, Step] = {
        "pyg": partial(step, conv, [*conv.parameters()], x, edges),
        "isplib": partial(step, ours, [*ours.parameters()], x, edges),
    }
    library, _ = dgl.imported()
    if library is not None:
        theirs = copy.deepcopy(conv)
        whole = library.heterograph({relation: tuple(own) for relation, own in edges.items()}, graph.nodes)
        whole.create_formats_()
        own = {relation[1]: dgl.sage(each) for relation, each in theirs.convs.items()}
        layer = library.nn.HeteroGraphConv(own, aggregate="sum")
        found["dgl"] = partial(step, layer, [*theirs.parameters()], whole, x)
    return found


def off(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Largest root mean square of a difference, over that of the wanted tensor."""
    return max(
        float((a - b).square().mean() / b.square().mean()) ** 0.5 for a, b in zip(found, wanted, strict=True)
    )


def measured(name: str, works: dict[str, Step], budget: Budget) -> dict[str, Any]:
    """Times, memory and how far from PyG, by who computes."""
    meter = memory.meter(torch.device("cpu"))
    rows: dict[str, dict[str, Any]] = {}
    wanted = [each.clone() for each in works["pyg"]()]
    for who, work in works.items():
        rows[who] = {"off": max(off(work(), wanted) for _ in range(2))}
        if not rows[who]["off"] <= TOLERANCE:
            raise SystemExit(f"{name}: {who} is off by {rows[who]['off']:.2g}")
        rows[who]["memory_increase_bytes"], _ = taken(work, meter)
    contestants = {who: partial(timed, work, clock.cpu) for who, work in works.items()}
    for who, samples in interleaved(contestants, budget, _raise).items():
        rows[who]["time_s"] = dict(zip(("median", "low", "high"), stats.median_interval(samples), strict=True))
        rows[who]["samples"] = samples
    for row in rows.values():
        ratio = stats.ratio_interval(rows["pyg"]["samples"], row["samples"])
        row["vs_pyg"] = dict(zip(("ratio", "low", "high"), ratio, strict=True))
    return {"graph": name, "rows": rows}


def measured_case(case: Case, budget: Budget) -> dict[str, Any]:
    """`measured` of RGCNConv, and what it ran on."""
    facts = {"edges": case.edge_index.size(1), "nodes": case.nodes, "relations": case.relations}
    return {**facts, "width": case.width, "bases": case.bases, **measured(case.name, steps(case), budget)}


def _raise(name: str, error: Exception) -> None:
    raise error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dgl-python", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.dgl_python:
        os.environ[dgl.VARIABLE] = options.dgl_python
    found = [measured_case(case, Budget()) for case in cases()]
    ratios = torch.tensor([case["rows"]["isplib"]["vs_pyg"]["ratio"] for case in found])
    mean = float(ratios.log().mean().exp())
    mag, width = _loaded("synthetic:mag:0.05"), 64
    typed = {"width": width, **measured(mag.label, typed_steps(mag, width), Budget())}
    record = {
        "environment": environment.describe(),
        "geometric_mean_vs_pyg": mean,
        "cases": found,
        "hetero_conv": typed,
    }
    text = json.dumps(record, indent=1) + "\n"
    print(text, end="") if options.out is None else files.save_text(text, options.out)


if __name__ == "__main__":
    main()
