"""Batches that several processes share out: what they learn is what one process does on whole batches."""

from __future__ import annotations

from typing import Any

import pytest

from gnnbench.backends import isplib
from tests.support import shares
from tests.support.ranks import Ranks

NEIGHBORS = {"fanouts": [4, 3]}
OF_LINKS = {"negatives": 2, "drop_target_links": True}
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], str]] = {
    "sage": ("neighbors", "isplib", {"name": "sage", "norm": "layer"}, NEIGHBORS, ""),
    "gcn": ("neighbors", "isplib", {"name": "gcn"}, NEIGHBORS, ""),
    "gat by pyg": ("neighbors", "pyg", {"name": "gat"}, {**NEIGHBORS, "replace": True}, ""),
    "links": ("link_neighbors", "isplib", {"name": "sage"}, {**NEIGHBORS, **OF_LINKS}, ""),
    "links of the whole graph": ("links", "isplib", {"name": "gcn", "norm": "batch"}, {"negatives": 2}, ""),
    "links beside the graph": ("links", "pyg", {"name": "sage"}, OF_LINKS, ""),
    "types": ("neighbors", "isplib", {"name": "hgt", "heads": 2}, NEIGHBORS, "types"),
    "types by pyg": ("neighbors", "pyg", {"name": "rgcn"}, NEIGHBORS, "types"),
    "graphs": ("graphs", "isplib", {"name": "gin", "readout": "sum", "norm": "batch"}, {}, ""),
    "labels": ("graphs", "reference", {"name": "gin", "readout": "mean"}, {"size": 7}, "labels"),
}
# Sizes that leave one target to the last batch, which two of three workers then have no share of.
SIZES = {"neighbors": 13, "types": 313, "links": 338, "link_neighbors": 338, "graphs": 13}


@pytest.mark.skipif(bool(isplib.MISSING), reason=f"the kernels are not built: {isplib.MISSING}")
@pytest.mark.parametrize("case", CASES)
def test_twenty_steps_have_the_losses_of_one_process(case: str, ranks: Ranks) -> None:
    kind, backend, model, batch, target = CASES[case]
    size = SIZES.get(target, SIZES[kind])
    results = ranks.run(shares.learned, kind, backend, model, {"size": size, **batch}, target)
    for losses, expected, figures in results:
        assert losses == pytest.approx(expected, rel=1e-5)
        assert losses == results[0][0]  # in every bit, or they would drift apart
        assert len(expected) >= shares.STEPS
        assert sum(each["sent_bytes"] - each["received_bytes"] for each in figures) == 0
        assert all(each["edges"] > 0 < each["sent_bytes"] for each in figures)
