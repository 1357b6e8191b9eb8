"""Plans: counts are those of the parts, sizes follow from them by hand, and a published graph is not read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from gnnbench.datasets import NodeDataset
from gnnbench.graph import Graph
from gnnbench.partition import part, plan
from gnnbench.partition.plan import Share
from tests.support.commands import run
from tests.support.partition import cases

CPU = torch.device("cpu")


@settings(max_examples=30, deadline=None)
@given(cases())
def test_counts_are_those_of_the_parts(case: tuple[NodeDataset, Tensor, int]) -> None:
    data, assignment, parts = case
    pieces = [part.split(data, assignment, rank, parts) for rank in range(parts)]
    owners = assignment[torch.cat([piece.node_id for piece in pieces])]
    received = torch.cat([owners[piece.halo] for piece in pieces]).bincount(minlength=parts)
    assert plan.shares(data.graph(CPU), assignment, parts) == [
        Share(piece.num_rows, piece.col.numel(), piece.halo.numel(), int(sent))
        for piece, sent in zip(pieces, received, strict=True)
    ]


def test_modelled_halos_are_those_of_random_parts() -> None:
    """Of a graph whose nodes have ten out-edges each; and no smaller where degrees differ."""
    nodes, generator = 3000, torch.Generator().manual_seed(0)
    dst = torch.randint(nodes, (10 * nodes,), generator=generator)
    even = Graph.from_edge_index(torch.stack([torch.arange(nodes).repeat(10), dst]), nodes)
    uneven = Graph.from_edge_index(torch.stack([(torch.arange(nodes) // 4).repeat(10), dst]), nodes)
    for parts in (2, 8):
        assignment = part.assign(even, parts, "random", 0)
        modelled = plan.random_share(nodes, even.num_edges, parts).halo
        made = sum(share.halo for share in plan.shares(even, assignment, parts)) / parts
        assert made == pytest.approx(modelled, rel=0.02)
        assert sum(share.halo for share in plan.shares(uneven, assignment, parts)) / parts < modelled


def test_an_estimate_adds_up() -> None:
    """Halos travel forth and, but for features as they are, back; a worker alone exchanges nothing."""
    alone = plan.estimate(Share(100, 1000, 0, 0), [16, 32, 8], program_bytes=1000)
    both = plan.estimate(Share(100, 1000, 30, 50), [16, 32, 8], program_bytes=1000)
    assert (alone.exchange_bytes, both.exchange_bytes) == (0, 4 * 50 * (16 + 2 * 8))
    narrowed = plan.estimate(Share(100, 1000, 30, 50), [64, 32, 8], program_bytes=1000)
    assert narrowed.exchange_bytes == 4 * 50 * 2 * (32 + 8)  # multiplied before, so that there are gradients
    graph, kept, at_work = 16 * (1000 + 130), 100 * (16 + 2 * 32 + 32 + 2 * 8), 2 * 130 * 32 + 100 * 8
    assert both.memory_bytes == 1000 + graph + 4 * (100 * 16 + 1.5 * (kept + at_work))


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


def test_a_graph_at_hand_is_planned_by_its_parts() -> None:
    command = ("partition", "synthetic:cora:0.05", "--plan")
    output = run(*command, "--parts", "3", "--json")
    assert output.code == 0, output.stderr
    result = plan.Plan.model_validate_json(output.stdout)
    assert not result.modelled
    assert sum(each.nodes for each in result.estimates[3]) == result.nodes == 135
    assert re.findall(r"^(\d) ", run(*command, "--parts", "3").stdout, re.MULTILINE) == ["0", "1", "2"]
    assert "gat, 3 layers of 128" in run(*command, "--parts", "2,4", "--set", "model.name=gat").stdout
