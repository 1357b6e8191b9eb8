"""Plans: counts are those of the parts, sizes follow from them by hand, and a published graph is not read."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from gnnbench import config as configs
from gnnbench.config import BackendConfig
from gnnbench.datasets import NodeDataset
from gnnbench.errors import ConfigError
from gnnbench.graph import Graph
from gnnbench.models import gcn, sage
from gnnbench.partition import estimate, part, plan, rates
from gnnbench.partition.estimate import Layer, Rates, Share
from tests.support.commands import run
from tests.support.partition import cases

CPU = torch.device("cpu")
RATES = Rates(
    threads=1,
    edges_per_s={16: 1e3, 32: 1e2},
    edges_per_s_backward={16: 1e3, 32: 1e2},
    dense_flop_per_s=1e6,
    stream_bytes_per_s=1e6,
    program_bytes=1000,
)


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates on little data, a call lasting a second by the clock."""
    for name, value in {"STREAM_BYTES": 1 << 10, "MOST_EDGES": 1000, "MOST_COLUMNS": 500}.items():
        monkeypatch.setattr(rates, name, value)
    ticks = itertools.count()
    monkeypatch.setattr("gnnbench.measure.clock.cpu", lambda: float(next(ticks)))


@settings(max_examples=30, deadline=None)
@given(cases())
def test_counts_are_those_of_the_parts(case: tuple[NodeDataset, Tensor, int]) -> None:
    data, assignment, parts = case
    pieces = [part.split(data, assignment, rank, parts) for rank in range(parts)]
    owners = assignment[torch.cat([piece.node_id for piece in pieces])]
    received = torch.cat([owners[piece.halo] for piece in pieces]).bincount(minlength=parts)
    graph = data.graph(CPU)
    assert plan.shares(graph, assignment, parts) == [
        Share(*sizes(piece), int(sent), copied(piece), parts == 1 and graph.is_symmetric)
        for piece, sent in zip(pieces, received, strict=True)
    ]


def sizes(piece: part.PartData) -> tuple[int, int, int]:
    return piece.num_nodes, piece.col.numel(), piece.halo.numel()


def copied(piece: part.PartData) -> int:
    """Edges that are there once more where a tenth of them, but not all, is in rows without halo."""
    rows = piece.col.split(piece.rowptr.diff().tolist())
    mine = range(piece.first, piece.first + piece.num_nodes)
    interior = sum(len(row) for row in rows if all(column in mine for column in row.tolist()))
    return piece.col.numel() if 0.1 * piece.col.numel() <= interior < piece.col.numel() else 0


def test_modelled_halos_are_those_of_random_parts() -> None:
    """Of a graph whose nodes have ten out-edges each; and no smaller where degrees differ."""
    nodes, generator = 3000, torch.Generator().manual_seed(0)
    dst = torch.randint(nodes, (10 * nodes,), generator=generator)
    even = Graph.from_edge_index(torch.stack([torch.arange(nodes).repeat(10), dst]), nodes)
    uneven = Graph.from_edge_index(torch.stack([(torch.arange(nodes) // 4).repeat(10), dst]), nodes)
    for parts in (2, 8):
        assignment = part.assign(even, parts, "random", 0)
        modelled = estimate.random_share(nodes, even.num_edges, parts).halo
        made = sum(share.halo for share in plan.shares(even, assignment, parts)) / parts
        assert made == pytest.approx(modelled, rel=0.02)
        assert sum(share.halo for share in plan.shares(uneven, assignment, parts)) / parts < modelled


def test_layers_multiply_first_where_backends_do() -> None:
    ours, plain = BackendConfig(), BackendConfig(transform_first=False)
    model = gcn.Config(name="gcn", layers=3, hidden=32)
    assert estimate.layers(model, ours, 16, 4) == [
        Layer(16, 32, 16, False),
        Layer(32, 32, 32, True),
        Layer(32, 4, 4, True),
    ]
    assert [layer.message for layer in estimate.layers(model, plain, 16, 4)] == [32, 32, 4]
    means = sage.Config(name="sage", layers=2, hidden=32)
    assert estimate.layers(means, ours, 64, 64) == [Layer(64, 32, 32, True), Layer(32, 64, 32, False)]
    assert [layer.message for layer in estimate.layers(means, plain, 64, 4)] == [64, 32]
    with pytest.raises(ConfigError, match=r"--plan knows the models gcn, and sage .* this is sage with aggr=max"):
        estimate.check(sage.Config(name="sage", aggr="max"))


def test_an_estimate_adds_up() -> None:
    """Halos travel forth and, but for features as they are, back; a worker alone exchanges nothing."""
    model = sage.Config(name="sage", layers=2, hidden=32, dropout=0.0)
    stack = estimate.layers(model, BackendConfig(), 16, 8)
    assert [layer.message for layer in stack] == [16, 8]
    rated = RATES.model_copy(update={"edges_per_s": {16: 1e3, 8: 1e3}, "edges_per_s_backward": {16: 1e3, 8: 1e3}})
    alone = estimate.estimate(Share(100, 1000, 0, 0), model, stack, rated, network=1e6)
    both = estimate.estimate(Share(100, 1000, 30, 50), model, stack, rated, network=1e6)
    assert (alone.exchange_bytes, alone.exchange_s) == (0, 0.0)
    assert both.exchange_bytes == 4 * 50 * (16 + 2 * 8)
    weights = 2 * (16 * 32 + 32 * 8)
    assert both.exchange_s == pytest.approx((both.exchange_bytes + 2 * 4 * weights) / 1e6)
    edges, products = 3 * 1000 / 1e3, 2 * 2 * 100 * (2 * 16 * 32 + 3 * 32 * 8) / 1e6
    assert edges + products < alone.compute_s < edges + products + 0.3
    assert alone.compute_s < both.compute_s
    assert RATES.program_bytes + 100 * 4 * 16 + 3 * 4 * 1000 < alone.memory_bytes
    order = 4 * 1000  # of edges in the dataset, which a process alone keeps
    assert alone.memory_bytes - order < both.memory_bytes

    def memory(kernel_bytes_per_edge: float = 0.0, **share: float) -> int:
        kept = rated.model_copy(update={"kernel_bytes_per_edge": kernel_bytes_per_edge})
        return estimate.estimate(Share(100, 1000, 30, 50, **share), model, stack, kept, network=1e6).memory_bytes

    assert memory() == both.memory_bytes
    assert memory(apart=1000) - memory() == 4 * 1000
    assert memory(2.5) - memory() == 2 * 2.5 * 1000
    assert memory() - memory(symmetric=True) == 8 * 1000 + 8 * 130
    assert both.epoch_s == both.compute_s + both.exchange_s


@pytest.mark.parametrize(
    ("text", "bytes_per_s"), [("10Gb", 1.25e9), ("100 Gbit/s", 1.25e10), ("1.5GB/s", 1.5e9), ("800Mb", 1e8)]
)
def test_speeds_are_of_bits_or_bytes(text: str, bytes_per_s: float) -> None:
    assert plan.speed(text) == pytest.approx(bytes_per_s)


@pytest.mark.parametrize("text", ["10", "fast", "0Gb", "10gb", "-1Gb"])
def test_other_speeds_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write it as 10Gb"):
        plan.speed(text)


def test_a_published_graph_is_planned_by_its_size(tmp_path: Path) -> None:
    command = ("partition", "ogbn-papers100M", "--plan", "--parts", "16,32,64,128,256", "--data-root", tmp_path)
    output = run(*command, "--json")
    assert output.code == 0, output.stderr
    result = plan.Plan.model_validate_json(output.stdout)
    assert (result.modelled, result.method, result.nodes) == (True, "random", 111_059_956)
    assert [*result.estimates] == [16, 32, 64, 128, 256]
    memory = [each.memory_bytes for (each,) in result.estimates.values()]
    assert memory == sorted(memory, reverse=True)
    table = " ".join(run(*command).stdout.split())
    assert "Predicted, not run: sage, 3 layers of 128, on ogbn-papers100M in random parts" in table
    assert "Parts are modelled" in table
    refused = run(*command, "--method", "contiguous")
    assert (refused.code, refused.stdout) == (2, "")
    assert "without its edges only --method random can be planned" in refused.stderr
    doubled = json.loads(run(*command, "--json", "--set", "dataset.to_undirected=true").stdout)
    assert doubled["edges"] == 2 * result.edges


def test_a_graph_at_hand_is_planned_by_its_parts(tmp_path: Path) -> None:
    command = ("partition", "synthetic:cora:0.05", "--plan", "--network", "1Gb", "--threads", "1")
    output = run(*command, "--parts", "3", "--json")
    assert output.code == 0, output.stderr
    result = plan.Plan.model_validate_json(output.stdout)
    assert not result.modelled
    assert sum(each.nodes for each in result.estimates[3]) == result.nodes == 135
    assert result.rates.edges_per_s[128] == max(each.edges for each in result.estimates[3])
    assert re.findall(r"^(\d) ", run(*command, "--parts", "3").stdout, re.MULTILINE) == ["0", "1", "2"]
    several = run(*command, "--parts", "2,4", "--set", "model.name=gcn")
    assert "gcn, 3 layers of 128" in several.stdout
    yaml = tmp_path / "gat.yaml"
    yaml.write_text("dataset: {source: planetoid, name: cora}\nmodel: {name: gat}\n")
    refused = run(*command, "--parts", "2", "--config", yaml)
    assert (refused.code, refused.stdout) == (2, "")
    assert "--plan knows the models gcn, and sage" in refused.stderr
    assert configs.load(yaml).model.name == "gat"
