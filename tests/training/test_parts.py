"""Training on parts of a graph: what several processes learn is what one does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gnnbench import config
from gnnbench.backends import isplib
from gnnbench.errors import ConfigError
from gnnbench.graph.part import Sums
from gnnbench.training import setup
from gnnbench.training.batching import _shares
from tests.support import parts
from tests.support.ranks import Ranks


@pytest.mark.parametrize(
    ("case", "backend", "p", "norm"),
    [
        ("hub", "isplib", 0.0, "none"),
        ("hub", "reference", 0.0, "batch"),
        ("empty part", "isplib", 0.5, "batch"),
        ("no halo", "isplib", 0.5, "layer"),
        ("few edges", "isplib", 0.5, "batch"),
    ],
)
def test_ten_epochs_reach_the_losses_of_one_process(
    case: str, backend: str, p: float, norm: str, ranks: Ranks
) -> None:
    """With dropout, too, as nodes are in the same order; some have no training nodes, no edges or no nodes."""
    if backend == "isplib" and isplib.MISSING:
        pytest.skip(f"the kernels are not built: {isplib.MISSING}")
    results = ranks.run(parts.trained, case, backend, p, norm)
    for (losses, metrics), (expected, expected_metrics) in results:
        assert losses == pytest.approx(expected, rel=1e-10)
        assert metrics == expected_metrics
        assert losses[-1] < losses[0]
    assert len({str(mine) for mine, _ in results}) == 1  # in every bit, or they would drift apart


@pytest.mark.skipif(bool(isplib.MISSING), reason=f"the kernels are not built: {isplib.MISSING}")
@pytest.mark.parametrize("norm", ["batch", "none"])
def test_so_they_do_in_bfloat16_within_its_precision(norm: str, ranks: Ranks) -> None:
    for losses, expected in ranks.run(parts.trained_in_bf16, "hub", "isplib", norm):
        assert losses == pytest.approx(expected, rel=2e-2)


@pytest.mark.parametrize("metric", ["accuracy", "micro-F1", "rocauc"])
def test_metrics_are_those_of_all_nodes(metric: str, ranks: Ranks) -> None:
    for found, expected in ranks.run(parts.scores, metric):
        assert found == expected


@pytest.mark.parametrize("case", ["hub", "empty part"])
def test_batch_norms_of_any_kind_are_those_of_all_nodes(case: str, ranks: Ranks) -> None:
    for found, expected in ranks.run(parts.normalised, case):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


class Alone(Sums):
    """Sums of one process."""

    def table(self, row: torch.Tensor) -> torch.Tensor:
        return row.unsqueeze(0)


def test_the_moments_of_one_node_are_refused_as_by_torch() -> None:
    norms = [torch.nn.BatchNorm1d(5), torch.nn.BatchNorm1d(5, track_running_stats=False).eval()]
    for norm in norms:
        with pytest.raises(ValueError, match="more than 1 value"):
            norm(torch.zeros(1, 5))
        _shares.bind_norms(norm, Alone())
        with pytest.raises(ValueError, match="more than one node, but"):
            norm(torch.zeros(1, 5))


def test_what_is_no_part_is_refused(ranks: Ranks) -> None:
    for told in ranks.run(parts.wrong):
        assert told == [
            "a graph in 2 parts needs as many processes, found 3",
            "halo must ascend, and be of nodes that other processes have",
            told[2],
            told[3],
            told[4],
        ]
        assert "rows, but this process has" in told[2]
        assert "col" in told[3]
        assert "x has 211 rows, but this process has" in told[4]


@pytest.mark.parametrize(("name", "more"), [("gine", {}), ("gat", {"edge_features": True})])
def test_models_with_features_of_edges_are_refused(name: str, more: dict[str, bool]) -> None:
    """Refuse edge features, which parts, like all node datasets, have none of."""
    wanted = parts.configured("reference", 0.0, "none", 1, "parts")
    raw = {**wanted.model_dump(), "model": {"name": name, **more}}
    with pytest.raises(
        ConfigError, match=f"model {name} takes features of edges, which the dataset lacks; choose"
    ):
        setup.build(config.validate(raw, "test"), setup.ModelDims.of(parts.dataset("hub")))


def test_parts_on_disk_are_trained_on_as_those_in_memory(ranks: Ranks, tmp_path: Path) -> None:
    for from_files, from_memory in ranks.run(parts.trained_from_files, tmp_path / "parts"):
        assert from_files == from_memory
